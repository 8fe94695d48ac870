// SimpleKvCache: rows as plain F32 in one contiguous buffer. The reference of all caches: nothing
// to allocate, evict or encode after construction.
#ifndef LOCKSTEP_CACHES_SIMPLE_KV_CACHE_H_
#define LOCKSTEP_CACHES_SIMPLE_KV_CACHE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "caches/aligned_buffer.h"
#include "caches/kv_cache.h"
#include "caches/kv_checks.h"
#include "caches/kv_layout.h"

namespace lockstep {

// Invariants: rows [0, length) of a layer were written or are +0.0f; rows past it are never read.
// Row 0 of each layer is 64-byte aligned, and so is every row when kv_stride is a multiple of 16.
class SimpleKvCache final : public KvCache {
 public:
  // std::invalid_argument when a dimension is not positive or the size overflows.
  explicit SimpleKvCache(const KvGeometry& geometry);

  const KvGeometry& geometry() const override { return geometry_; }
  std::string name() const override { return "simple"; }
  RowType key_type() const override { return RowType::kF32; }
  RowType value_type() const override { return RowType::kF32; }

  int32_t length(int32_t layer) const override;
  int32_t current_length() const override;
  void View(int32_t layer, KvView* view) const override;

  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override;

  // A refusal leaves an open reservation of the layer in place.
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override;
  void CommitSlot(int32_t layer, std::span<const int32_t> positions) override;

  void Rollback(int32_t length) override;
  void Clear() override;
  std::unique_ptr<KvCache> Fork() override;  // a deep copy

  Digest StorageDigest() const override;
  void SaveState(StateWriter* writer) const override;
  void LoadState(StateReader* reader) override;

 private:
  struct Layer {
    int32_t length = 0;
    std::optional<PositionRun> reservation;
  };

  Layer& layer_at(int32_t layer) { return layers_[static_cast<size_t>(layer)]; }
  const Layer& layer_at(int32_t layer) const { return layers_[static_cast<size_t>(layer)]; }
  std::span<float> KeyRows(int32_t layer, int32_t first, int32_t count);
  std::span<float> ValueRows(int32_t layer, int32_t first, int32_t count);
  std::span<const float> KeyRows(int32_t layer, int32_t first, int32_t count) const;
  std::span<const float> ValueRows(int32_t layer, int32_t first, int32_t count) const;

  // Makes rows [length, end) of the layer +0.0f; they become visible when the caller says so.
  void ZeroGap(int32_t layer, int32_t end);

  KvGeometry geometry_;
  RowLayout layout_;             // in elements
  AlignedBuffer<float> keys_;    // [num_layers, max_length, kv_stride], layers padded
  AlignedBuffer<float> values_;  // [num_layers, max_length, kv_stride], layers padded
  std::vector<Layer> layers_;    // [num_layers]
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_SIMPLE_KV_CACHE_H_
