#include "oracle/model_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "caches/check.h"
#include "oracle/model_rows.h"

namespace lockstep {
namespace {

bool IsContiguous(std::span<const int32_t> positions) {
  for (size_t i = 1; i < positions.size(); ++i) {
    if (int64_t{positions[i]} != int64_t{positions[0]} + static_cast<int64_t>(i)) return false;
  }
  return !positions.empty();
}

bool AllInside(std::span<const int32_t> positions, int32_t limit) {
  return std::ranges::all_of(positions, [&](int32_t p) { return p >= 0 && p < limit; });
}

int32_t HighestEnd(std::span<const int32_t> positions) {
  int32_t end = 0;
  for (int32_t p : positions) end = std::max(end, p + 1);
  return end;
}

}  // namespace

ModelCache::ModelCache(const ModelCacheOptions& options) : options_(options) {
  const KvGeometry& g = options.geometry;
  LS_CHECK(g.num_layers > 0 && g.num_kv_heads > 0 && g.head_dim > 0 && g.max_length > 0,
           "geometry {} {} {} {}", g.num_layers, g.num_kv_heads, g.head_dim, g.max_length);
  const bool blocks = options.key_type == RowType::kQ8_0 || options.key_type == RowType::kQ4_0 ||
                      options.value_type == RowType::kQ8_0 || options.value_type == RowType::kQ4_0;
  LS_CHECK(!blocks || g.head_dim % 32 == 0, "head_dim {} of a block format", g.head_dim);
  LS_CHECK(options.window >= 0 && options.block_size >= 0 && options.blocks_available >= 0 &&
               options.max_step_rows >= 0,
           "window {}, block size {}, {} blocks, {} step rows", options.window, options.block_size,
           options.blocks_available, options.max_step_rows);
  layers_.resize(static_cast<size_t>(g.num_layers));
  LS_CHECK(options.windows.empty() || options.max_step_rows > 0, "windows and no rows to undo");
  for (size_t layer = 0; layer < layers_.size() && !options.windows.empty(); ++layer) {
    layers_[layer].window = options.windows[layer % options.windows.size()];
  }
}

std::string ModelCache::name() const {
  std::string name = fmt::format("model/{}", RowTypeName(options_.key_type));
  if (options_.key_type != options_.value_type || options_.key_type != RowType::kF32) {
    name += fmt::format("+{}/w{}", RowTypeName(options_.value_type), options_.window);
    if (options_.window_type != RowType::kF32) {
      name += fmt::format("-{}", RowTypeName(options_.window_type));
    }
  }
  if (options_.block_size > 0) name += fmt::format("/b{}", options_.block_size);
  if (!options_.windows.empty()) {
    name += fmt::format("/ring-w{}+{}", fmt::join(options_.windows, "-"), options_.max_step_rows);
  }
  return name;
}

int32_t ModelCache::max_step_rows() const {
  return options_.max_step_rows > 0 ? options_.max_step_rows : geometry().max_length;
}

const ModelCache::Layer& ModelCache::At(int32_t layer) const {
  if (layer < 0 || layer >= geometry().num_layers) throw std::out_of_range("model: no such layer");
  return layers_[static_cast<size_t>(layer)];
}

ModelCache::Layer& ModelCache::At(int32_t layer) {
  return const_cast<Layer&>(std::as_const(*this).At(layer));
}

// ---- Reading --------------------------------------------------------------------------------

int32_t ModelCache::length(int32_t layer) const { return At(layer).length; }

int32_t ModelCache::attention_window(int32_t layer) const { return At(layer).window; }

int32_t ModelCache::first_position(int32_t layer) const { return At(layer).forgotten; }

int32_t ModelCache::current_length() const {
  return std::ranges::max_element(layers_, {}, &Layer::length)->length;
}

ModelCache::Ring ModelCache::RingAfter(const Layer& layer, size_t writes) const {
  Ring ring = layer.ring_before_step;
  if (options_.window == 0) return ring;
  for (size_t i = 0; i < writes; ++i) {
    ring[layer.step[i]->position % options_.window] = layer.step[i];
  }
  return ring;
}

void ModelCache::Show(const Layer& layer, const Ring& ring, int32_t position, KvView* view) const {
  view->length = layer.length;
  view->segments.clear();
  for (const auto& [p, row] : layer.rows) {
    const std::vector<float>* key = &row.key.decoded;
    const std::vector<float>* value = &row.value.decoded;
    if (options_.window > 0 && position - p < options_.window) {
      const auto slot = ring.find(p % options_.window);
      if (slot != ring.end() && slot->second->position == p) {  // row p is held
        key = &slot->second->key;
        value = &slot->second->value;
      }
    }
    view->segments.push_back({.first = p,
                              .count = 1,
                              .key_type = RowType::kF32,
                              .value_type = RowType::kF32,
                              .keys = std::as_bytes(std::span(*key)).data(),
                              .values = std::as_bytes(std::span(*value)).data()});
  }
}

void ModelCache::View(int32_t layer, KvView* view) const {
  const Layer& state = At(layer);
  Show(state, RingAfter(state, state.step.size()), state.length - 1, view);
}

void ModelCache::ViewForQuery(int32_t layer, int32_t position, KvView* view) const {
  const Layer& state = At(layer);
  if (position < 0 || position >= state.length) throw std::out_of_range("model: no such query");
  const int32_t sees_from = std::max(0, position - state.window + 1);
  if (state.window > 0 && sees_from < state.forgotten) {
    throw std::out_of_range("model: the query sees rows that are forgotten");
  }
  // A query of the step in progress comes right after its own row; any other comes now.
  size_t writes = state.step.size();
  for (size_t i = 0; i < state.step.size(); ++i) {
    if (state.step[i]->position == position) writes = i + 1;
  }
  Show(state, RingAfter(state, writes), position, view);
}

// ---- Writing --------------------------------------------------------------------------------

ModelCache::Vector ModelCache::MakeVector(RowType type, std::span<const float> exact) {
  Vector vector;
  vector.stored = oracle::EncodeModelRow(type, exact);
  vector.decoded = oracle::DecodeModelRow(type, vector.stored);
  return vector;
}

std::vector<float> ModelCache::InWindow(std::span<const float> row) const {
  return MakeVector(options_.window_type, row).decoded;
}

int32_t ModelCache::ForgottenAt(const Layer& layer, int32_t end) const {
  if (layer.window == 0) return 0;
  const int64_t length = std::max(layer.length, end);
  const int64_t kept = int64_t{layer.window} + options_.max_step_rows;
  return length - kept > layer.forgotten ? static_cast<int32_t>(length - kept) : layer.forgotten;
}

// Without row `lowest` and what follows, the query before it has to find its window.
bool ModelCache::CouldUndo(const Layer& layer, int32_t lowest, int32_t end) const {
  const int32_t forgotten = ForgottenAt(layer, end);
  return forgotten == 0 || int64_t{lowest} - layer.window >= forgotten;
}

void ModelCache::WriteRows(Layer* layer, std::span<const int32_t> positions,
                           std::span<const float> keys, std::span<const float> values) {
  const auto stride = static_cast<size_t>(geometry().kv_stride());
  layer->ring_before_step = RingAfter(*layer, layer->step.size());
  layer->step.clear();
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto key = keys.subspan(i * stride, stride);
    const auto value = values.subspan(i * stride, stride);
    layer->rows[positions[i]] = {MakeVector(options_.key_type, key),
                                 MakeVector(options_.value_type, value)};
    if (options_.window == 0) continue;
    layer->step.push_back(
        std::make_shared<const Written>(Written{positions[i], InWindow(key), InWindow(value)}));
  }
  layer->forgotten = ForgottenAt(*layer, HighestEnd(positions));
  layer->length = std::max(layer->length, HighestEnd(positions));
  layer->rows.erase(layer->rows.begin(), layer->rows.lower_bound(layer->forgotten));
  const std::vector<float> zeros(stride, 0.0f);
  for (int32_t p = layer->forgotten; p < layer->length;
       ++p) {  // the gaps, if this write left any [V2]
    if (layer->rows.count(p) != 0) continue;
    layer->rows[p] = {MakeVector(options_.key_type, zeros), MakeVector(options_.value_type, zeros)};
  }
}

