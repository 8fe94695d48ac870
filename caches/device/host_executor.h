// The host executor: a device whose memory is the host's and whose kernels run on the CPU.
//
// Work is kept in a queue for each stream and runs when somebody waits. What the model leaves open
// is decided by the seed: which stream's work runs next, the order of blocks, the order of threads
// in each phase. With seed 0 everything runs in the order in which it was enqueued, as far as waits
// let it.
#ifndef LOCKSTEP_CACHES_DEVICE_HOST_EXECUTOR_H_
#define LOCKSTEP_CACHES_DEVICE_HOST_EXECUTOR_H_

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "caches/device.h"
#include "caches/device/access_log.h"
#include "caches/device/block_team.h"
#include "caches/device/host_stream.h"
#include "caches/device_host_block.h"
#include "caches/random.h"

namespace lockstep {

class HostExecutor final : public Device {
 public:
  explicit HostExecutor(const HostExecutorOptions& options);

  std::string_view name() const override { return "host-executor"; }
  std::string Description() const override;
  int64_t FreeBytes() const override;
  std::unique_ptr<DeviceMemory> Allocate(int64_t bytes) override;
  std::unique_ptr<DeviceStream> NewStream() override;
  std::unique_ptr<DeviceEvent> NewEvent() override;
  std::optional<double> Milliseconds(const DeviceEvent& from, const DeviceEvent& to) override;
  void Synchronize(const DeviceEvent& event) override;

  // For what belongs to the device. Whoever looks at a queue or at an event holds this; work runs
  // under it.
  std::recursive_mutex& mutex() { return mutex_; }
  void Add(HostStream* stream);
  void Remove(HostStream* stream);
  void Forget(const DeviceMemory& memory);
  // Runs work, of any stream, until `stream` has none.
  void Drain(const HostStream& stream);
  void DrainAll();
  void MakeRoom(const HostStream& stream);
  // Throws DeviceError that begins with `call` unless one memory holds all of the bytes.
  void RequireMemory(const char* call, const std::byte* address, int64_t bytes);
  // Checked mode: the host waited for what the clock counts.
  void HostWaited(const StreamClock& clock);
  const std::shared_ptr<const StreamClock>& host_clock() const { return host_clock_; }
  uint64_t NextNumber() { return next_number_++; }  // of a piece of work

 private:
  bool Runnable(const HostStream& stream) const;
  // One piece of work of a stream that can go on.
  void RunOne();
  void Run(HostStream* stream, const HostWork& work);
  // The event of a record, also of a stream that failed: who waits for it fails as well.
  void Reach(const HostStream& stream, const HostWork& work);
  void RunKernel(const HostWork& work);
  void RunBlock(const HostWork& work, int32_t member, int64_t index);
  void CheckCopy(const HostWork& work);

  struct Shared {
    alignas(64) std::byte bytes[kCheckedSharedBytes];
  };

  std::recursive_mutex mutex_;  // guards everything below
  HostExecutorOptions options_;
  Random random_;
  BlockTeam team_;
  std::vector<std::unique_ptr<Shared>> shared_;  // of each member of the team
  std::vector<HostStream*> streams_;             // in the order in which they were made
  uint64_t next_number_ = 0;
  DeviceMemories memories_;

  // Of the launch that runs.
  uint64_t first_block_ = 0;
  uint64_t block_factor_ = 1;
  std::optional<Random> thread_orders_;

  // Checked mode.
  AccessLog log_;
  std::vector<StreamClock> clocks_;    // that a stream of this number left, for the next one
  std::vector<int32_t> free_numbers_;  // of streams that are gone
  std::shared_ptr<const StreamClock> host_clock_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_DEVICE_HOST_EXECUTOR_H_
