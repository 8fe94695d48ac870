#include "golden/cause/shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <set>

#include "caches/codec.h"
#include "caches/digest.h"

namespace lockstep {
namespace {

using Elements = std::vector<size_t>;

double Tolerance(const CausePlace& place, size_t i) {
  return place.bounds.empty() ? 0 : place.bounds[i];
}

size_t Width(const CausePlace& place) { return static_cast<size_t>(place.width); }

bool IsCacheStage(Stage stage) {
  return stage == Stage::kCacheKey || stage == Stage::kCacheValue || stage == Stage::kEmbedding;
}

CauseVerdict Whole(Cause cause, std::string evidence) { return {cause, std::move(evidence), 1}; }

std::optional<CauseVerdict> Unwritten(const CausePlace& place, const Elements& differing) {
  if (differing.size() < 2) return std::nullopt;
  const auto all = [&](auto&& is) { return std::ranges::all_of(differing, is); };
  if (all([&](size_t i) { return place.is[i] == 0; })) {
    return Whole(Cause::kUnwritten,
                 fmt::format("all {} elements that differ are zero", differing.size()));
  }
  if (all([&](size_t i) { return std::isnan(place.is[i]); })) {
    return Whole(Cause::kUnwritten,
                 fmt::format("all {} elements that differ are NaN, as poisoned memory reads",
                             differing.size()));
  }
  return std::nullopt;
}

std::optional<CauseVerdict> SingleBit(const CausePlace& place, const Elements& differing) {
  if (differing.size() != 1) return std::nullopt;
  const size_t i = differing[0];
  const uint32_t bits = std::bit_cast<uint32_t>(place.is[i]);
  const auto turned = [&](uint32_t mask) {
    return std::fabs(std::bit_cast<float>(bits ^ mask) - place.should[i]) <= Tolerance(place, i);
  };
  const auto at = fmt::format("of element {} in row {}", i % Width(place), i / Width(place));
  for (uint32_t bit = 0; bit < 32; ++bit) {
    if (turned(uint32_t{1} << bit)) {
      return Whole(Cause::kSingleBit, fmt::format("bit {} {} is turned", bit, at));
    }
  }
  if (!place.bounds.empty()) return std::nullopt;
  const uint32_t other = bits ^ std::bit_cast<uint32_t>(static_cast<float>(place.should[i]));
  for (uint32_t byte = 0; byte < 4; ++byte) {
    if ((other & ~(uint32_t{0xff} << (8 * byte))) == 0) {
      return Whole(Cause::kSingleBit, fmt::format("bits of byte {} {} are turned", byte, at));
    }
  }
  return std::nullopt;
}

// What a ratio could be.
std::string RatioName(double ratio, int32_t head_dim) {
  const auto is = [&](double value) { return std::fabs(ratio / value - 1) < 1e-4; };
  int exponent = 0;
  if (std::fabs(std::frexp(ratio, &exponent) - 0.5) < 1e-5) {
    return fmt::format("{:.6g}, a power of two", ratio);
  }
  if (head_dim > 0 && is(std::sqrt(head_dim))) {
    return fmt::format("{:.6g}, the root of the head dimension", ratio);
  }
  if (head_dim > 0 && is(1 / std::sqrt(head_dim))) {
    return fmt::format("{:.6g}, one over the root of the head dimension", ratio);
  }
  return fmt::format("{:.6g}", ratio);
}

// The common ratio of some elements, those that are too small to tell apart left out; nullopt when
// there is none. Counts those that are told apart.
std::optional<double> CommonRatio(const CausePlace& place, std::span<const size_t> elements,
                                  int* told) {
  std::optional<double> common;
  double common_error = 0;
  for (size_t i : elements) {
    if (std::isnan(place.is[i]) || place.should[i] == 0) return std::nullopt;
    const double ratio = place.is[i] / place.should[i];
    const double magnitude = std::fabs(place.should[i]);
    const double error = std::fabs(ratio) * (1e-5 + 4 * Tolerance(place, i) / magnitude);
    if (error > 0.01 * std::fabs(ratio)) continue;
    ++*told;
    if (!common) {
      common = ratio;
      common_error = error;
    } else if (std::fabs(ratio - *common) > error + common_error) {
      return std::nullopt;
    }
  }
  return common;
}

// A ratio that is common to each group of elements: everything, a row, a head, a block of 32.
std::optional<CauseVerdict> WrongScale(const CausePlace& place, const Elements& differing) {
  const size_t width = Width(place);
  const auto heads = static_cast<size_t>(place.head_dim);
  const std::pair<size_t, std::string_view> kGroups[] = {
      {place.is.size(), "throughout"},
      {width, "in each row"},
      {heads > 0 ? heads : width, "in each head"},
      {width % 32 == 0 ? 32 : width, "in each block of 32"}};
  for (const auto& [size, where] : kGroups) {
    int told = 0;
    std::set<size_t> groups;
    std::optional<double> first;
    bool holds = true;
    for (size_t begin = 0; begin < differing.size() && holds;) {
      size_t end = begin;
      while (end < differing.size() && differing[end] / size == differing[begin] / size) ++end;
      const auto ratio =
          CommonRatio(place, std::span(differing).subspan(begin, end - begin), &told);
      holds = ratio.has_value();
      if (!first) first = ratio;
      groups.insert(differing[begin] / size);
      begin = end;
    }
    // A ratio of one element says nothing.
    if (!holds || !first || std::fabs(*first - 1) < 1e-4 ||
        told < 4 * static_cast<int>(groups.size()))
      continue;
    const std::string ratio = groups.size() == 1 || size == place.is.size()
                                  ? RatioName(*first, place.head_dim)
                                  : fmt::format("{:.6g} in the first", *first);
    // What weighs every row of V alike is the sum of the weights.
    if (place.stage == Stage::kAttention && size == heads) {
      return Whole(Cause::kMask,
                   fmt::format("each head is off by a ratio of its own, {}: the softmax's sum runs "
                               "over other rows than its weights",
                               ratio));
    }
    return Whole(Cause::kWrongScale,
                 fmt::format("what is divided by what should be is constant {}: {}", where, ratio));
  }
  return std::nullopt;
}

// Codes of a quantized row that are off by whole steps of the block's scale.
std::optional<CauseVerdict> OtherCodes(const CausePlace& place, const Elements& differing) {
  const double codes = place.row_type == RowType::kQ8_0   ? 127
                       : place.row_type == RowType::kQ4_0 ? 8
                                                          : 0;
  if (codes == 0) return std::nullopt;
  int64_t most = 0;
  bool same_elements = true;
  bool steps = true;
  for (size_t i : differing) {
    const size_t begin = i / 32 * 32;
    double largest = 0;
    for (size_t k = begin; k < begin + 32; ++k) {
      largest = std::max(largest, std::fabs(place.should[k]));
    }
    const double off = (place.is[i] - place.should[i]) / (largest / codes);
    steps = steps && std::fabs(off - std::nearbyint(off)) < 0.02 && std::fabs(off) < 64;
    if (std::isfinite(off))
      most = std::max(most, static_cast<int64_t>(std::llround(std::fabs(off))));
    std::multiset<float> now, then;
    for (size_t k = begin; k < begin + 32; ++k) {
      now.insert(place.is[k]);
      then.insert(static_cast<float>(place.should[k]));
    }
    same_elements = same_elements && now == then;
  }
  if (same_elements) {
    return Whole(Cause::kQuantization, "blocks of 32 hold the right elements in another order");
  }
  if (!steps) return std::nullopt;
  return Whole(Cause::kQuantization,
               fmt::format("{} elements are off by whole codes of their block, {} at most",
                           differing.size(), most));
}

// Pairs that kept their lengths.
std::optional<CauseVerdict> OtherAngles(const CausePlace& place, const Elements& differing) {
  if (place.stage != Stage::kQueryRope && place.stage != Stage::kKeyRope) return std::nullopt;
  const auto head = static_cast<size_t>(place.head_dim);
  if (head == 0) return std::nullopt;
  std::set<size_t> pairs;
  for (size_t i : differing) {
    const size_t a = i / 2 * 2;
    const double is = std::hypot(double{place.is[a]}, double{place.is[a + 1]});
    const double should = std::hypot(place.should[a], place.should[a + 1]);
    const double error = Tolerance(place, a) + Tolerance(place, a + 1) + 1e-6 * should;
    if (!(std::fabs(is - should) <= error)) return std::nullopt;
    pairs.insert(a % head / 2);
  }
  if (pairs.size() < 2) return std::nullopt;
  return Whole(Cause::kRopeFrequencies,
               fmt::format("pairs keep their lengths and are turned by other angles, {}",
                           pairs.contains(0) ? "the first pair too"
                                             : "but for the first pair, which no base changes"));
}

// All elements from one index on, the same in every row that differs.
std::optional<CauseVerdict> TruncatedTail(const CausePlace& place, const Elements& differing) {
  const size_t width = Width(place);
  const size_t first = differing[0] % width;
  std::set<size_t> rows;
  for (size_t i : differing) {
    if (i % width < first) return std::nullopt;
    rows.insert(i / width);
  }
  if (first < width / 2 || differing.size() != rows.size() * (width - first)) return std::nullopt;
  return Whole(Cause::kTruncatedTail,
               fmt::format("in {} rows all elements from {} on differ, and none before",
                           rows.size(), first));
}

}  // namespace

bool Differs(const CausePlace& place, size_t i) {
  const auto should = static_cast<float>(place.should[i]);
  if (CanonicalBits(place.is[i]) == CanonicalBits(should)) return false;
  if (place.bounds.empty()) return true;
  return !(std::fabs(place.is[i] - place.should[i]) <= place.bounds[i]);
}

std::optional<CauseVerdict> CauseOfRounding(const CausePlace& place, const Elements& differing) {
  if (differing.empty()) {
    return Whole(
        Cause::kReductionOrder,
        "the bits differ, and every element is within the rounding bound of its stage; or the "
        "golden was recorded of an engine that was wrong here");
  }
  if (IsCacheStage(place.stage) || !place.bounds.empty()) return std::nullopt;
  int positive = 0;
  double worst = 0;
  for (size_t i : differing) {
    const auto row =
        place.should.begin() + static_cast<std::ptrdiff_t>(i / Width(place) * Width(place));
    double largest = 0;
    std::for_each_n(row, place.width, [&](double v) { largest = std::max(largest, std::fabs(v)); });
    const double units = std::fabs(place.is[i] - place.should[i]) / (largest * 0x1p-24);
    if (!(units <= 64)) return std::nullopt;
    worst = std::max(worst, units);
    positive += place.is[i] > place.should[i] ? 1 : 0;
  }
  return Whole(
      Cause::kReductionOrder,
      fmt::format("{} elements differ by rounding, by {:.2g} units of the row's largest at "
                  "most, {} upwards and {} downwards",
                  differing.size(), worst, positive,
                  static_cast<int>(differing.size()) - positive));
}

std::optional<CauseVerdict> CauseOfShape(const CausePlace& place, const Elements& differing) {
  for (const auto& shape :
       {Unwritten, SingleBit, WrongScale, OtherCodes, OtherAngles, TruncatedTail}) {
    if (std::optional<CauseVerdict> verdict = shape(place, differing)) return verdict;
  }
  return std::nullopt;
}

}  // namespace lockstep
