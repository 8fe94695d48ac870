#include "properties/runner/write_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "caches/device_kv.h"

namespace lockstep::runner {
namespace {

constexpr int32_t kExactRows = -1;  // in place of a position

// Blocks that are free are forbidden under AddressSanitizer, and read here all the same. Volatile,
// so that no call of a checked memcpy is made of it.
__attribute__((no_sanitize("address"))) void CopyBytes(const WatchedMemory& memory,
                                                       std::vector<std::byte>* into) {
  into->resize(memory.bytes);
  const auto* words = reinterpret_cast<const volatile uint64_t*>(memory.data);
  size_t i = 0;
  for (; i + sizeof(uint64_t) <= memory.bytes; i += sizeof(uint64_t)) {
    const uint64_t word = words[i / sizeof(uint64_t)];
    std::memcpy(into->data() + i, &word, sizeof word);
  }
  const volatile std::byte* bytes = memory.data;
  for (; i < memory.bytes; ++i) (*into)[i] = bytes[i];
}

}  // namespace

void WriteSet::AddView(const Sequence& s, int32_t layer, const KvView& view,
                       std::vector<const std::byte*>* last, std::vector<Place>* places) {
  const int64_t stride = s.subject->geometry().kv_stride();
  for (const KvSegment& segment : view.segments) {
    const bool exact =
        segment.key_type != s.subject->key_type() || segment.value_type != s.subject->value_type();
    const int64_t keys = RowBytes(segment.key_type, stride);
    const int64_t values = RowBytes(segment.value_type, stride);
    for (int32_t row = 0; row < segment.count; ++row) {
      const std::byte* key = segment.keys + row * keys;
      const std::byte* value = segment.values + row * values;
      const int32_t p = segment.first + row;
      if (std::exchange((*last)[static_cast<size_t>(p)], key) == key) continue;
      places->push_back({key, key + keys, s.id, layer, p, 'K', exact});
      places->push_back({value, value + values, s.id, layer, p, 'V', exact});
    }
  }
}

void WriteSet::AddRowsOnDevice(const Sequence& s, int32_t layer, std::vector<Place>* places) {
  const DeviceKv* device = s.subject->device_kv(layer);
  if (device == nullptr) return;
  const DeviceKvSlot rows = device->RowsOnDevice(layer);
  const int64_t stride = s.subject->geometry().kv_stride();
  const auto add = [&](Global<uint8_t> memory, RowType type, char half) {
    const auto* begin = reinterpret_cast<const std::byte*>(memory.data);
    const int64_t bytes = RowBytes(type, stride);
    for (int32_t p = 0; p < s.subject->length(layer); ++p) {
      places->push_back({begin + p * bytes, begin + (p + 1) * bytes, s.id, layer, p, half, false});
    }
  };
  add(rows.keys, rows.key_type, 'K');
  add(rows.values, rows.value_type, 'V');
  // Exact rows come and go within memory of the layer's own.
  for (const auto& [memory, half] : {std::pair(rows.exact_keys, 'K'), {rows.exact_values, 'V'}}) {
    const auto* begin = reinterpret_cast<const std::byte*>(memory.data);
    const auto* end = reinterpret_cast<const std::byte*>(memory.data + memory.size);
    if (memory.size > 0) places->push_back({begin, end, s.id, layer, kExactRows, half, true});
  }
}

std::vector<WriteSet::Place> WriteSet::PlacesOf(std::span<const Sequence> sequences) {
  std::vector<Place> places;
  std::vector<const std::byte*> last;  // by position: where the view before had the row
  KvView view;
  for (const Sequence& s : sequences) {
    for (int32_t layer = 0; layer < s.subject->geometry().num_layers; ++layer) {
      AddRowsOnDevice(s, layer, &places);
      last.assign(static_cast<size_t>(s.subject->max_length()), nullptr);
      s.subject->View(layer, &view);
      AddView(s, layer, view, &last, &places);
      if (!s.subject->view_depends_on_query()) continue;
      const int32_t length = view.length;
      for (int32_t query = 0; query < length; ++query) {
        s.subject->ViewForQuery(layer, query, &view);
        AddView(s, layer, view, &last, &places);
      }
    }
  }
  std::ranges::sort(places);
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

void WriteSet::Before(std::span<const Sequence> sequences) {
  rows_ = PlacesOf(sequences);  // and what is copied to be read is up to date
  copies_.resize(watch_.live().size());
  for (size_t i = 0; i < copies_.size(); ++i) {
    copies_[i].memory = watch_.live()[i];
    CopyBytes(copies_[i].memory, &copies_[i].bytes);
  }
  slots_.clear();
  hides_rows_.clear();
  for (const Sequence& s : sequences) {
    hides_rows_.emplace_back(s.id, s.subject->view_depends_on_query());
    for (size_t layer = 0; layer < s.open.size(); ++layer) {
      if (s.open[layer].positions.empty()) continue;
      for (const std::span<float> half :
           {s.open[layer].subject.keys, s.open[layer].subject.values}) {
        const auto bytes = std::as_bytes(half);
        slots_.push_back(
            {bytes.data(), bytes.data() + bytes.size(), s.id, static_cast<int32_t>(layer)});
      }
    }
  }
}

// Whether the rule names the row.
bool WriteSet::Named(const WriteRule& rule, const Place& place) {
  if (place.sequence != rule.sequence) return false;
  switch (rule.kind) {
    case WriteRule::Kind::kRows:
      return place.layer == rule.layer &&
             std::ranges::find(rule.positions, place.position) != rule.positions.end();
    case WriteRule::Kind::kRowsFrom:
      return place.position >= rule.from;
    case WriteRule::Kind::kSequence:
      return true;
    default:
      return false;
  }
}

// Whether the operation ends the reservation that the slot belongs to.
bool WriteSet::OwnSlot(const WriteRule& rule, const Place& slot) {
  const bool all_layers = rule.kind != WriteRule::Kind::kRows;
  return slot.sequence == rule.sequence && (all_layers || slot.layer == rule.layer);
}

void WriteSet::AllowPieces(const WriteRule& rule, std::span<const Place> now,
                           const WatchedMemory& memory, Ranges* allowed) const {
  std::vector<bool> held(memory.bytes / memory.piece);
  const auto hold = [&](const Place& place) {
    if (place.begin < memory.data || place.begin >= memory.data + memory.bytes) return;
    held[static_cast<size_t>(place.begin - memory.data) / memory.piece] = true;
  };
  for (const Place& row : rows_) {
    if (row.sequence != rule.sequence || std::ranges::binary_search(now, row)) hold(row);
  }
  for (const Place& slot : slots_) {
    if (!OwnSlot(rule, slot)) hold(slot);
  }
  for (size_t piece = 0; piece < held.size(); ++piece) {
    const std::byte* begin = memory.data + piece * memory.piece;
    if (!held[piece]) allowed->emplace_back(begin, begin + memory.piece);
  }
}

bool WriteSet::HoldsExactRowsAlone(const WriteRule& rule, std::span<const Place> now,
                                   const WatchedMemory& memory) const {
  bool any = false;
  for (const std::span<const Place> rows : {std::span<const Place>(rows_), now}) {
    for (const Place& row : rows) {
      if (row.begin < memory.data || row.begin >= memory.data + memory.bytes) continue;
      const bool own = row.sequence == rule.sequence &&
                       (rule.kind != WriteRule::Kind::kRows || row.layer == rule.layer);
      if (!row.exact || !own) return false;
      any = true;
    }
  }
  return any;
}

WriteSet::Ranges WriteSet::Allowed(const WriteRule& rule, std::span<const Place> now) const {
  Ranges allowed;
  if (rule.kind == WriteRule::Kind::kNothing) return allowed;
  if (rule.kind == WriteRule::Kind::kSlot) {
    for (const std::span<float> half : {rule.slot.keys, rule.slot.values}) {
      const auto bytes = std::as_bytes(half);
      allowed.emplace_back(bytes.data(), bytes.data() + bytes.size());
    }
    return allowed;
  }
  for (const std::span<const Place> rows : {std::span<const Place>(rows_), now}) {
    for (const Place& row : rows) {
      if (Named(rule, row)) allowed.emplace_back(row.begin, row.end);
    }
  }
  for (const Place& slot : slots_) {  // what was reserved and never committed
    if (OwnSlot(rule, slot)) allowed.emplace_back(slot.begin, slot.end);
  }
  for (const Copy& copy : copies_) {
    if (copy.memory.piece > 0) AllowPieces(rule, now, copy.memory, &allowed);
    if (HoldsExactRowsAlone(rule, now, copy.memory)) {
      allowed.emplace_back(copy.memory.data, copy.memory.data + copy.memory.bytes);
    }
  }
  return allowed;
}

std::string WriteSet::Describe(const WatchedMemory& memory, size_t offset) const {
  const std::byte* at = memory.data + offset;
  for (const Place& row : rows_) {
    if (at < row.begin || at >= row.end) continue;
    return fmt::format("byte {} of {} row {} of layer {} of sequence {} changed", at - row.begin,
                       row.half, row.position, row.layer, row.sequence);
  }
  return fmt::format("byte {} of buffer {}, which holds no row, changed", offset, memory.serial);
}

std::optional<std::string> WriteSet::After(const WriteRule& rule,
                                           std::span<const Sequence> sequences) {
  std::vector<std::byte> bytes;
  std::optional<Ranges> allowed;
  const auto copies_rows = [](const Sequence& s) {
    for (int32_t layer = 0; layer < s.subject->geometry().num_layers; ++layer) {
      if (s.subject->device_kv(layer) != nullptr) return true;
    }
    return false;
  };
  if (std::ranges::any_of(sequences, copies_rows)) allowed = Allowed(rule, PlacesOf(sequences));
  bool hides = false;
  for (const auto& [id, hiding] : hides_rows_) hides = hides || (id == rule.sequence && hiding);
  if (rule.kind == WriteRule::Kind::kNothing || rule.kind == WriteRule::Kind::kSlot) hides = false;
  for (const Copy& copy : copies_) {
    const auto live = std::ranges::find(watch_.live(), copy.memory.serial, &WatchedMemory::serial);
    if (live == watch_.live().end()) continue;  // given back
    CopyBytes(copy.memory, &bytes);
    if (std::memcmp(bytes.data(), copy.bytes.data(), bytes.size()) == 0) continue;
    if (!allowed) allowed = Allowed(rule, PlacesOf(sequences));
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == copy.bytes[i]) continue;
      ++bytes_changed_;
      const std::byte* at = copy.memory.data + i;
      const auto holds = [&](const auto& range) { return at >= range.first && at < range.second; };
      if (std::ranges::any_of(*allowed, holds)) continue;
      const auto in_row = [&](const Place& row) { return at >= row.begin && at < row.end; };
      if (hides && std::ranges::none_of(rows_, in_row)) continue;
      return Describe(copy.memory, i);
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::runner
