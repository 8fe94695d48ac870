#include "engine/tokenizer/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <new>
#include <optional>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "caches/check.h"
#include "caches/error.h"

namespace lockstep {
namespace {

struct Freer {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

// PCRE2's own limit of ten million steps a match is too low for one long run of spaces. A pattern
// that backtracks over a run once needs a few steps a byte; one that backtracks over its own
// backtracking still hits this limit soon.
uint32_t MatchLimit(size_t text_bytes) {
  constexpr uint64_t kDefault = 10'000'000;
  constexpr uint64_t kStepsPerByte = 16;
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  return static_cast<uint32_t>(std::min(kMost, std::max(kDefault, kStepsPerByte * text_bytes)));
}

std::string ErrorText(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR Units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct Pattern::Code {
  std::unique_ptr<pcre2_code, Freer> compiled;

  struct Match {
    size_t begin = 0;
    size_t end = 0;
  };

  std::optional<Match> Find(std::string_view text, size_t from, pcre2_match_data* data,
                            pcre2_match_context* context) const {
    const auto match = [&](uint32_t options) {
      return pcre2_match(compiled.get(), Units(text), text.size(), from,
                         PCRE2_NO_UTF_CHECK | options, data, context);
    };
    int result = match(0);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_JIT);
    if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
    if (result < 0) {
      throw Error({"text to encode",
                   fmt::format("the regular expression engine gave up {} bytes into {}: {}", from,
                               text.size(), ErrorText(result)),
                   "encode it in parts"});
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data);
    return Match{ends[0], ends[1]};
  }
};

Pattern::Pattern(std::string regex) : regex_(std::move(regex)) {
  int error = 0;
  PCRE2_SIZE where = 0;
  pcre2_code* compiled =
      pcre2_compile(Units(regex_), regex_.size(), PCRE2_UTF | PCRE2_UCP, &error, &where, nullptr);
  LS_CHECK(compiled != nullptr, "'{}' at {}: {}", regex_, where, ErrorText(error));
  // Best effort: without compiled code pcre2_match interprets, to the same result.
  pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
  code_.reset(new Code{std::unique_ptr<pcre2_code, Freer>(compiled)});
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

void Pattern::Split(std::string_view text, size_t offset, std::vector<size_t>* ends) const {
  const std::unique_ptr<pcre2_match_data, Freer> data(
      pcre2_match_data_create_from_pattern(code_->compiled.get(), nullptr));
  const std::unique_ptr<pcre2_match_context, Freer> context(pcre2_match_context_create(nullptr));
  if (data == nullptr || context == nullptr) throw std::bad_alloc();
  pcre2_set_match_limit(context.get(), MatchLimit(text.size()));
  for (size_t at = 0; at < text.size();) {
    const std::optional<Code::Match> match = code_->Find(text, at, data.get(), context.get());
    if (!match) {
      ends->push_back(offset + text.size());
      return;
    }
    LS_CHECK(match->begin >= at && match->end > match->begin && match->end <= text.size(),
             "'{}' matched [{}, {}) from {} of {}", regex_, match->begin, match->end, at,
             text.size());
    if (match->begin > at) ends->push_back(offset + match->begin);
    ends->push_back(offset + match->end);
    at = match->end;
  }
}

}  // namespace lockstep
