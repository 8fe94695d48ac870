#include "reports/bench/write_case.h"

#include <algorithm>
#include <cstring>

#include "caches/check.h"
#include "caches/random.h"
#include "caches/registry.h"

namespace lockstep::internal {
namespace {

std::vector<float> WriteValues(size_t count) {
  Random random(7);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(random.Between(-(1 << 22), 1 << 22)) * 0x1p-22f;
  }
  return values;
}

}  // namespace

std::vector<WriteGeometry> WriteGeometries() {
  return {{"135m", {.num_layers = 30, .num_kv_heads = 3, .head_dim = 64}},
          {"7b_gqa", {.num_layers = 32, .num_kv_heads = 8, .head_dim = 128}}};
}

WriteCase::WriteCase(const std::string& cache, const WriteGeometry& geometry, WritePath path,
                     int32_t tokens)
    : geometry_(geometry.geometry), path_(path), tokens_(tokens) {
  geometry_.max_length = tokens;
  const auto stride = static_cast<size_t>(geometry_.kv_stride());
  // Each token and layer begins one float further on: other rows without much memory.
  source_ = WriteValues(2 * stride + static_cast<size_t>(tokens * geometry_.num_layers));
  scratch_.resize(2 * stride);
  cache_ = ParseCacheSpec(cache).make({.geometry = geometry_, .sequences = 1});
}

std::span<const float> WriteCase::RowsOf(int32_t token, int32_t layer) const {
  const auto first = static_cast<size_t>(token * geometry_.num_layers + layer);
  return std::span(source_).subspan(first, scratch_.size());
}

void WriteCase::Run() {
  cache_->Rollback(0);
  handed_over_ = 0;
  const auto stride = static_cast<size_t>(geometry_.kv_stride());
  for (int32_t token = 0; token < tokens_; ++token) {
    for (int32_t layer = 0; layer < geometry_.num_layers; ++layer) {
      const auto rows = RowsOf(token, layer);
      const std::span<const int32_t> position(&token, 1);
      if (path_ == WritePath::kDirect) {
        const auto slot = cache_->TryReserveSlot(layer, position);
        LS_CHECK(slot.has_value(), "{} refuses position {}", cache_->name(), token);
        std::memcpy(slot->keys.data(), rows.data(), stride * sizeof(float));
        std::memcpy(slot->values.data(), rows.data() + stride, stride * sizeof(float));
        cache_->CommitSlot(layer, position);
      } else {
        std::memcpy(scratch_.data(), rows.data(), stride * sizeof(float));
        std::memcpy(scratch_.data() + stride, rows.data() + stride, stride * sizeof(float));
        cache_->Update(layer, position, std::span(scratch_).first(stride),
                       std::span(scratch_).last(stride));
        handed_over_ += static_cast<int64_t>(scratch_.size() * sizeof(float));
      }
    }
  }
}

Digest WriteCase::digest() const { return DigestOfCache(*cache_); }

CopyCase::CopyCase(const WriteGeometry& geometry, int32_t tokens)
    : row_(static_cast<size_t>(geometry.geometry.kv_stride())) {
  const int64_t bytes = geometry.copied_bytes() * tokens;
  source_ = WriteValues(static_cast<size_t>(bytes) / sizeof(float));
  copy_.resize(source_.size());
}

void CopyCase::Run() {
  for (size_t first = 0; first < source_.size(); first += row_) {
    std::memcpy(copy_.data() + first, source_.data() + first, row_ * sizeof(float));
  }
}

Digest CopyCase::digest() const { return DigestOfFloats(copy_); }

}  // namespace lockstep::internal