void ModelCache::Update(int32_t layer, std::span<const int32_t> positions,
                        std::span<const float> keys, std::span<const float> values) {
  Layer& state = At(layer);
  const size_t elements = positions.size() * static_cast<size_t>(geometry().kv_stride());
  if (keys.size() != elements || values.size() != elements) {
    throw std::invalid_argument("model: wrong number of elements");
  }
  if (!AllInside(positions, geometry().max_length)) throw std::out_of_range("model: position");
  if (positions.size() > static_cast<size_t>(max_step_rows()) && options_.max_step_rows > 0) {
    throw std::invalid_argument("model: more rows than a step may have");
  }
  if (positions.empty()) return;
  if (!CouldUndo(state, *std::ranges::min_element(positions), HighestEnd(positions))) {
    throw std::out_of_range("model: the write could not be undone");
  }
  if (!HasBlocksFor(state, HighestEnd(positions))) throw PoolExhausted("model: no block is left");
  state.reservation.reset();
  WriteRows(&state, positions, keys, values);
}

std::optional<KvSlot> ModelCache::TryReserveSlot(int32_t layer,
                                                 std::span<const int32_t> positions) {
  Layer& state = At(layer);
  if (options_.refuses_host_slots) return std::nullopt;
  if (!IsContiguous(positions) || !AllInside(positions, geometry().max_length)) return std::nullopt;
  const int32_t size = options_.block_size;
  if (size > 0 && positions.front() / size != positions.back() / size) return std::nullopt;
  if (!HasBlocksFor(state, HighestEnd(positions))) return std::nullopt;
  if (!options_.windows.empty()) {
    const int32_t step = max_step_rows();
    if (positions.size() > static_cast<size_t>(step)) return std::nullopt;
    if (state.window > 0) {  // a place for each row of the window, to undo, and in progress [W4]
      const int64_t places = int64_t{state.window} + 2 * int64_t{step};
      if (positions.front() / places != positions.back() / places) return std::nullopt;
      if (positions.back() - state.length >= step) return std::nullopt;
      if (!CouldUndo(state, positions.front(), HighestEnd(positions))) return std::nullopt;
    }
  }
  const size_t elements = positions.size() * static_cast<size_t>(geometry().kv_stride());
  Reservation& open = state.reservation.emplace();
  open.positions.assign(positions.begin(), positions.end());
  open.keys.resize(elements);
  open.values.resize(elements);
  return KvSlot{open.keys, open.values};
}

