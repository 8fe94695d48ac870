// DeviceRowsCache: what caches with all their rows on one device have in common.
//
// Host-side calls work on a stream of the cache's own and return when their work is done; before,
// they wait for the stream that the last device-side call named. Reading copies the rows that
// changed to the host, once, and shows the copies.
#ifndef LOCKSTEP_CACHES_DEVICE_ROWS_CACHE_H_
#define LOCKSTEP_CACHES_DEVICE_ROWS_CACHE_H_

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "caches/device.h"
#include "caches/device/device_layer.h"
#include "caches/device_kv.h"
#include "caches/kv_cache.h"
#include "caches/quantized_kv_cache.h"

namespace lockstep {

class DeviceRowsCache : public KvCache, public DeviceKv {
 public:
  const KvGeometry& geometry() const override { return options_.geometry; }
  RowType key_type() const override { return options_.key_type; }
  RowType value_type() const override { return options_.value_type; }
  int32_t max_step_rows() const override;

  int32_t length(int32_t layer) const override;
  int32_t current_length() const override;
  void View(int32_t layer, KvView* view) const override;
  void ViewForQuery(int32_t layer, int32_t position, KvView* view) const override;
  bool view_depends_on_query() const override { return options_.window > 0; }

  // Also std::invalid_argument for more than max_step_rows() rows when there is a window.
  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override;

  // No rows on the host to hand out: always nullopt [R3].
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override;
  // Publishes no device slot: that is CommitDeviceSlot's.
  void CommitSlot(int32_t layer, std::span<const int32_t> positions) override;

  DeviceKv* device_kv(int32_t layer) override;

  void Rollback(int32_t length) override;
  void Clear() override;
  std::unique_ptr<KvCache> Fork() override;  // a deep copy, the step in progress included

  // As QuantizedKvCache's: of the encoded rows alone.
  Digest StorageDigest() const override;
  void SaveState(StateWriter* writer) const override;
  void LoadState(StateReader* reader) override;

  Device& device() override { return *device_; }
  DeviceKvSlot RowsOnDevice(int32_t layer) const override;
  std::optional<DeviceKvSlot> TryReserveDeviceSlot(int32_t layer,
                                                   std::span<const int32_t> positions,
                                                   DeviceStream& stream) override;
  void CommitDeviceSlot(int32_t layer, std::span<const int32_t> positions,
                        DeviceStream& stream) override;
  void UpdateOnDevice(int32_t layer, std::span<const int32_t> positions, Global<const float> keys,
                      Global<const float> values, DeviceStream& stream) override;
  DeviceKvView ViewOnDevice(int32_t layer, std::span<const int32_t> positions,
                            DeviceStream& stream) override;

 protected:
  // `kind` is what error messages and files call it. A null device is DefaultDevice().
  DeviceRowsCache(std::string_view kind, const QuantizedKvOptions& options,
                  std::shared_ptr<Device> device);

  const QuantizedKvOptions& options() const { return options_; }
  const std::shared_ptr<Device>& shared_device() const { return device_; }
  // An empty cache of the same kind, options and device.
  virtual std::unique_ptr<DeviceRowsCache> MakeEmpty() const = 0;

 private:
  friend class HybridKvCache;
  // Of a restored file: the layer's rows, keys before values. REQUIRES: the cache is cleared.
  void LoadRows(int32_t layer, int32_t length, StateReader* reader);

  DeviceLayer& layer_at(int32_t layer) { return layers_[static_cast<size_t>(layer)]; }
  const DeviceLayer& layer_at(int32_t layer) const { return layers_[static_cast<size_t>(layer)]; }
  // The layer with the host's copies as its rows are now. Const calls may come together.
  const DeviceLayer& Fresh(int32_t layer) const;
  // Returns when what callers enqueued is done.
  void WaitForCallers() const;
  // From now on host-side calls wait for this stream.
  void UseStream(DeviceStream& stream);
  template <typename RowsOf>
  void Write(int32_t layer, std::span<const int32_t> positions, int32_t end, DeviceStream& stream,
             RowsOf&& rows_of);

  std::string_view kind_;
  QuantizedKvOptions options_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<DeviceStream> stream_;  // of host-side calls
  // Rows of floats that an Update brings, [kRowsOfLaunch, kv_stride] each.
  DeviceBuffer<float> arriving_keys_, arriving_values_;
  std::optional<unsigned char> poison_;
  mutable std::vector<DeviceLayer> layers_;  // [num_layers]; const calls refresh the host's copies
  std::shared_ptr<DeviceStream* const> callers_;  // the stream that callers use; null: none did
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_DEVICE_ROWS_CACHE_H_
