#include "engine/row_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "caches/codec.h"

namespace lockstep {

Digest RowWatch::OfRows(const KvCache& cache, std::span<const int32_t> positions) {
  const KvGeometry& geometry = cache.geometry();
  const int64_t stride = geometry.kv_stride();
  row_.resize(static_cast<size_t>(stride));
  const size_t needed =
      static_cast<size_t>(geometry.num_layers) * 2 * positions.size() * row_.size();
  if (bits_.size() < needed) bits_.resize(needed);
  used_ = 0;
  for (int32_t layer = 0; layer < geometry.num_layers; ++layer) {
    cache.View(layer, &view_);
    for (int32_t position : positions) {
      if (position >= view_.first() && position < view_.length) continue;
      throw std::out_of_range(
          fmt::format("watch: layer {} shows rows {} to {} and none at position {}", layer,
                      view_.first(), view_.length, position));
    }
    AddRows(stride, positions, true);
    AddRows(stride, positions, false);
  }
  return DigestOfBytes(std::as_bytes(std::span(bits_).first(used_)));
}

void RowWatch::AddRows(int64_t stride, std::span<const int32_t> positions, bool keys) {
  for (int32_t position : positions) {
    // A step writes the last rows: the search begins at the end.
    auto segment = view_.segments.rbegin();
    while (segment->first > position) ++segment;
    const RowType type = keys ? segment->key_type : segment->value_type;
    const int64_t bytes = RowBytes(type, stride);
    const std::byte* stored =
        (keys ? segment->keys : segment->values) + (position - segment->first) * bytes;
    DecodeRow(type, {stored, static_cast<size_t>(bytes)}, row_);
    std::transform(row_.begin(), row_.end(), bits_.begin() + static_cast<std::ptrdiff_t>(used_),
                   CanonicalBits);
    used_ += row_.size();
  }
}

}  // namespace lockstep
