// CudaQuantizedKvCache: as QuantizedKvCache, on a device (caches/device.h). The exact rows of its
// window are F16, as those of a QuantizedKvCache with that window_type, bit for bit.
#ifndef LOCKSTEP_CACHES_CUDA_QUANTIZED_KV_CACHE_H_
#define LOCKSTEP_CACHES_CUDA_QUANTIZED_KV_CACHE_H_

#include <memory>
#include <string>
#include <utility>

#include "caches/device/rows_cache.h"

namespace lockstep {

class CudaQuantizedKvCache final : public DeviceRowsCache {
 public:
  // std::invalid_argument as QuantizedKvCache, whose options these are; window_type does not count.
  // A null device is DefaultDevice().
  explicit CudaQuantizedKvCache(const QuantizedKvOptions& options,
                                std::shared_ptr<Device> device = nullptr)
      : DeviceRowsCache("cuda-quantized", options, std::move(device)) {}

  // "cuda-quantized/q8_0+q4_0/w4"
  std::string name() const override {
    QuantizedKvOptions rows = options();
    rows.window_type = RowType::kF32;  // there is but one
    return "cuda-quantized/" + RowsName(rows);
  }

 private:
  std::unique_ptr<DeviceRowsCache> MakeEmpty() const override {
    return std::make_unique<CudaQuantizedKvCache>(options(), shared_device());
  }
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_CUDA_QUANTIZED_KV_CACHE_H_
