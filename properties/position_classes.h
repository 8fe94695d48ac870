// Classes of position sequences. Campaigns count them: a run that never reached a class has not
// tested it, whatever its number of operations.
#ifndef LOCKSTEP_PROPERTIES_POSITION_CLASSES_H_
#define LOCKSTEP_PROPERTIES_POSITION_CLASSES_H_

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

enum class PositionClass : uint8_t {
  kEmpty,
  kAppend,            // contiguous from the length
  kRewrite,           // contiguous, all below the length
  kRewriteAndAppend,  // contiguous, begins below the length and ends past it
  kGap,               // contiguous, begins above the length
  kCrossesBlock,      // contiguous, over a block boundary
  kEndsAtBlock,       // contiguous, its end is a block boundary
  kEndsBeforeBlock,   // one before it
  kEndsPastBlock,     // one past it: the first row of a block
  kBeginsAtBlock,     // contiguous, from a block boundary other than 0
  kEndsAtMaxLength,   // contiguous, its end is max_length
  kEndsBeforeMax,     // one before it
  kEndsPastMax,       // one past it
  kLongerThanMax,     // more positions than max_length
  kLongerThanWindow,  // more positions than a window that is not 0
  kDuplicate,
  kDecreasing,  // some position below its predecessor
  kStrided,     // rising by one step of 2 or more
  kShuffled,    // both rising and falling, no duplicate
  kNegative,
  kInt32Limit,    // INT32_MIN or INT32_MAX among them
  kSumOverflows,  // contiguous, as int32 arithmetic has it, over or up to INT32_MAX
};
inline constexpr size_t kPositionClasses = 22;

std::string_view PositionClassName(PositionClass position_class);  // "crosses_block", ...

using PositionClassCounts = std::array<int64_t, kPositionClasses>;

struct PositionContext {
  int32_t length = 0;  // of the layer before the operation
  int32_t max_length = 0;
  int32_t block_size = 0;  // 0: none
  int32_t window = 0;      // 0: none
};

// Adds one to every class that the positions belong to.
void CountPositionClasses(std::span<const int32_t> positions, const PositionContext& context,
                          PositionClassCounts* counts);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_POSITION_CLASSES_H_
