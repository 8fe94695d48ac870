// Lists on the command line: "1,2,8".
#ifndef LOCKSTEP_CI_LOCKSTEP_NUMBER_LIST_H_
#define LOCKSTEP_CI_LOCKSTEP_NUMBER_LIST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

// The parts of "a,b,c"; none of an empty text.
std::vector<std::string> SplitList(const std::string& text);

// Whole numbers of [low, high], separated by commas. Throws Error naming the flag for anything
// else.
std::vector<int32_t> NumberList(std::string_view flag, const std::string& text, int32_t low,
                                int32_t high);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_NUMBER_LIST_H_
