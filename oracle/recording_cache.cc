#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "caches/check.h"
#include "oracle/decorators.h"

namespace lockstep {
namespace {

std::string PositionsText(std::span<const int32_t> positions) {
  if (positions.empty()) return "none";
  if (positions.size() == 1) return fmt::format("{}", positions[0]);
  for (size_t i = 1; i < positions.size(); ++i) {
    if (int64_t{positions[i]} - positions[i - 1] != 1) {
      return fmt::format("[{}]", fmt::join(positions, ","));
    }
  }
  return fmt::format("{}..{}", positions.front(), positions.back());
}

CacheRecord MakeRecord(CacheOp op, int32_t layer, std::span<const int32_t> positions) {
  CacheRecord record;
  record.op = op;
  record.layer = layer;
  record.positions.assign(positions.begin(), positions.end());
  return record;
}

}  // namespace

std::string_view CacheOpName(CacheOp op) {
  switch (op) {
    case CacheOp::kUpdate:
      return "update";
    case CacheOp::kReserve:
      return "reserve";
    case CacheOp::kCommit:
      return "commit";
    case CacheOp::kRollback:
      return "rollback";
    case CacheOp::kClear:
      return "clear";
    case CacheOp::kFork:
      return "fork";
    case CacheOp::kLoadState:
      return "load";
    case CacheOp::kView:
      return "view";
    case CacheOp::kViewForQuery:
      return "view-for-query";
  }
  LS_CHECK(false, "cache op {}", static_cast<int>(op));
  return {};
}

std::string_view CacheOutcomeName(CacheOutcome outcome) {
  switch (outcome) {
    case CacheOutcome::kDone:
      return "done";
    case CacheOutcome::kGranted:
      return "granted";
    case CacheOutcome::kRefused:
      return "refused";
    case CacheOutcome::kThrew:
      return "threw";
  }
  LS_CHECK(false, "cache outcome {}", static_cast<int>(outcome));
  return {};
}

std::string CacheRecordText(const CacheRecord& record) {
  std::string text(CacheOpName(record.op));
  if (record.layer >= 0) text += fmt::format(" layer {}", record.layer);
  switch (record.op) {
    case CacheOp::kUpdate:
    case CacheOp::kReserve:
    case CacheOp::kCommit:
    case CacheOp::kViewForQuery:
      text += fmt::format(" positions {}", PositionsText(record.positions));
      break;
    case CacheOp::kRollback:
      text += fmt::format(" to {}", record.length);
      break;
    default:
      break;
  }
  if (record.keys != Digest{} || record.values != Digest{}) {
    text += fmt::format(" keys {} values {}", record.keys.Hex().substr(0, 8),
                        record.values.Hex().substr(0, 8));
  }
  text += fmt::format(" {}", CacheOutcomeName(record.outcome));
  if (!record.error.empty()) text += fmt::format(": {}", record.error);
  return text;
}

RecordingCache::RecordingCache(KvCache& inner, RecordingOptions options)
    : ForwardingCache(inner),
      options_(options),
      slots_(static_cast<size_t>(inner.geometry().num_layers)) {}

RecordingCache::RecordingCache(std::unique_ptr<KvCache> inner, RecordingOptions options)
    : ForwardingCache(std::move(inner)),
      options_(options),
      slots_(static_cast<size_t>(geometry().num_layers)) {}

template <typename Call>
void RecordingCache::Record(CacheRecord record, Call&& call) const {
  try {
    call(record);
  } catch (const std::exception& e) {
    record.outcome = CacheOutcome::kThrew;
    record.error = e.what();
    records_.push_back(std::move(record));
    throw;
  }
  records_.push_back(std::move(record));
}

void RecordingCache::SetRows(CacheRecord* record, std::span<const float> keys,
                             std::span<const float> values) const {
  record->keys = DigestOfFloats(keys);
  record->values = DigestOfFloats(values);
  if (!options_.rows) return;
  record->key_rows.assign(keys.begin(), keys.end());
  record->value_rows.assign(values.begin(), values.end());
}

void RecordingCache::View(int32_t layer, KvView* view) const {
  if (!options_.reads) return inner().View(layer, view);
  Record(MakeRecord(CacheOp::kView, layer, {}), [&](CacheRecord&) { inner().View(layer, view); });
}

void RecordingCache::ViewForQuery(int32_t layer, int32_t position, KvView* view) const {
  if (!options_.reads) return inner().ViewForQuery(layer, position, view);
  Record(MakeRecord(CacheOp::kViewForQuery, layer, std::span(&position, 1)),
         [&](CacheRecord&) { inner().ViewForQuery(layer, position, view); });
}

void RecordingCache::Update(int32_t layer, std::span<const int32_t> positions,
                            std::span<const float> keys, std::span<const float> values) {
  Record(MakeRecord(CacheOp::kUpdate, layer, positions), [&](CacheRecord& record) {
    SetRows(&record, keys, values);
    inner().Update(layer, positions, keys, values);
    slots_[static_cast<size_t>(layer)].reset();
  });
}

std::optional<KvSlot> RecordingCache::TryReserveSlot(int32_t layer,
                                                     std::span<const int32_t> positions) {
  std::optional<KvSlot> slot;
  Record(MakeRecord(CacheOp::kReserve, layer, positions), [&](CacheRecord& record) {
    slot = inner().TryReserveSlot(layer, positions);
    record.outcome = slot ? CacheOutcome::kGranted : CacheOutcome::kRefused;
    if (slot) {
      OpenSlot& open = slots_[static_cast<size_t>(layer)].emplace();
      open.positions.assign(positions.begin(), positions.end());
      open.slot = *slot;
    }
  });
  return slot;
}

void RecordingCache::CommitSlot(int32_t layer, std::span<const int32_t> positions) {
  Record(MakeRecord(CacheOp::kCommit, layer, positions), [&](CacheRecord& record) {
    const auto known = layer >= 0 && layer < geometry().num_layers;
    std::optional<OpenSlot>* open = known ? &slots_[static_cast<size_t>(layer)] : nullptr;
    const bool matches =
        open != nullptr && open->has_value() && std::ranges::equal((*open)->positions, positions);
    // The writer is done, and the spans end with the commit: the rows are read just before it.
    if (matches) SetRows(&record, (*open)->slot.keys, (*open)->slot.values);
    inner().CommitSlot(layer, positions);
    if (matches) open->reset();
  });
}

void RecordingCache::Rollback(int32_t length) {
  CacheRecord record = MakeRecord(CacheOp::kRollback, -1, {});
  record.length = length;
  Record(std::move(record), [&](CacheRecord&) { inner().Rollback(length); });
  for (auto& slot : slots_) slot.reset();
}

void RecordingCache::Clear() {
  Record(MakeRecord(CacheOp::kClear, -1, {}), [&](CacheRecord&) { inner().Clear(); });
  for (auto& slot : slots_) slot.reset();
}

std::unique_ptr<KvCache> RecordingCache::Fork() {
  std::unique_ptr<KvCache> fork;
  Record(MakeRecord(CacheOp::kFork, -1, {}), [&](CacheRecord&) { fork = inner().Fork(); });
  for (auto& slot : slots_) slot.reset();
  return std::make_unique<RecordingCache>(std::move(fork), options_);
}

void RecordingCache::LoadState(StateReader* reader) {
  Record(MakeRecord(CacheOp::kLoadState, -1, {}), [&](CacheRecord&) { inner().LoadState(reader); });
  for (auto& slot : slots_) slot.reset();
}

}  // namespace lockstep
