// A compiled PCRE2 pattern, for rules that are easiest read as one.
#ifndef LOCKSTEP_CI_TIDY_PATTERN_H_
#define LOCKSTEP_CI_TIDY_PATTERN_H_

#include <memory>
#include <string_view>
#include <vector>

namespace lockstep::tidy {

class Pattern {
 public:
  // Aborts (LS_CHECK) on a pattern that does not compile: patterns are part of the program.
  explicit Pattern(std::string_view regex);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  // The first match at or after `from`: the whole, then each group, as views into `text`. Empty
  // when there is none. A group that took no part is an empty view.
  std::vector<std::string_view> Find(std::string_view text, size_t from = 0) const;

  bool Matches(std::string_view text) const { return !Find(text).empty(); }

  // Group `group` of every match, from left to right.
  std::vector<std::string_view> FindAll(std::string_view text, size_t group) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace lockstep::tidy

#endif  // LOCKSTEP_CI_TIDY_PATTERN_H_
