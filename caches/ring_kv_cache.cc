#include "caches/ring_kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "caches/cache_file.h"
#include "caches/codec.h"

namespace lockstep {
namespace {

RingKvOptions Checked(RingKvOptions options) {
  CheckGeometry(options.geometry);
  if (options.windows.size() != static_cast<size_t>(options.geometry.num_layers)) {
    throw std::invalid_argument(fmt::format("ring cache: {} windows for {} layers",
                                            options.windows.size(), options.geometry.num_layers));
  }
  const auto negative = [](int32_t window) { return window < 0; };
  if (options.undo_rows < 1 || std::ranges::any_of(options.windows, negative)) {
    throw std::invalid_argument("ring cache: a window below 0, or no rows to undo");
  }
  for (const RowType type : {options.key_type, options.value_type}) {
    if (type == RowType::kF32 || type == RowType::kF16 || type == RowType::kBf16) continue;
    throw std::invalid_argument(
        fmt::format("ring cache: rows are not kept as {}", RowTypeName(type)));
  }
  if (options.label.empty()) options.label = fmt::format("w{}", fmt::join(options.windows, "-"));
  return options;
}

StateHeader RingHeader(const RingKvOptions& options) {
  return {.kind = "ring",
          .geometry = options.geometry,
          .key_type = options.key_type,
          .value_type = options.value_type};
}

// Rows [first, first + count) of a buffer of `rows` places, which do not come round.
template <typename Byte>
std::span<Byte> RowsIn(std::span<Byte> memory, int32_t rows, int64_t row_bytes, int32_t first,
                       int32_t count) {
  return memory.subspan(static_cast<size_t>(first % rows * row_bytes),
                        static_cast<size_t>(count * row_bytes));
}

}  // namespace

std::string RingRowsName(RowType key_type, RowType value_type) {
  if (key_type == RowType::kF32 && value_type == RowType::kF32) return "";
  return fmt::format("{}+{}/", RowTypeName(key_type), RowTypeName(value_type));
}

RingKvCache::RingKvCache(const RingKvOptions& options) : options_(Checked(options)) {
  const KvGeometry& g = options_.geometry;
  layers_.reserve(options_.windows.size());
  for (const int32_t window : options_.windows) {
    const int64_t rows = int64_t{window} + 2 * int64_t{options_.undo_rows};
    Layer& layer = layers_.emplace_back();
    layer.window = window;
    layer.rows =
        window == 0 ? g.max_length : static_cast<int32_t>(std::min<int64_t>(rows, g.max_length));
    layer.keys = AlignedBuffer<std::byte>(layer.rows * RowBytes(options_.key_type, g.kv_stride()));
    layer.values =
        AlignedBuffer<std::byte>(layer.rows * RowBytes(options_.value_type, g.kv_stride()));
    forgets_ = forgets_ || window > 0;
  }
}

std::string RingKvCache::name() const {
  return fmt::format("ring/{}{}+{}", RingRowsName(options_.key_type, options_.value_type),
                     options_.label, options_.undo_rows);
}

int32_t RingKvCache::max_step_rows() const { return forgets_ ? options_.undo_rows : max_length(); }

int32_t RingKvCache::attention_window(int32_t layer) const {
  CheckLayer(options_.geometry, layer);
  return layer_at(layer).window;
}

int32_t RingKvCache::length(int32_t layer) const {
  CheckLayer(options_.geometry, layer);
  return layer_at(layer).length;
}

int32_t RingKvCache::current_length() const {
  int32_t longest = 0;
  for (const Layer& layer : layers_) longest = std::max(longest, layer.length);
  return longest;
}

int32_t RingKvCache::first_position(int32_t layer) const {
  CheckLayer(options_.geometry, layer);
  return layer_at(layer).first;
}

// ---- Where rows lie ---------------------------------------------------------------------------

std::span<std::byte> RingKvCache::KeyRows(Layer& layer, int32_t first, int32_t count) const {
  return RowsIn(layer.keys.span(), layer.rows,
                RowBytes(options_.key_type, options_.geometry.kv_stride()), first, count);
}

std::span<std::byte> RingKvCache::ValueRows(Layer& layer, int32_t first, int32_t count) const {
  return RowsIn(layer.values.span(), layer.rows,
                RowBytes(options_.value_type, options_.geometry.kv_stride()), first, count);
}

std::span<const std::byte> RingKvCache::KeyRows(const Layer& layer, int32_t first,
                                                int32_t count) const {
  return RowsIn(layer.keys.span(), layer.rows,
                RowBytes(options_.key_type, options_.geometry.kv_stride()), first, count);
}

std::span<const std::byte> RingKvCache::ValueRows(const Layer& layer, int32_t first,
                                                  int32_t count) const {
  return RowsIn(layer.values.span(), layer.rows,
                RowBytes(options_.value_type, options_.geometry.kv_stride()), first, count);
}

template <typename PerRun>
void RingKvCache::ForRuns(const Layer& layer, int32_t begin, int32_t end, PerRun per_run) {
  while (begin < end) {
    const int32_t count = std::min(end - begin, layer.rows - begin % layer.rows);
    per_run(begin, count);
    begin += count;
  }
}

int32_t RingKvCache::FirstAfter(const Layer& layer, int32_t end) const {
  if (layer.window == 0) return 0;
  const int64_t kept = int64_t{layer.window} + options_.undo_rows;
  const int64_t first = std::max(layer.length, end) - kept;
  return static_cast<int32_t>(std::max<int64_t>(first, layer.first));
}

bool RingKvCache::CanUndo(const Layer& layer, int32_t lowest, int32_t end) const {
  const int32_t first = FirstAfter(layer, end);
  return first == 0 || lowest - layer.window >= first;
}

void RingKvCache::Advance(Layer* layer, int32_t gap_end, int32_t end) {
  layer->first = FirstAfter(*layer, end);
  ForRuns(*layer, std::max(layer->length, layer->first), gap_end,
          [&](int32_t first, int32_t count) {
            std::ranges::fill(KeyRows(*layer, first, count), std::byte{0});
            std::ranges::fill(ValueRows(*layer, first, count), std::byte{0});
          });
  layer->length = std::max(layer->length, end);
}

// ---- Reading ----------------------------------------------------------------------------------

void RingKvCache::View(int32_t layer, KvView* view) const {
  CheckLayer(options_.geometry, layer);
  const Layer& state = layer_at(layer);
  view->length = state.length;
  view->segments.clear();
  ForRuns(state, state.first, state.length, [&](int32_t first, int32_t count) {
    view->segments.push_back({.first = first,
                              .count = count,
                              .key_type = options_.key_type,
                              .value_type = options_.value_type,
                              .keys = KeyRows(state, first, count).data(),
                              .values = ValueRows(state, first, count).data()});
  });
}

void RingKvCache::ViewForQuery(int32_t layer, int32_t position, KvView* view) const {
  CheckLayer(options_.geometry, layer);
  const Layer& state = layer_at(layer);
  CheckQuery(position, state.length);
  if (state.first > 0 && position - state.window + 1 < state.first) {
    throw std::out_of_range(
        fmt::format("ViewForQuery: of the {} rows that position {} sees those "
                    "before {} are forgotten",
                    state.window, position, state.first));
  }
  View(layer, view);
}

// ---- Writing ----------------------------------------------------------------------------------

void RingKvCache::Update(int32_t layer, std::span<const int32_t> positions,
                         std::span<const float> keys, std::span<const float> values) {
  const int32_t end = CheckUpdate(options_.geometry, layer, positions, keys, values);
  if (forgets_) CheckStepRows(positions, max_step_rows());
  if (positions.empty()) return;
  Layer& state = layer_at(layer);
  const int32_t lowest = std::ranges::min(positions);
  if (!CanUndo(state, lowest, end)) {
    throw std::out_of_range(
        fmt::format("Update: position {} lies more than {} rows before the end: it could not be "
                    "undone",
                    lowest, options_.undo_rows));
  }
  state.reservation.reset();
  Advance(&state, end, end);
  const auto stride = static_cast<size_t>(options_.geometry.kv_stride());
  for (size_t i = 0; i < positions.size(); ++i) {
    EncodeRow(options_.key_type, keys.subspan(i * stride, stride), KeyRows(state, positions[i], 1));
    EncodeRow(options_.value_type, values.subspan(i * stride, stride),
              ValueRows(state, positions[i], 1));
  }
}

std::optional<KvSlot> RingKvCache::TryReserveSlot(int32_t layer,
                                                  std::span<const int32_t> positions) {
  CheckLayer(options_.geometry, layer);
  if (options_.key_type != RowType::kF32 || options_.value_type != RowType::kF32) {
    return std::nullopt;
  }
  Layer& state = layer_at(layer);
  const auto run = AsRun(positions, max_length());
  if (!run || run->count > max_step_rows()) return std::nullopt;
  if (state.window > 0) {
    const bool wraps = run->first / state.rows != (run->end() - 1) / state.rows;
    const bool far = run->end() - state.length > max_step_rows();
    if (wraps || far || !CanUndo(state, run->first, run->end())) return std::nullopt;
  }
  state.reservation = run;
  const auto floats = [](std::span<std::byte> rows) {
    return std::span(reinterpret_cast<float*>(rows.data()), rows.size() / sizeof(float));
  };
  return KvSlot{floats(KeyRows(state, run->first, run->count)),
                floats(ValueRows(state, run->first, run->count))};
}

void RingKvCache::CommitSlot(int32_t layer, std::span<const int32_t> positions) {
  CheckLayer(options_.geometry, layer);
  Layer& state = layer_at(layer);
  if (DecideCommit(positions, state.reservation, state.length, max_length()) ==
      CommitAction::kNothing) {
    return;
  }
  const PositionRun run = *state.reservation;
  state.reservation.reset();
  Advance(&state, run.first, run.end());
}

// ---- Lifetime of rows -------------------------------------------------------------------------

void RingKvCache::Rollback(int32_t length) {
  CheckRollback(length, current_length());
  if (!CanRollback(*this, length)) {
    throw std::out_of_range(fmt::format(
        "Rollback: rows that the query at {} sees are forgotten: at most {} rows can be undone",
        length - 1, options_.undo_rows));
  }
  for (Layer& layer : layers_) {
    layer.reservation.reset();
    if (layer.length <= length) continue;
    ForRuns(layer, std::max(length, layer.first), layer.length, [&](int32_t first, int32_t count) {
      layer.keys.Poison(KeyRows(layer, first, count));
      layer.values.Poison(ValueRows(layer, first, count));
    });
    layer.length = length;
    if (length == 0) layer.first = 0;
  }
}

void RingKvCache::Clear() { Rollback(0); }

std::unique_ptr<KvCache> RingKvCache::Fork() {
  auto fork = std::make_unique<RingKvCache>(options_);
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& from = layers_[i];
    Layer& to = fork->layers_[i];
    from.reservation.reset();
    to.length = from.length;
    to.first = from.first;
    ForRuns(from, from.first, from.length, [&](int32_t first, int32_t count) {
      std::ranges::copy(KeyRows(from, first, count), KeyRows(to, first, count).data());
      std::ranges::copy(ValueRows(from, first, count), ValueRows(to, first, count).data());
    });
  }
  return fork;
}

