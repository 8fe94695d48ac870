// C++ source cut into tokens, as far as mutants need it.
#ifndef LOCKSTEP_CI_MUTATION_CPP_TOKENS_H_
#define LOCKSTEP_CI_MUTATION_CPP_TOKENS_H_

#include <cstddef>
#include <string_view>
#include <vector>

namespace lockstep::mutation {

struct Token {
  enum class Kind { kWord, kNumber, kLiteral, kSymbol };
  Kind kind = Kind::kSymbol;
  std::string_view text;
  size_t offset = 0;
  int line = 0;  // from 1
};

// Without comments and preprocessor lines. Symbols are of one character but for the operators
// <= >= == != -> :: ++ -- && || += -= *= /= |= &= ^= and << >> where both stand together.
std::vector<Token> TokensOf(std::string_view text);

}  // namespace lockstep::mutation

#endif  // LOCKSTEP_CI_MUTATION_CPP_TOKENS_H_
