// Checked mode: who touched which byte of device memory and which shared element last, and whether
// the model (caches/device_kernel.h, caches/device.h) puts an order between two touches.
//
// A unit is one block of a launch, one copy or one fill. Within a unit, barriers order phases.
// Units of one launch have no order. Work of one stream is in order; work of two streams is when an
// event or a wait of the host lies between them, which clocks tell: FastTrack's epochs (Flanagan,
// Freund, "FastTrack: Efficient and Precise Dynamic Race Detection", PLDI 2009) with two readers at
// most.
#ifndef LOCKSTEP_CACHES_DEVICE_ACCESS_LOG_H_
#define LOCKSTEP_CACHES_DEVICE_ACCESS_LOG_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// clock[s]: how much work of stream s comes before.
using StreamClock = std::vector<uint32_t>;
void Join(StreamClock* into, const StreamClock& other);

// Who touched something; unit 0 is nobody. A block's program between two phases is run by every
// thread of it: it has thread -1, and the phase that comes next, because no barrier is in between.
struct Touch {
  static constexpr uint32_t kThreadBits = 12;

  uint32_t unit = 0;
  uint32_t at = 0;  // phase and thread + 1

  int32_t thread() const { return static_cast<int32_t>(at & ((1u << kThreadBits) - 1)) - 1; }
  uint32_t phase() const { return at >> kThreadBits; }
};

// Of one byte of global memory or one element of a shared array. All zero: nobody touched it.
struct TouchHistory {
  Touch writer;
  Touch reader;        // the last
  Touch other_reader;  // the last that has no order with it
};

// A memory of the device; `history` has an entry a byte, and is there in checked mode alone.
struct ShadowMemory {
  struct Free {
    void operator()(TouchHistory* entries) const { std::free(entries); }
  };
  int64_t number = 0;  // of all that the device allocated, from 1
  uintptr_t address = 0;
  int64_t bytes = 0;
  std::unique_ptr<TouchHistory[], Free> history;
};

// The memories that are alive.
class DeviceMemories {
 public:
  explicit DeviceMemories(bool checked) : checked_(checked) {}
  void Add(const void* address, int64_t bytes);  // throws std::bad_alloc
  void Remove(const void* address) { live_.erase(reinterpret_cast<uintptr_t>(address)); }
  // The one that all of the bytes lie in; null when there is none.
  ShadowMemory* Find(const void* address, int64_t bytes);

 private:
  bool checked_;
  int64_t count_ = 0;
  std::map<uintptr_t, ShadowMemory> live_;
};

class AccessLog {
 public:
  // A kernel, or a copy or fill; `before` is what comes before it, itself included.
  void BeginWork(const char* name, int32_t stream, const StreamClock& before);
  void BeginUnit();

  struct Finding {
    Touch earlier;               // without an order to the access, one of the two writes
    bool uninitialised = false;  // read, and nobody wrote it
  };
  // By the running unit; the first byte or element that is wrong.
  std::optional<Finding> Global(ShadowMemory* memory, int64_t first, int64_t bytes, bool writes,
                                uint32_t at);
  std::optional<Finding> Shared(int32_t array, int32_t element, bool writes, uint32_t at);
  // Bytes that nobody wrote are still such bytes after a copy.
  std::optional<Finding> Copy(ShadowMemory* from, int64_t from_first, ShadowMemory* to,
                              int64_t to_first, int64_t bytes);

  bool SameWork(const Touch& touch) const { return work_of_unit_[touch.unit] == current_; }
  // "block 3 of kernel add, thread 5", "the copy to the device on stream 1".
  std::string Describe(const Touch& touch) const;

 private:
  struct Work {
    const char* name;
    int32_t stream;
    uint32_t clock;       // of its stream
    uint32_t first_unit;  // so that units become blocks, in the order in which they ran
  };
  bool Ordered(const Touch& earlier, const Touch& now) const;
  std::optional<Finding> Read(TouchHistory* history, const Touch& now) const;
  std::optional<Finding> Write(TouchHistory* history, const Touch& now) const;
  Touch Now(uint32_t at) const {
    return {.unit = static_cast<uint32_t>(work_of_unit_.size() - 1), .at = at};
  }

  std::vector<uint32_t> work_of_unit_ = {0};  // unit 0 is nobody
  std::vector<Work> works_;
  uint32_t current_ = 0;  // work
  StreamClock before_;
  std::vector<std::vector<TouchHistory>> shared_;  // [array][element]; older units are nobody
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_DEVICE_ACCESS_LOG_H_
