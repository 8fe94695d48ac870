// What a step does with the caches: reserve, store, read.
#include <fmt/format.h>

#include <algorithm>

#include "engine/model/step.h"
#include "engine/model/step_rows.h"

namespace lockstep {
namespace {

// Queries of one kernel call: enough to fill its tiles, few enough to be shared out evenly.
constexpr int32_t kTileQueries = 16;

// Views that are kept at once; with more queries that need one each, attention runs in rounds.
constexpr size_t kViewsMax = 64;

}  // namespace

void StepRunner::ReserveRows(int32_t layer) {
  for (Piece& piece : pieces_) {
    ReserveRows(layer, &piece);
    for (int64_t i = 0; i < piece.count; ++i) {
      const auto row = static_cast<size_t>(piece.first + i);
      ws_.key_rows[row] = piece.keys.data() + i * config_.kv_dim();
      ws_.value_rows[row] = piece.values.data() + i * config_.kv_dim();
    }
  }
}

void StepRunner::ReserveRows(int32_t layer, Piece* piece) {
  piece->keys = ws_.key.Rows(piece->first, piece->count);
  piece->values = ws_.value.Rows(piece->first, piece->count);
  piece->in_cache = false;
  if (piece->in.cache == nullptr) return;
  const std::optional<KvSlot> slot = piece->in.cache->TryReserveSlot(layer, piece->in.positions);
  if (!slot) return;
  if (slot->keys.size() != piece->keys.size() || slot->values.size() != piece->values.size()) {
    throw BrokenCache(
        layer, fmt::format("the slot has {} and {} floats, {} rows need {}", slot->keys.size(),
                           slot->values.size(), piece->count, piece->keys.size()));
  }
  piece->keys = slot->keys;
  piece->values = slot->values;
  piece->in_cache = true;
}

void StepRunner::StoreRows(int32_t layer) {
  for (const Piece& piece : pieces_) {
    if (piece.in.cache == nullptr) continue;
    if (piece.in_cache) {
      piece.in.cache->CommitSlot(layer, piece.in.positions);
    } else {
      piece.in.cache->Update(layer, piece.in.positions, piece.keys, piece.values);
    }
  }
}

// Every row is stored before the first view: views end with the next write, also one of another
// sequence on the same pool.
void StepRunner::Attend(int32_t layer, bool quantize) {
  for (const Piece& piece : pieces_) {
    if (piece.in.trace != nullptr) TraceCacheRows(layer, piece);
  }
  views_used_ = 0;
  tiles_.clear();
  shape_.window = config_.window_of(layer);
  for (const Piece& piece : pieces_) AddTiles(layer, piece, quantize);
  AttendTiles(quantize);
}

void StepRunner::AddTiles(int32_t layer, const Piece& piece, bool quantize) {
  const bool view_per_query = piece.in.cache != nullptr && piece.in.cache->view_depends_on_query();
  const int32_t step = view_per_query ? 1 : kTileQueries;
  KvView* view = nullptr;
  for (int32_t i = 0; i < piece.count; i += step) {
    if (view == nullptr || view_per_query) {
      view = NextView(quantize);
      ReadView(
          layer, piece,
          view_per_query ? piece.in.positions[static_cast<size_t>(i)] : piece.in.positions.back(),
          view);
    }
    tiles_.push_back({view, piece.first + i, std::min(step, piece.count - i)});
  }
}

KvView* StepRunner::NextView(bool quantize) {
  if (views_used_ == kViewsMax) AttendTiles(quantize);
  // All at once: tiles point into the vector.
  if (views_.empty()) views_.resize(kViewsMax);
  return &views_[views_used_++];
}

void StepRunner::AttendTiles(bool quantize) {
  const bool in_kernels = quantize && config_.head_dim % 32 == 0;
  kernels_.Attend({.shape = shape_,
                   .tiles = tiles_,
                   .q = ws_.query.row(0),
                   .out = ws_.attention.row(0),
                   .visible = ws_.visible.data(),
                   .blocks = in_kernels ? ws_.input.data() : nullptr});
  if (quantize && !in_kernels) {
    // Blocks that reach over two heads: row by row, when all heads are there.
    const int32_t width = config_.q_dim();
    for (const AttentionTile& tile : tiles_) {
      for (int64_t row = tile.first; row < tile.first + tile.count; ++row) {
        kernels_.table().quantize_activations(ws_.attention.row(row), width,
                                              ws_.input.data() + row * (width / 32));
      }
    }
  }
  views_used_ = 0;
  tiles_.clear();
}

void StepRunner::ReadView(int32_t layer, const Piece& piece, int32_t position, KvView* view) const {
  const KvCache* cache = piece.in.cache;
  if (cache == nullptr) {
    view->length = piece.count;
    view->segments.assign(1, {0, piece.count, RowType::kF32, RowType::kF32,
                              reinterpret_cast<const std::byte*>(piece.keys.data()),
                              reinterpret_cast<const std::byte*>(piece.values.data())});
    return;
  }
  if (cache->view_depends_on_query()) {
    cache->ViewForQuery(layer, position, view);
  } else {
    cache->View(layer, view);
  }
  // A kernel reads as many rows as it is told to: rows that are not there must not be asked for.
  if (view->length <= position) {
    throw BrokenCache(layer, fmt::format("it shows {} rows after the write of position {}",
                                         view->length, position));
  }
  const int32_t query = cache->view_depends_on_query() ? position : piece.in.positions.front();
  const int32_t sees_from = shape_.window > 0 ? std::max(0, query - shape_.window + 1) : 0;
  if (view->first() > sees_from) {
    throw BrokenCache(layer, fmt::format("it shows no row before {}, the query at {} sees {}",
                                         view->first(), query, sees_from));
  }
}

// Only tracing comes here, so it may allocate.
void StepRunner::TraceCacheRows(int32_t layer, const Piece& piece) {
  KvView whole;
  if (piece.in.cache != nullptr) {
    piece.in.cache->View(layer, &whole);
  } else {
    ReadView(layer, piece, piece.in.positions.back(), &whole);
  }
  const int64_t stride = config_.kv_dim();
  const KvRows rows = RowsOfStep(whole, piece.in.positions, stride, layer);
  TraceRows(piece, layer, Stage::kCacheKey, rows.keys, stride);
  TraceRows(piece, layer, Stage::kCacheValue, rows.values, stride);
}

}  // namespace lockstep
