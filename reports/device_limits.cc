#include "reports/device_limits.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "engine/stopwatch.h"
#include "reports/device/limit_kernels.h"

namespace lockstep {
namespace {

// The least seconds of a few attempts; the first, in which code is loaded, is not among them.
double LeastSeconds(Device& device, DeviceStream& stream, int32_t attempts, bool* device_clock,
                    const std::function<void()>& enqueue) {
  const auto from = device.NewEvent();
  const auto to = device.NewEvent();
  double least = std::numeric_limits<double>::infinity();
  for (int32_t i = 0; i <= attempts; ++i) {
    stream.Synchronize();
    const Stopwatch watch;
    stream.Record(from.get());
    enqueue();
    stream.Record(to.get());
    stream.Synchronize();
    double seconds = watch.seconds();
    const auto milliseconds = device.Milliseconds(*from, *to);
    *device_clock = milliseconds.has_value();
    if (milliseconds) seconds = *milliseconds / 1000.0;
    if (i > 0) least = std::min(least, seconds);
  }
  return least;
}

template <typename Kernel>
std::vector<uint32_t> Results(Device& device, int32_t blocks, int32_t iterations) {
  const int64_t count = int64_t{blocks} * kLimitThreads;
  DeviceBuffer<uint32_t> buffer(device, count);
  std::vector<uint32_t> results(static_cast<size_t>(count));
  const auto stream = device.NewStream();
  Launch<Kernel>(*stream, {.x = blocks}, {iterations, buffer.all()});
  stream->Download(buffer.address(), results.data(), count * 4);
  stream->Synchronize();
  return results;
}

// On a few blocks, against the executor.
template <typename Kernel>
bool IsRight(Device& device) {
  const auto executor = MakeHostExecutor();
  return Results<Kernel>(device, 2, 9) == Results<Kernel>(*executor, 2, 9);
}

template <typename Kernel>
double ChainsPerSecond(Device& device, const DeviceLimitOptions& options, bool* device_clock) {
  const int64_t threads = int64_t{options.blocks} * kLimitThreads;
  DeviceBuffer<uint32_t> results(device, threads);
  const auto stream = device.NewStream();
  const double seconds = LeastSeconds(device, *stream, options.attempts, device_clock, [&] {
    Launch<Kernel>(*stream, {.x = options.blocks}, {options.iterations, results.all()});
  });
  return static_cast<double>(threads) * kLimitChains * options.iterations / seconds;
}

bool CopyIsRight(DeviceStream& stream, const DeviceBuffer<uint8_t>& to, uint8_t value) {
  std::vector<uint8_t> bytes(static_cast<size_t>(std::min<int64_t>(to.size(), 1 << 20)));
  const int64_t count = static_cast<int64_t>(bytes.size());
  stream.Download(to.address(to.size() - count), bytes.data(), count);
  stream.Synchronize();
  return std::ranges::all_of(bytes, [&](uint8_t byte) { return byte == value; });
}

}  // namespace

DeviceLimitOptions DeviceLimitOptionsFor(const Device& device, bool simulated) {
  if (simulated) return {};
  DeviceLimitOptions options;
  // Two buffers in a quarter of what is free, and no more than 2 GiB each. A device that is full,
  // or does not know, gets the small ones: copying nothing has no bandwidth.
  const int64_t least = options.copy_bytes;
  options.copy_bytes = std::clamp(device.FreeBytes() / 8, least, int64_t{2} << 30) / 16 * 16;
  options.blocks = 4096;
  options.iterations = 4096;
  options.attempts = 5;
  return options;
}

DeviceLimits MeasureDeviceLimits(Device& device, const DeviceLimitOptions& options) {
  DeviceLimits limits;
  bool clock = false;
  {
    DeviceBuffer<uint8_t> from(device, options.copy_bytes);
    DeviceBuffer<uint8_t> to(device, options.copy_bytes);
    const auto stream = device.NewStream();
    stream->Fill(from.address(), 0x5a, from.size());
    const int64_t bytes_of_block = int64_t{kLimitThreads} * 16;
    const auto blocks =
        static_cast<int32_t>((options.copy_bytes + bytes_of_block - 1) / bytes_of_block);
    const double seconds = LeastSeconds(device, *stream, options.attempts, &clock, [&] {
      Launch<LimitCopyKernel>(*stream, {.x = blocks}, {from.all(), to.all()});
    });
    limits.copy_bytes_per_second = 2.0 * static_cast<double>(options.copy_bytes) / seconds;
    limits.right = CopyIsRight(*stream, to, 0x5a);
  }
  limits.fmas_per_second = ChainsPerSecond<LimitFmaKernel>(device, options, &clock);
  limits.products_per_second = 4.0 * ChainsPerSecond<LimitDotKernel>(device, options, &clock);
  limits.device_clock = clock;
  limits.right = limits.right && IsRight<LimitFmaKernel>(device) && IsRight<LimitDotKernel>(device);
  return limits;
}

}  // namespace lockstep
