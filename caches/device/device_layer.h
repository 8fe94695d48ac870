// One layer of a cache on a device: its rows, its exact rows, and which of them are held.
#ifndef LOCKSTEP_CACHES_DEVICE_DEVICE_LAYER_H_
#define LOCKSTEP_CACHES_DEVICE_DEVICE_LAYER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "caches/device.h"
#include "caches/device/mirrored_rows.h"
#include "caches/device/row_kernels.h"
#include "caches/device_kv.h"
#include "caches/kv_checks.h"
#include "caches/quantized/show_rows.h"
#include "caches/quantized/window_index.h"
#include "caches/quantized_kv_cache.h"

namespace lockstep {

// Where rows of floats lie on the device: [n, kv_stride] each.
struct FloatRows {
  Global<const float> keys;
  Global<const float> values;
};

// Every call that takes a stream enqueues work there and returns. Nothing allocates after
// construction. Arguments were checked.
class DeviceLayer {
 public:
  // `options` are checked ones.
  DeviceLayer(Device& device, const QuantizedKvOptions& options);

  int32_t length() const { return length_; }
  const std::optional<PositionRun>& reservation() const { return reservation_; }
  DeviceKvSlot Rows() const;

  // ---- Writing -----------------------------------------------------------------------------

  struct Ends {
    int32_t gap_end = 0;  // of the rows that become zeros
    int32_t end = 0;      // 1 + the highest position
  };
  // Begins to write these rows, in their order: what they replace settles, the gap becomes zeros.
  // Then come the rows themselves, in pieces of at most kRowsOfLaunch.
  void BeginUpdate(std::span<const int32_t> positions, const Ends& ends, DeviceStream& stream);
  // Rows [first, first + positions.size()) of them.
  void Store(std::span<const int32_t> positions, size_t first, const FloatRows& rows,
             DeviceStream& stream);

  DeviceKvSlot Reserve(const PositionRun& run, DeviceStream& stream);
  void Publish(DeviceStream& stream);
  void CancelReservation();

  void Rollback(int32_t length, DeviceStream& stream);
  void CopyFrom(const DeviceLayer& other, DeviceStream& stream);

  // ---- Reading -----------------------------------------------------------------------------

  // Enqueues the copies to the host of all rows that changed. True when there were any.
  bool Refresh(DeviceStream& stream);

  // Of the host's copies. REQUIRES: they were refreshed.
  void Show(int32_t position, int32_t step_row, KvView* view) const;
  int32_t StepRowOf(int32_t position) const { return window_ ? window_->StepRowOf(position) : 0; }
  int32_t LastStepRow() const { return window_ ? window_->LastStepRow() : 0; }
  std::span<const std::byte> Keys() const { return keys_.OnHost(0, length_); }
  std::span<const std::byte> Values() const { return values_.OnHost(0, length_); }
  // The row of a position that is held, or -1.
  int64_t HeldRow(int32_t position) const;
  std::span<const std::byte> ExactKeys(int64_t row) const { return exact_[0].OnHost(row, 1); }
  std::span<const std::byte> ExactValues(int64_t row) const { return exact_[1].OnHost(row, 1); }

  DeviceKvView ViewOnDevice(std::span<const int32_t> positions, Device& device,
                            DeviceStream& stream);

  // ---- Restoring: the layer is empty -------------------------------------------------------

  struct RestoredRow {
    std::span<std::byte> key;
    std::span<std::byte> value;
  };
  // The host's copies of rows [0, length), to be filled before Upload.
  RestoredRow Restore(int32_t length);
  RestoredRow RestoreHeld(int32_t position);
  void Upload(DeviceStream& stream);

 private:
  std::array<device::LayerHalf, 2> Halves() const;
  void Settle(DeviceStream& stream);
  void ZeroGap(int32_t end, DeviceStream& stream);
  // Of the query at `position`, where it finds row p exactly; -1: nowhere.
  int64_t ExactRowOf(int32_t position, int32_t p) const;

  const QuantizedKvOptions& options_;
  int32_t length_ = 0;
  std::optional<PositionRun> reservation_;
  MirroredRows keys_, values_;
  StaleRows stale_;
  std::optional<WindowIndex> window_;
  std::vector<MirroredRows> exact_;  // keys and values, by row of the window; none without one
  StaleRows stale_exact_;

  // What ViewOnDevice uploads, [max_step_rows, slots], from where, and since when it may change.
  DeviceBuffer<int32_t> exact_rows_;
  std::vector<int32_t> exact_rows_on_host_;
  std::unique_ptr<DeviceEvent> uploaded_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_DEVICE_DEVICE_LAYER_H_
