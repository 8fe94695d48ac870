// One regular expression over UTF-8 text, by PCRE2.
#ifndef LOCKSTEP_ENGINE_TOKENIZER_PATTERN_H_
#define LOCKSTEP_ENGINE_TOKENIZER_PATTERN_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class Pattern {
 public:
  // `regex` is part of lockstep: one that does not compile is a bug (LS_CHECK). It must not match
  // the empty string.
  explicit Pattern(std::string regex);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  // Cuts `text` at its matches, left to right: appends `offset` plus the end of each match, and of
  // each stretch between matches. The last one is the end of the text; an empty text has none.
  // REQUIRES: text is well-formed UTF-8.
  //
  // Throws Error when PCRE2 runs out of a resource (its match or heap limit). A match that only the
  // compiled code's small stack is too small for is done again by the interpreter.
  void Split(std::string_view text, size_t offset, std::vector<size_t>* ends) const;

 private:
  struct Code;
  std::string regex_;
  std::unique_ptr<const Code> code_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_TOKENIZER_PATTERN_H_
