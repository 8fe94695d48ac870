#include "oracle/difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "caches/check.h"
#include "caches/digest.h"

namespace lockstep {
namespace {

// Maps binary32 to integers so that neighbours differ by one: negative values mirrored below zero.
int64_t Ordered(float value) {
  const auto bits = std::bit_cast<int32_t>(value);
  return bits >= 0 ? int64_t{bits} : -1 - int64_t{bits & 0x7fffffff};
}

std::string Value(float value) {
  return fmt::format("0x{:08x} ({:.9g})", std::bit_cast<uint32_t>(value), value);
}

// The rows begin at position `first`.
std::optional<Difference> RowDifference(std::span<const float> subject,
                                        std::span<const float> oracle, int32_t first,
                                        int64_t stride, const char* place) {
  const size_t common = std::min(subject.size(), oracle.size());
  const int64_t index = FirstFloatDifference(subject.first(common), oracle.first(common));
  if (index < 0) return std::nullopt;
  Difference difference;
  difference.kind = Difference::Kind::kCacheRow;
  difference.place = place;
  difference.position = first + static_cast<int32_t>(index / stride);
  difference.element = index % stride;
  difference.subject = subject[static_cast<size_t>(index)];
  difference.oracle = oracle[static_cast<size_t>(index)];
  return difference;
}

Difference ShapeDifference(const RecordingTrace::Entry& entry, std::string detail) {
  Difference difference;
  difference.kind = Difference::Kind::kStage;
  difference.layer = entry.layer;
  difference.place = StageName(entry.stage);
  difference.detail = std::move(detail);
  return difference;
}

}  // namespace

std::optional<uint64_t> UlpDistance(float a, float b) {
  if (CanonicalBits(a) == CanonicalBits(b)) return 0;
  if (a != a || b != b) return std::nullopt;
  const int64_t distance = Ordered(a) - Ordered(b);
  return static_cast<uint64_t>(distance < 0 ? -distance : distance);
}

std::string Difference::Sentence() const {
  std::string text = fmt::format("step {}{}", step, step == 0 ? " (prefill)" : "");
  if (layer >= 0) text += fmt::format(", layer {}", layer);
  text += ", " + place;
  if (position >= 0) text += fmt::format(", position {}", position);
  if (kind == Kind::kBetweenSteps) text += ", changed after it was written";
  if (element >= 0) {
    const std::optional<uint64_t> ulps = UlpDistance(subject, oracle);
    text += fmt::format(", element {}: subject {} against oracle {}, {}", element, Value(subject),
                        Value(oracle),
                        ulps ? fmt::format("{} ulp apart", *ulps) : "one is not a number");
  }
  if (!detail.empty()) text += ": " + detail;
  return text;
}

int64_t FirstFloatDifference(std::span<const float> subject, std::span<const float> oracle) {
  LS_CHECK(subject.size() == oracle.size(), "{} against {} floats", subject.size(), oracle.size());
  for (size_t i = 0; i < subject.size(); ++i) {
    if (CanonicalBits(subject[i]) != CanonicalBits(oracle[i])) return static_cast<int64_t>(i);
  }
  return -1;
}

std::optional<Difference> FirstRowDifference(const KvCache& subject, const KvCache& oracle,
                                             int32_t layer) {
  const int64_t stride = subject.geometry().kv_stride();
  KvView view;
  subject.View(layer, &view);
  const KvRows a = DecodeRows(view, stride);
  oracle.View(layer, &view);
  const KvRows b = DecodeRows(view, stride);
  // Those that both still show.
  const int32_t first = std::max(a.first, b.first);
  const auto from = [&](const KvRows& rows, const std::vector<float>& half) {
    const auto skipped = static_cast<size_t>((first - rows.first) * stride);
    return std::span(half).subspan(std::min(skipped, half.size()));
  };
  auto difference = RowDifference(from(a, a.keys), from(b, b.keys), first, stride, "K row");
  if (!difference) {
    difference = RowDifference(from(a, a.values), from(b, b.values), first, stride, "V row");
  }
  if (difference) difference->layer = layer;
  return difference;
}

std::optional<Difference> FirstTraceDifference(std::span<const RecordingTrace::Entry> subject,
                                               std::span<const RecordingTrace::Entry> oracle) {
  const size_t common = std::min(subject.size(), oracle.size());
  for (size_t i = 0; i < common; ++i) {
    const RecordingTrace::Entry& a = subject[i];
    const RecordingTrace::Entry& b = oracle[i];
    if (a.layer != b.layer || a.stage != b.stage || a.positions != b.positions ||
        a.rows.size() != b.rows.size()) {
      return ShapeDifference(
          a, fmt::format("the oracle computed {} of layer {} here", StageName(b.stage), b.layer));
    }
    const int64_t index = FirstFloatDifference(a.rows, b.rows);
    if (index < 0) continue;
    Difference difference;
    difference.kind = Difference::Kind::kStage;
    difference.layer = a.layer;
    difference.place = StageName(a.stage);
    const auto row = static_cast<size_t>(index / a.width);
    difference.position = row < a.positions.size() ? a.positions[row] : -1;
    difference.element = index % a.width;
    difference.subject = a.rows[static_cast<size_t>(index)];
    difference.oracle = b.rows[static_cast<size_t>(index)];
    return difference;
  }
  if (subject.size() != oracle.size()) {
    const bool subject_longer = subject.size() > common;
    return ShapeDifference(
        subject_longer ? subject[common] : oracle[common],
        subject_longer ? "only the subject computed it" : "only the oracle computed it");
  }
  return std::nullopt;
}

}  // namespace lockstep
