// What the threads of a checked launch touched, and whether the model allows it (device_kernel.h).
#ifndef LOCKSTEP_CACHES_DEVICE_ACCESS_LOG_H_
#define LOCKSTEP_CACHES_DEVICE_ACCESS_LOG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

namespace lockstep {

// Who touches something. A block's program between two phases is run by every thread of it: it has
// thread -1, and the phase that comes next, because no barrier is in between.
struct Toucher {
  int64_t block = 0;
  int32_t phase = 0;
  int32_t thread = 0;
};

// Of one byte of global memory or one element of a shared array.
class TouchHistory {
 public:
  // The earlier access that has no barrier to this one, if there is one and one of the two writes.
  std::optional<Toucher> Read(const Toucher& by);
  std::optional<Toucher> Write(const Toucher& by);
  bool written() const { return writer_.has_value(); }

 private:
  static bool Apart(const Toucher& a, const Toucher& b) {
    return a.block != b.block || (a.phase == b.phase && (a.thread != b.thread || a.thread < 0));
  }

  std::optional<Toucher> writer_;
  std::optional<Toucher> reader_;        // the last
  std::optional<Toucher> other_reader_;  // the last one that is apart from it
};

class AccessLog {
 public:
  // As above; `address` counts bytes.
  std::optional<Toucher> Global(uintptr_t address, int32_t bytes, bool writes, const Toucher& by);

  struct SharedFinding {
    std::optional<Toucher> earlier;
    bool uninitialised = false;
  };
  SharedFinding Shared(int32_t array, int32_t element, bool writes, const Toucher& by);

  void BeginBlock() { shared_.clear(); }

 private:
  std::unordered_map<uintptr_t, TouchHistory> global_;
  std::map<std::pair<int32_t, int32_t>, TouchHistory> shared_;  // of the block that runs
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_DEVICE_ACCESS_LOG_H_
