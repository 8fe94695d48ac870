#include "caches/kv_cache.h"

#include <algorithm>

#include "caches/check.h"
#include "caches/codec.h"
#include "caches/kv_checks.h"

namespace lockstep {
namespace {

// [count, kv_stride] as stored: rows of a segment follow one another, so they are one long row.
std::span<const std::byte> StoredKeys(const KvSegment& segment, int64_t kv_stride) {
  const int64_t bytes = segment.count * RowBytes(segment.key_type, kv_stride);
  return {segment.keys, static_cast<size_t>(bytes)};
}

std::span<const std::byte> StoredValues(const KvSegment& segment, int64_t kv_stride) {
  const int64_t bytes = segment.count * RowBytes(segment.value_type, kv_stride);
  return {segment.values, static_cast<size_t>(bytes)};
}

// L, H, D: what both hashes of a cache start with.
void AddShape(const KvGeometry& geometry, DigestBuilder* builder) {
  builder->AddU32(static_cast<uint32_t>(geometry.num_layers));
  builder->AddU32(static_cast<uint32_t>(geometry.num_kv_heads));
  builder->AddU32(static_cast<uint32_t>(geometry.head_dim));
}

}  // namespace

std::string_view RowTypeName(RowType type) {
  switch (type) {
    case RowType::kF32:
      return "f32";
    case RowType::kF16:
      return "f16";
    case RowType::kBf16:
      return "bf16";
    case RowType::kQ8_0:
      return "q8_0";
    case RowType::kQ4_0:
      return "q4_0";
  }
  LS_CHECK(false, "row type {}", static_cast<int>(type));
  return {};
}

int64_t RowBytes(RowType type, int64_t elements) {
  switch (type) {
    case RowType::kF32:
      return elements * 4;
    case RowType::kF16:
    case RowType::kBf16:
      return elements * 2;
    case RowType::kQ8_0:
      return elements / 32 * 34;
    case RowType::kQ4_0:
      return elements / 32 * 18;
  }
  LS_CHECK(false, "row type {}", static_cast<int>(type));
  return 0;
}

void KvCache::ViewForQuery(int32_t layer, int32_t position, KvView* view) const {
  View(layer, view);
  if (position < 0 || position >= view->length) {
    throw std::out_of_range("ViewForQuery: position outside the layer's length");
  }
}

int32_t KvCache::attention_window(int32_t layer) const {
  CheckLayer(geometry(), layer);
  return 0;
}

int32_t KvCache::first_position(int32_t layer) const {
  CheckLayer(geometry(), layer);
  return 0;
}

bool CanRollback(const KvCache& cache, int32_t length) {
  if (length == 0) return true;
  for (int32_t layer = 0; layer < cache.geometry().num_layers; ++layer) {
    const int32_t first = cache.first_position(layer);
    if (first == 0 || cache.length(layer) <= length) continue;
    if (length - cache.attention_window(layer) < first) return false;
  }
  return true;
}

int32_t RingRows(const KvCache& cache, int32_t layer) {
  const int64_t window = cache.attention_window(layer);
  if (window == 0) return 0;
  const int64_t rows = window + 2 * int64_t{cache.max_step_rows()};
  return static_cast<int32_t>(std::min<int64_t>(rows, cache.max_length()));
}

DeviceKv* KvCache::device_kv(int32_t layer) {
  CheckLayer(geometry(), layer);
  return nullptr;
}

KvRows DecodeRows(const KvView& view, int64_t kv_stride) {
  const auto stride = static_cast<size_t>(kv_stride);
  const auto rows = static_cast<size_t>(view.length - view.first());
  KvRows decoded{.keys = std::vector<float>(rows * stride),
                 .values = std::vector<float>(rows * stride),
                 .first = view.first()};
  int32_t next = decoded.first;  // position
  for (const KvSegment& segment : view.segments) {
    LS_CHECK(segment.first == next && segment.count > 0, "segment [{}, +{}) after position {}",
             segment.first, segment.count, next);
    next += segment.count;
    LS_CHECK(next <= view.length, "segments reach {} of length {}", next, view.length);
    const auto first = static_cast<size_t>(segment.first - decoded.first) * stride;
    const auto count = static_cast<size_t>(segment.count) * stride;
    DecodeRow(segment.key_type, StoredKeys(segment, kv_stride),
              std::span(decoded.keys).subspan(first, count));
    DecodeRow(segment.value_type, StoredValues(segment, kv_stride),
              std::span(decoded.values).subspan(first, count));
  }
  LS_CHECK(next == view.length, "segments end at {} of length {}", next, view.length);
  return decoded;
}

namespace {

// Leaves out the rows before the window of the last query, in a layer that has one [X1].
void KeepLastWindow(int32_t window, int64_t kv_stride, KvView* view) {
  if (window == 0) return;
  const int32_t begin = view->length - window;
  auto& segments = view->segments;
  while (!segments.empty() && segments.front().first < begin) {
    KvSegment& segment = segments.front();
    const int32_t skipped = begin - segment.first;
    if (skipped >= segment.count) {
      segments.erase(segments.begin());
      continue;
    }
    segment.keys += skipped * RowBytes(segment.key_type, kv_stride);
    segment.values += skipped * RowBytes(segment.value_type, kv_stride);
    segment.first += skipped;
    segment.count -= skipped;
  }
}

void ViewHashedRows(const KvCache& cache, int32_t layer, KvView* view) {
  cache.View(layer, view);
  KeepLastWindow(cache.attention_window(layer), cache.geometry().kv_stride(), view);
}

}  // namespace

LayerDigest DigestOfLayer(const KvCache& cache, int32_t layer) {
  KvView view;
  ViewHashedRows(cache, layer, &view);
  const KvRows rows = DecodeRows(view, cache.geometry().kv_stride());
  return {.length = view.length,
          .keys = DigestOfFloats(rows.keys),
          .values = DigestOfFloats(rows.values)};
}

Digest DigestOfCache(const KvCache& cache) {
  DigestBuilder builder;
  AddShape(cache.geometry(), &builder);
  KvView view;
  for (int32_t layer = 0; layer < cache.geometry().num_layers; ++layer) {
    ViewHashedRows(cache, layer, &view);
    const KvRows rows = DecodeRows(view, cache.geometry().kv_stride());
    builder.AddU32(static_cast<uint32_t>(view.length));
    builder.AddFloats(rows.keys);
    builder.AddFloats(rows.values);
  }
  return builder.Finish();
}

Digest DigestOfStoredRows(const KvCache& cache) {
  DigestBuilder builder;
  AddShape(cache.geometry(), &builder);
  KvView view;
  for (int32_t layer = 0; layer < cache.geometry().num_layers; ++layer) {
    ViewHashedRows(cache, layer, &view);
    builder.AddU32(static_cast<uint32_t>(view.length));
    for (const KvSegment& segment : view.segments) {
      builder.AddBytes(StoredKeys(segment, cache.geometry().kv_stride()));
    }
    for (const KvSegment& segment : view.segments) {
      builder.AddBytes(StoredValues(segment, cache.geometry().kv_stride()));
    }
  }
  return builder.Finish();
}

}  // namespace lockstep
