#include "golden/explain/known_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "caches/codec.h"

namespace lockstep {
namespace {

std::vector<float> RowOf(const RecordingTrace::Entry& entry, size_t row) {
  const auto begin = entry.rows.begin() + static_cast<std::ptrdiff_t>(row) * entry.width;
  return {begin, begin + entry.width};
}

std::vector<float> ThroughStorage(RowType type, const std::vector<float>& row) {
  std::vector<std::byte> stored(static_cast<size_t>(RowBytes(type, std::ssize(row))));
  EncodeRow(type, row, stored);
  std::vector<float> read(row.size());
  DecodeRow(type, stored, read);
  return read;
}

class Collector {
 public:
  Collector(const CacheSpec& spec, const HeldPlace& place) : spec_(spec), place_(place) {}

  // One row that some step computed or wrote.
  void Add(const RecordedStep& step, bool latest, const RecordingTrace::Entry& entry, size_t row) {
    const int32_t position = entry.positions[row];
    const int32_t at = IndexOf(position);
    const bool own = step.sequence == place_.sequence && entry.layer == place_.layer;
    switch (entry.stage) {
      case Stage::kCacheKey:
      case Stage::kCacheValue:
        return AddHeld(step, latest, entry, row, own ? at : -1);
      case Stage::kKey:
        if (own && latest && at >= 0 && !place_.values) {
          Keep(Cause::kNotRotated, "K before RoPE", RowOf(entry, row), at);
        }
        return;
      case Stage::kKeyRope:
      case Stage::kValue:
        if (entry.layer == place_.layer && at >= 0 &&
            (entry.stage == Stage::kValue) == place_.values) {
          AddStorage(RowOf(entry, row), at, own && latest);
        }
        return;
      default:
        return;
    }
  }

  std::vector<KnownRow> Take() { return std::move(rows_); }

 private:
  int32_t IndexOf(int32_t position) const {
    const auto found = std::ranges::find(place_.positions, position);
    return found == place_.positions.end() ? -1
                                           : static_cast<int32_t>(found - place_.positions.begin());
  }

  void Keep(Cause cause, std::string says, std::vector<float> row, int32_t at) {
    rows_.push_back({cause, std::move(says), std::move(row), at});
  }

  void AddHeld(const RecordedStep& step, bool latest, const RecordingTrace::Entry& entry,
               size_t row, int32_t at) {
    const bool values = entry.stage == Stage::kCacheValue;
    const std::string name =
        fmt::format("{} of position {}", values ? "V" : "K", entry.positions[row]);
    if (values != place_.values) {
      const bool other_layer = entry.layer != place_.layer;
      Keep(Cause::kKvSwapped, other_layer ? fmt::format("{} in layer {}", name, entry.layer) : name,
           RowOf(entry, row), -1);
    } else if (step.sequence != place_.sequence) {
      Keep(Cause::kOtherSequence,
           fmt::format("{} in layer {} of sequence {}", name, entry.layer, step.sequence),
           RowOf(entry, row), -1);
    } else if (entry.layer != place_.layer) {
      Keep(Cause::kShiftedRow, fmt::format("{} in layer {}", name, entry.layer), RowOf(entry, row),
           -1);
    } else if (at >= 0 && !latest) {
      Keep(Cause::kStaleRow,
           fmt::format("what operation {} wrote to position {}", step.op, entry.positions[row]),
           RowOf(entry, row), at);
      Keep(Cause::kShiftedRow, name, RowOf(entry, row), -1);
    } else {
      rows_.push_back({Cause::kShiftedRow, name, RowOf(entry, row), -1, at});
    }
  }

  // Exact rows where stored ones should be, and the reverse; or rows as they are stored now, which
  // is not how they should be. Rows that came here by a fork are known by what should be here.
  void AddStorage(const std::vector<float>& row, int32_t at, bool own) {
    const RowType type = place_.values ? spec_.value_type : spec_.key_type;
    if (type == RowType::kF32) return;
    const auto width = std::ssize(row);
    const auto should = place_.should.subspan(static_cast<size_t>(at * width), row.size());
    const bool exact = std::ranges::equal(should, row);
    std::vector<float> stored = ThroughStorage(type, row);
    if (!own && !exact && !std::ranges::equal(should, stored)) return;
    const std::string name(RowTypeName(type));
    Keep(exact ? Cause::kWindow : Cause::kQuantization, "rows stored as " + name, std::move(stored),
         at);
    Keep(spec_.window > 0 ? Cause::kWindow : Cause::kQuantization,
         "rows that were never stored as " + name, row, at);
  }

  const CacheSpec& spec_;
  const HeldPlace& place_;
  std::vector<KnownRow> rows_;
};

}  // namespace

std::vector<KnownRow> RowsAround(const ValuedRun& run, const CacheSpec& spec,
                                 const HeldPlace& place) {
  Collector collector(spec, place);
  const std::vector<RecordedStep>& steps = run.recording.steps;
  // The last step that wrote a position of this sequence: what it wrote belongs there.
  const auto is_latest = [&](size_t index, int32_t position) {
    if (place.step >= 0) return static_cast<int32_t>(index) == place.step;
    for (size_t later = index + 1; later < steps.size(); ++later) {
      if (steps[later].op > place.last_op) break;
      if (steps[later].sequence == place.sequence &&
          std::ranges::count(steps[later].positions, position) > 0) {
        return false;
      }
    }
    return true;
  };
  for (size_t i = 0; i < steps.size() && steps[i].op <= place.last_op; ++i) {
    if (place.step >= 0 && static_cast<int32_t>(i) > place.step) break;
    for (const RecordingTrace::Entry& entry : steps[i].entries) {
      for (size_t row = 0; row < entry.positions.size(); ++row) {
        collector.Add(steps[i], is_latest(i, entry.positions[row]), entry, row);
      }
    }
  }
  return collector.Take();
}

}  // namespace lockstep
