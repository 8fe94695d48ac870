// HybridKvCache: the first layers on a device, as CudaKvCache keeps them, the rest on the host, as
// QuantizedKvCache keeps F16 rows. All layers have one row type, so where a layer lies changes no
// bit [H1].
#ifndef LOCKSTEP_CACHES_HYBRID_KV_CACHE_H_
#define LOCKSTEP_CACHES_HYBRID_KV_CACHE_H_

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "caches/cuda_kv_cache.h"
#include "caches/kv_cache.h"
#include "caches/quantized_kv_cache.h"

namespace lockstep {

struct HybridKvOptions {
  KvGeometry geometry;
  int32_t device_layers = 0;                 // the first ones; those that there are, if it is more
  std::shared_ptr<Device> device = nullptr;  // null: DefaultDevice()
};

class HybridKvCache final : public KvCache {
 public:
  // std::invalid_argument when a dimension is not positive, device_layers is negative or the size
  // overflows.
  explicit HybridKvCache(const HybridKvOptions& options);

  const KvGeometry& geometry() const override { return options_.geometry; }
  std::string name() const override;  // "hybrid/1"
  RowType key_type() const override { return RowType::kF16; }
  RowType value_type() const override { return RowType::kF16; }

  int32_t length(int32_t layer) const override;
  int32_t current_length() const override;
  void View(int32_t layer, KvView* view) const override;

  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override;

  // No F32 rows to hand out at any layer: always nullopt [R3].
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override;
  void CommitSlot(int32_t layer, std::span<const int32_t> positions) override;

  // Of the device's layers; null for the others.
  DeviceKv* device_kv(int32_t layer) override;

  void Rollback(int32_t length) override;
  void Clear() override;
  std::unique_ptr<KvCache> Fork() override;  // a deep copy

  Digest StorageDigest() const override;
  // Which layers lie on the device is not in the file.
  void SaveState(StateWriter* writer) const override;
  void LoadState(StateReader* reader) override;

 private:
  // The half that holds a layer, and the layer's number there.
  struct Place {
    KvCache* cache;
    int32_t layer;
  };
  Place PlaceOf(int32_t layer) const;  // std::out_of_range when there is no such layer

  HybridKvOptions options_;
  int32_t device_layers_;                      // at most num_layers
  std::unique_ptr<CudaKvCache> on_device_;     // null without layers there
  std::unique_ptr<QuantizedKvCache> on_host_;  // likewise
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_HYBRID_KV_CACHE_H_
