// What a cache with rows on a device offers to an engine that computes there: reserve, write in
// place, commit and read, all in device memory. The rules are those of host slots (the clauses in
// brackets are caches/CONTRACT.md's); rows are encoded by the kernel that computes them, so nothing
// is copied.
//
// Work is enqueued on the stream that the caller names, one stream for all calls between two
// synchronisations of it. The cache's host side (Update, View, digests, files) waits by itself for
// all work of that stream, whoever enqueued it, as long as the stream lives. So it may not be
// called while the stream is being captured.
//
// A whole step may be reserved, viewed and recorded first and committed afterwards: until its
// commit a reservation shows neither in the host's views nor in anything but ViewOnDevice.
#ifndef LOCKSTEP_CACHES_DEVICE_KV_H_
#define LOCKSTEP_CACHES_DEVICE_KV_H_

#include <cstdint>
#include <optional>
#include <span>

#include "caches/device.h"
#include "caches/kv_cache.h"

namespace lockstep {

// Where the rows of a run of positions go: row i of the step, at positions[0] + i, is encoded into
// row positions[0] + i of `keys` and `values` and, with a window, rounded to F16 into row
// exact_first + i of `exact_keys` and `exact_values`. Addresses depend on neither the positions nor
// the step, so that a recorded graph stays right; only `first` and `exact_first` change.
struct DeviceKvSlot {
  int32_t first = 0;  // position of the step's first row
  int32_t count = 0;
  RowType key_type = RowType::kF32;
  RowType value_type = RowType::kF32;
  Global<uint8_t> keys;    // the layer's rows from position 0, [max_length, RowBytes(key_type)]
  Global<uint8_t> values;  // likewise
  int32_t exact_first = 0;
  Global<uint16_t> exact_keys;    // binary16, [exact rows, kv_stride]; empty without a window
  Global<uint16_t> exact_values;  // likewise
};

// What the queries of a step read at one layer. Query i, at positions[i], reads row p, p <=
// positions[i], from row exact_rows[i * window + p % window] of the exact rows when positions[i] -
// p < window and that entry is >= 0, else from row p of the encoded rows.
struct DeviceKvView {
  int32_t length = 0;  // rows
  RowType key_type = RowType::kF32;
  RowType value_type = RowType::kF32;
  Global<const uint8_t> keys;           // [max_length, RowBytes(key_type)]
  Global<const uint8_t> values;         // likewise
  int32_t window = 0;                   // 0: all rows are read encoded
  Global<const int32_t> exact_rows;     // [queries, window]
  Global<const uint16_t> exact_keys;    // binary16, [exact rows, kv_stride]
  Global<const uint16_t> exact_values;  // likewise
};

class DeviceKv {
 public:
  virtual ~DeviceKv() = default;

  virtual Device& device() = 0;

  // Where the layer's rows lie, whatever is reserved: `first`, `count` and `exact_first` are 0.
  // REQUIRES: 0 <= layer < num_layers, else std::out_of_range.
  virtual DeviceKvSlot RowsOnDevice(int32_t layer) const = 0;

  // As KvCache::TryReserveSlot: nullopt, without an observable change, for what R2 refuses and for
  // more than max_step_rows() rows [R1, R2, R5, R6].
  virtual std::optional<DeviceKvSlot> TryReserveDeviceSlot(int32_t layer,
                                                           std::span<const int32_t> positions,
                                                           DeviceStream& stream) = 0;

  // As KvCache::CommitSlot [C1, C2]; the rows were written by work enqueued on the stream before.
  virtual void CommitDeviceSlot(int32_t layer, std::span<const int32_t> positions,
                                DeviceStream& stream) = 0;

  // As KvCache::Update, from rows of floats on the device: the legacy path, which copies. `keys`
  // and `values` have n * kv_stride elements [U1 - U7].
  virtual void UpdateOnDevice(int32_t layer, std::span<const int32_t> positions,
                              Global<const float> keys, Global<const float> values,
                              DeviceStream& stream) = 0;

  // What queries at `positions` (increasing) read: after their rows were committed or updated, or
  // with their reservation still open, as they will read once it is committed. `exact_rows` is
  // uploaded on the stream, into memory of the cache that is the layer's own and always the same.
  // REQUIRES: every position is below length(layer) or in the open reservation, and all of them are
  // in it or none is: its commit pushes rows out of the window that earlier queries still read
  // exactly, so there is no moment at which a mixed view is right. At most max_step_rows() of them
  // when there is a window.
  virtual DeviceKvView ViewOnDevice(int32_t layer, std::span<const int32_t> positions,
                                    DeviceStream& stream) = 0;

 protected:
  DeviceKv() = default;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_DEVICE_KV_H_
