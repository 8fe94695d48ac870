// Rows on a device, with a copy on the host of those that somebody read there.
#ifndef LOCKSTEP_CACHES_DEVICE_MIRRORED_ROWS_H_
#define LOCKSTEP_CACHES_DEVICE_MIRRORED_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "caches/aligned_buffer.h"
#include "caches/device.h"

namespace lockstep {

// Rows whose copy on the host is out of date.
class StaleRows {
 public:
  explicit StaleRows(int64_t rows) : stale_(static_cast<size_t>(rows)) {}

  void Mark(int64_t first, int64_t count) {
    if (count <= 0) return;
    Set(first, count, true);
    begin_ = std::min(begin_, first);
    end_ = std::max(end_, first + count);
  }
  // Rows that nobody reads any more.
  void Forget(int64_t first, int64_t count) { Set(first, count, false); }

  // visit(first, count) for each run of rows that are out of date; then none is.
  template <typename Visit>
  void Refresh(Visit&& visit) {
    for (int64_t row = begin_; row < end_;) {
      const int64_t first = row;
      while (row < end_ && stale_[static_cast<size_t>(row)]) ++row;
      if (row > first) visit(first, row - first);
      while (row < end_ && !stale_[static_cast<size_t>(row)]) ++row;
    }
    Set(begin_, end_ - begin_, false);
    begin_ = std::ssize(stale_);
    end_ = 0;
  }

 private:
  void Set(int64_t first, int64_t count, bool stale) {
    if (count <= 0) return;
    std::fill_n(stale_.begin() + first, count, stale);
  }

  std::vector<bool> stale_;
  int64_t begin_ = std::ssize(stale_);  // rows outside [begin, end) are up to date
  int64_t end_ = 0;
};

// K or V. Nothing allocates after construction.
class MirroredRows {
 public:
  MirroredRows(Device& device, int64_t rows, int64_t row_bytes)
      : row_bytes_(row_bytes), device_(device, rows * row_bytes), host_(rows * row_bytes) {}

  Global<uint8_t> on_device() const { return device_.all(); }
  // Of rows that are binary16.
  Global<uint16_t> halves_on_device() const {
    return {reinterpret_cast<uint16_t*>(device_.address()), device_.size() / 2};
  }

  std::span<const std::byte> OnHost(int64_t first, int64_t count) const {
    return host_.span().subspan(static_cast<size_t>(first * row_bytes_),
                                static_cast<size_t>(count * row_bytes_));
  }
  std::span<std::byte> OnHost(int64_t first, int64_t count) {
    return host_.span().subspan(static_cast<size_t>(first * row_bytes_),
                                static_cast<size_t>(count * row_bytes_));
  }

  void Download(int64_t first, int64_t count, DeviceStream& stream) {
    stream.Download(device_.address(first * row_bytes_), OnHost(first, count).data(),
                    count * row_bytes_);
  }
  void Upload(int64_t first, int64_t count, DeviceStream& stream) {
    stream.Upload(OnHost(first, count).data(), device_.address(first * row_bytes_),
                  count * row_bytes_);
  }
  void CopyFrom(const MirroredRows& other, int64_t first, int64_t count, DeviceStream& stream) {
    stream.Copy(other.device_.address(first * row_bytes_), device_.address(first * row_bytes_),
                count * row_bytes_);
  }

  // Fills rows that are gone with the poison, where there is one.
  void Poison(int64_t first, int64_t count, DeviceStream& stream) {
    if (!host_.poison() || count <= 0) return;
    stream.Fill(device_.address(first * row_bytes_), *host_.poison(), count * row_bytes_);
    host_.Poison(OnHost(first, count));
  }

 private:
  int64_t row_bytes_;
  DeviceBuffer<uint8_t> device_;   // [rows, row_bytes]
  AlignedBuffer<std::byte> host_;  // the same
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_DEVICE_MIRRORED_ROWS_H_
