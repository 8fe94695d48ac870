#include "properties/position_classes.h"

#include <algorithm>
#include <limits>
#include <set>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, kPositionClasses> kNames = {"empty",
                                                                   "append",
                                                                   "rewrite",
                                                                   "rewrite_append",
                                                                   "gap",
                                                                   "crosses_block",
                                                                   "ends_at_block",
                                                                   "ends_before_block",
                                                                   "ends_past_block",
                                                                   "begins_at_block",
                                                                   "ends_at_max",
                                                                   "ends_before_max",
                                                                   "ends_past_max",
                                                                   "longer_than_max",
                                                                   "longer_than_window",
                                                                   "duplicate",
                                                                   "decreasing",
                                                                   "strided",
                                                                   "shuffled",
                                                                   "negative",
                                                                   "int32_limit",
                                                                   "sum_overflows"};

// As int32 arithmetic has it: INT32_MIN comes after INT32_MAX.
bool RunsOverInt32(std::span<const int32_t> positions) {
  for (size_t i = 1; i < positions.size(); ++i) {
    const auto expected = static_cast<uint32_t>(positions[0]) + static_cast<uint32_t>(i);
    if (static_cast<uint32_t>(positions[i]) != expected) return false;
  }
  return positions[0] > 0 && int64_t{positions[0]} + static_cast<int64_t>(positions.size()) >
                                 std::numeric_limits<int32_t>::max();
}

class Counter {
 public:
  explicit Counter(PositionClassCounts* counts) : counts_(counts) {}
  void Add(PositionClass position_class, bool holds) {
    (*counts_)[static_cast<size_t>(position_class)] += holds ? 1 : 0;
  }

 private:
  PositionClassCounts* counts_;
};

// Of a contiguous run [first, end), as 64-bit numbers: the sums may leave int32.
void CountRun(int64_t first, int64_t end, const PositionContext& c, Counter counter) {
  counter.Add(PositionClass::kAppend, first == c.length);
  counter.Add(PositionClass::kRewrite, first >= 0 && end <= c.length);
  counter.Add(PositionClass::kRewriteAndAppend, first >= 0 && first < c.length && end > c.length);
  counter.Add(PositionClass::kGap, first > c.length && end <= c.max_length);
  counter.Add(PositionClass::kEndsAtMaxLength, end == c.max_length);
  counter.Add(PositionClass::kEndsBeforeMax, end == int64_t{c.max_length} - 1);
  counter.Add(PositionClass::kEndsPastMax, end == int64_t{c.max_length} + 1);
  if (c.block_size <= 0 || first < 0 || end > c.max_length) return;
  const int64_t block = c.block_size;
  counter.Add(PositionClass::kCrossesBlock, first / block != (end - 1) / block);
  counter.Add(PositionClass::kEndsAtBlock, end % block == 0);
  counter.Add(PositionClass::kEndsBeforeBlock, end % block == block - 1);
  counter.Add(PositionClass::kEndsPastBlock, end % block == 1 % block);
  counter.Add(PositionClass::kBeginsAtBlock, first > 0 && first % block == 0);
}

}  // namespace

std::string_view PositionClassName(PositionClass position_class) {
  return kNames.at(static_cast<size_t>(position_class));
}

void CountPositionClasses(std::span<const int32_t> positions, const PositionContext& context,
                          PositionClassCounts* counts) {
  Counter counter(counts);
  counter.Add(PositionClass::kEmpty, positions.empty());
  if (positions.empty()) return;

  bool rises = false, falls = false, one_step = true;
  const int64_t stride = positions.size() > 1 ? int64_t{positions[1]} - positions[0] : 0;
  for (size_t i = 1; i < positions.size(); ++i) {
    const int64_t step = int64_t{positions[i]} - positions[i - 1];
    rises = rises || step > 0;
    falls = falls || step < 0;
    one_step = one_step && step == stride;
  }
  const std::set<int32_t> distinct(positions.begin(), positions.end());
  const bool duplicate = distinct.size() < positions.size();
  const auto rows = static_cast<int64_t>(positions.size());
  counter.Add(PositionClass::kDuplicate, duplicate);
  counter.Add(PositionClass::kDecreasing, falls);
  counter.Add(PositionClass::kStrided, rows > 1 && one_step && stride > 1);
  counter.Add(PositionClass::kShuffled, rises && falls && !duplicate);
  counter.Add(PositionClass::kNegative, *distinct.begin() < 0);
  counter.Add(PositionClass::kInt32Limit,
              *distinct.begin() == std::numeric_limits<int32_t>::min() ||
                  *distinct.rbegin() == std::numeric_limits<int32_t>::max());
  counter.Add(PositionClass::kSumOverflows, RunsOverInt32(positions));
  counter.Add(PositionClass::kLongerThanMax, rows > context.max_length);
  counter.Add(PositionClass::kLongerThanWindow, context.window > 0 && rows > context.window);
  if (rows == 1 || (one_step && stride == 1)) {
    CountRun(positions[0], int64_t{positions[0]} + rows, context, counter);
  }
}

}  // namespace lockstep
