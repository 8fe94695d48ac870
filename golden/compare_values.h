// Two versions of the same rows, compared in numbers: which rows and elements differ, by how many
// units in the last place.
#ifndef LOCKSTEP_GOLDEN_COMPARE_VALUES_H_
#define LOCKSTEP_GOLDEN_COMPARE_VALUES_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// How many elements are how far apart: 0, 1, 2, 3..4, 5..8, ... 2^k + 1 .. 2^(k + 1) ulps, and
// those where one side alone is a NaN.
struct UlpHistogram {
  static constexpr size_t kBuckets = 34;
  std::array<int64_t, kBuckets> counts = {};
  int64_t nan = 0;

  void Add(float a, float b);
  // "0", "1", "2", "3-4", "5-8", ...
  static std::string BucketName(size_t bucket);
};

// One row that differs.
struct RowDifference {
  int32_t row = 0;        // index among the rows
  int32_t differing = 0;  // elements
  int32_t first = 0;      // element
  int32_t last = 0;
  float before = 0;  // at `first`
  float now = 0;
};

struct ValueDifference {
  int64_t elements = 0;
  int64_t differing = 0;
  std::vector<RowDifference> rows = {};  // those that differ
  UlpHistogram ulps = {};
};

// By canonical bits. `bounds`, when not empty, are how far `before` may be from what it stands for:
// elements within them count as equal. REQUIRES: equal sizes, whole rows (LS_CHECK).
ValueDifference CompareValues(std::span<const float> before, std::span<const float> now,
                              int64_t width, std::span<const double> bounds = {});

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_COMPARE_VALUES_H_
