// Simple mutants of C++ source, made without knowing what it does: what a slip of the hand would
// leave behind. The operators and why these: Offutt, Lee, Rothermel, Untch, Zapf, "An Experimental
// Determination of Sufficient Mutant Operators", ACM TOSEM 5(2), 1996.
//
//   comparison  < as <=, <= as <, > as >=, >= as >, == as !=, != as ==
//   constant    a whole number one higher, and one lower where it is not 0
//   statement   a call, an assignment, a throw, a break or a continue left out
//   arguments   the first two arguments of a call exchanged
#ifndef LOCKSTEP_CI_MUTATION_MUTANTS_H_
#define LOCKSTEP_CI_MUTATION_MUTANTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::mutation {

struct Mutant {
  std::string operator_name;
  size_t offset = 0;  // of the first byte that is replaced
  size_t size = 0;    // bytes that are replaced
  std::string after;
  int line = 0;  // from 1
};

// In the order of their places. Comments, literals, preprocessor lines, static_assert and LS_CHECK
// are left alone: the first cannot matter, a weaker check of the harness itself is no fault of it.
std::vector<Mutant> FindMutants(std::string_view text);

std::string ApplyMutant(const Mutant& mutant, std::string_view text);

// Line `line` of `text`, from 1, without the blanks around it.
std::string TrimmedLine(std::string_view text, int line);

// `count` of [0, size) in rising order, each once; all of them when there are fewer.
std::vector<size_t> Sample(size_t size, size_t count, uint64_t seed);

}  // namespace lockstep::mutation

#endif  // LOCKSTEP_CI_MUTATION_MUTANTS_H_
