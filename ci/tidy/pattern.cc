#include "ci/tidy/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "caches/check.h"

namespace lockstep::tidy {

struct Pattern::Code {
  pcre2_code* regex = nullptr;
  pcre2_match_data* match = nullptr;

  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() {
    pcre2_match_data_free(match);
    pcre2_code_free(regex);
  }
};

Pattern::Pattern(std::string_view regex) : code_(std::make_unique<Code>()) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->regex = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(),
                               PCRE2_MULTILINE, &error, &offset, nullptr);
  LS_CHECK(code_->regex != nullptr, "pattern {} does not compile at {}", regex, offset);
  pcre2_jit_compile(code_->regex, PCRE2_JIT_COMPLETE);
  code_->match = pcre2_match_data_create_from_pattern(code_->regex, nullptr);
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

std::vector<std::string_view> Pattern::Find(std::string_view text, size_t from) const {
  std::vector<std::string_view> groups;
  const int count = pcre2_match(code_->regex, reinterpret_cast<PCRE2_SPTR>(text.data()),
                                text.size(), from, 0, code_->match, nullptr);
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(code_->match);
  for (size_t i = 0; i < static_cast<size_t>(std::max(count, 0)); ++i) {
    const bool unset = ends[2 * i] == PCRE2_UNSET;
    groups.push_back(unset ? std::string_view()
                           : text.substr(ends[2 * i], ends[2 * i + 1] - ends[2 * i]));
  }
  return groups;
}

std::vector<std::string_view> Pattern::FindAll(std::string_view text, size_t group) const {
  std::vector<std::string_view> found;
  for (size_t from = 0; from <= text.size();) {
    const std::vector<std::string_view> groups = Find(text, from);
    if (groups.empty()) break;
    found.push_back(groups.at(group));
    const size_t end = static_cast<size_t>(groups[0].data() - text.data()) + groups[0].size();
    from = std::max(end, from + 1);  // an empty match must not stand still
  }
  return found;
}

}  // namespace lockstep::tidy