// ---- Storage ----------------------------------------------------------------------------------

Digest RingKvCache::StorageDigest() const { return DigestOfStoredRows(*this); }

void RingKvCache::SaveState(StateWriter* writer) const {
  std::vector<int32_t> lengths, firsts;  // [num_layers]
  for (const Layer& layer : layers_) {
    lengths.push_back(layer.length);
    firsts.push_back(layer.first);
  }
  writer->WriteHeader(RingHeader(options_));
  writer->WriteU32(static_cast<uint32_t>(options_.undo_rows));
  for (const int32_t window : options_.windows) writer->WriteU32(static_cast<uint32_t>(window));
  writer->WriteLengths(lengths);
  writer->WriteLengths(firsts);
  for (const Layer& layer : layers_) {
    ForRuns(layer, layer.first, layer.length, [&](int32_t first, int32_t count) {
      writer->WriteBytes(KeyRows(layer, first, count));
    });
    ForRuns(layer, layer.first, layer.length, [&](int32_t first, int32_t count) {
      writer->WriteBytes(ValueRows(layer, first, count));
    });
  }
}

void RingKvCache::LoadState(StateReader* reader) {
  reader->ExpectHeader(RingHeader(options_));
  const auto expect = [&](std::string_view field, int32_t wanted) {
    const uint32_t found = reader->ReadU32(field);
    if (found == static_cast<uint32_t>(wanted)) return;
    reader->Fail(field, fmt::format("the file has {}, the cache has {}", found, wanted),
                 "restore into a cache like the one that was saved");
  };
  expect("undo_rows", options_.undo_rows);
  for (const int32_t window : options_.windows) expect("windows", window);
  const std::vector<int32_t> lengths = reader->ReadLengths(options_.geometry);
  const std::vector<int32_t> firsts = reader->ReadLengths(options_.geometry);
  int64_t rows = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const int64_t window = layers_[i].window, held = int64_t{lengths[i]} - firsts[i];
    const bool fits = window == 0 ? firsts[i] == 0 : held <= window + options_.undo_rows;
    if (held < 0 || !fits || (firsts[i] > 0 && held < window)) {
      reader->Fail("firsts",
                   fmt::format("layer {} cannot hold rows {} to {}", i, firsts[i], lengths[i]),
                   std::string(kDamagedRemedy));
    }
    rows += held;
  }
  const int64_t stride = options_.geometry.kv_stride();
  reader->ExpectRemaining(
      rows * (RowBytes(options_.key_type, stride) + RowBytes(options_.value_type, stride)));
  Clear();  // from here on nothing can fail
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    layer.length = lengths[i];
    layer.first = firsts[i];
    ForRuns(layer, layer.first, layer.length,
            [&](int32_t first, int32_t count) { reader->ReadBytes(KeyRows(layer, first, count)); });
    ForRuns(layer, layer.first, layer.length, [&](int32_t first, int32_t count) {
      reader->ReadBytes(ValueRows(layer, first, count));
    });
  }
}

}  // namespace lockstep