void ModelCache::CommitSlot(int32_t layer, std::span<const int32_t> positions) {
  Layer& state = At(layer);
  if (state.reservation && std::ranges::equal(state.reservation->positions, positions)) {
    const Reservation open = std::move(*state.reservation);
    state.reservation.reset();
    WriteRows(&state, positions, open.keys, open.values);
  } else if (!AllInside(positions, state.length)) {
    throw std::logic_error("model: commit without a reservation");
  }
}

// ---- Lifetime of rows -----------------------------------------------------------------------

void ModelCache::Rollback(int32_t length) {
  if (length < 0 || length > current_length()) throw std::out_of_range("model: rollback");
  for (const Layer& layer : layers_) {
    const bool shrinks = layer.length > length && length > 0;
    if (shrinks && layer.forgotten > 0 && length - layer.window < layer.forgotten) {
      throw std::out_of_range("model: the rollback needs rows that are forgotten");
    }
  }
  for (Layer& layer : layers_) {
    layer.reservation.reset();
    layer.ring_before_step = RingAfter(layer, layer.step.size());
    layer.step.clear();
    std::erase_if(layer.ring_before_step,
                  [&](const auto& slot) { return slot.second->position >= length; });
    layer.rows.erase(layer.rows.lower_bound(length), layer.rows.end());
    layer.length = std::min(layer.length, length);
    if (length == 0) layer.forgotten = 0;
  }
}

void ModelCache::Clear() { Rollback(0); }

std::unique_ptr<KvCache> ModelCache::Fork() {
  LS_CHECK(options_.blocks_available == 0, "a fork would share {} blocks",
           options_.blocks_available);
  for (Layer& layer : layers_) layer.reservation.reset();
  auto fork = std::make_unique<ModelCache>(options_);
  fork->layers_ = layers_;
  return fork;
}

int32_t ModelCache::BlocksFor(int32_t rows) const {
  const int32_t size = options_.block_size;
  return size == 0 ? 0 : rows / size + (rows % size != 0 ? 1 : 0);
}

int32_t ModelCache::blocks_used() const {
  int32_t rows = 0;
  for (const Layer& layer : layers_) {
    rows = std::max(rows, layer.length);
    if (layer.reservation) rows = std::max(rows, layer.reservation->positions.back() + 1);
  }
  return BlocksFor(rows);
}

bool ModelCache::HasBlocksFor(const Layer& writer, int32_t end) const {
  if (options_.block_size == 0 || options_.blocks_available == 0) return true;
  int32_t rows = end;
  for (const Layer& layer : layers_) {
    rows = std::max(rows, layer.length);
    // A write closes the reservation of its own layer.
    if (layer.reservation && &layer != &writer) {
      rows = std::max(rows, layer.reservation->positions.back() + 1);
    }
  }
  return BlocksFor(rows) <= options_.blocks_available;
}

// ---- Storage --------------------------------------------------------------------------------

Digest ModelCache::StorageDigest() const {
  const KvGeometry& g = geometry();
  DigestBuilder builder;
  builder.AddU32(static_cast<uint32_t>(g.num_layers));
  builder.AddU32(static_cast<uint32_t>(g.num_kv_heads));
  builder.AddU32(static_cast<uint32_t>(g.head_dim));
  for (const Layer& layer : layers_) {
    builder.AddU32(static_cast<uint32_t>(layer.length));
    const int32_t begin = layer.window > 0 ? layer.length - layer.window : 0;  // [X2]
    const auto first = layer.rows.lower_bound(begin), end = layer.rows.end();
    for (auto row = first; row != end; ++row) builder.AddBytes(row->second.key.stored);
    for (auto row = first; row != end; ++row) builder.AddBytes(row->second.value.stored);
  }
  return builder.Finish();
}

void ModelCache::SaveState(StateWriter*) const {
  throw std::logic_error("the model cache is not stored");
}

void ModelCache::LoadState(StateReader*) {
  throw std::logic_error("the model cache is not stored");
}

}  // namespace lockstep
