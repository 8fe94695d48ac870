#include "golden/compare_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "caches/check.h"
#include "caches/digest.h"
#include "oracle/difference.h"

namespace lockstep {

void UlpHistogram::Add(float a, float b) {
  const auto distance = UlpDistance(a, b);
  if (!distance) {
    ++nan;
    return;
  }
  // 3 and 4 are bucket 3, 5 to 8 bucket 4: the width of distance - 1.
  const size_t bucket = *distance <= 2 ? static_cast<size_t>(*distance)
                                       : static_cast<size_t>(std::bit_width(*distance - 1)) + 1;
  ++counts[std::min(bucket, kBuckets - 1)];
}

std::string UlpHistogram::BucketName(size_t bucket) {
  if (bucket <= 2) return fmt::format("{}", bucket);
  const uint64_t high = uint64_t{1} << (bucket - 1);
  return fmt::format("{}-{}", high / 2 + 1, high);
}

ValueDifference CompareValues(std::span<const float> before, std::span<const float> now,
                              int64_t width, std::span<const double> bounds) {
  LS_CHECK(before.size() == now.size(), "{} elements and {}", before.size(), now.size());
  LS_CHECK(width > 0 && now.size() % static_cast<size_t>(width) == 0, "{} elements in rows of {}",
           now.size(), width);
  LS_CHECK(bounds.empty() || bounds.size() == now.size(), "{} bounds of {} elements", bounds.size(),
           now.size());
  ValueDifference difference{.elements = static_cast<int64_t>(now.size())};
  for (size_t i = 0; i < now.size(); ++i) {
    difference.ulps.Add(before[i], now[i]);
    if (CanonicalBits(before[i]) == CanonicalBits(now[i])) continue;
    if (!bounds.empty() && std::fabs(double{before[i]} - double{now[i]}) <= bounds[i]) continue;
    ++difference.differing;
    const auto row = static_cast<int32_t>(i / static_cast<size_t>(width));
    const auto element = static_cast<int32_t>(i % static_cast<size_t>(width));
    if (difference.rows.empty() || difference.rows.back().row != row) {
      difference.rows.push_back({.row = row, .first = element, .before = before[i], .now = now[i]});
    }
    ++difference.rows.back().differing;
    difference.rows.back().last = element;
  }
  return difference;
}

}  // namespace lockstep
