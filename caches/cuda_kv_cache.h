// CudaKvCache: rows as F16 on a device (caches/device.h), a CUDA device or the host executor. The
// engine on the device reserves, writes and reads them there (caches/device_kv.h).
#ifndef LOCKSTEP_CACHES_CUDA_KV_CACHE_H_
#define LOCKSTEP_CACHES_CUDA_KV_CACHE_H_

#include <memory>
#include <string>
#include <utility>

#include "caches/device/rows_cache.h"

namespace lockstep {

class CudaKvCache final : public DeviceRowsCache {
 public:
  // std::invalid_argument when a dimension is not positive or the size overflows. A null device is
  // DefaultDevice().
  explicit CudaKvCache(const KvGeometry& geometry, std::shared_ptr<Device> device = nullptr)
      : DeviceRowsCache(
            "cuda", {.geometry = geometry, .key_type = RowType::kF16, .value_type = RowType::kF16},
            std::move(device)) {}

  std::string name() const override { return "cuda"; }

 private:
  std::unique_ptr<DeviceRowsCache> MakeEmpty() const override {
    return std::make_unique<CudaKvCache>(options().geometry, shared_device());
  }
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_CUDA_KV_CACHE_H_
