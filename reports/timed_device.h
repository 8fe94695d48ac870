// A device that says how long it worked: for timings of what runs on it, such as a Transformer,
// without a word about them there.
#ifndef LOCKSTEP_REPORTS_TIMED_DEVICE_H_
#define LOCKSTEP_REPORTS_TIMED_DEVICE_H_

#include <memory>
#include <utility>

#include "caches/forwarding_device.h"
#include "engine/stopwatch.h"

namespace lockstep {

class TimedDevice final : public ForwardingDevice {
 public:
  struct Seconds {
    double device = 0;  // by its events, from the first work behind a wait to the next wait, summed
    double host = 0;    // by the host's clock, likewise
    bool device_clock = false;  // `device` means something
  };

  using ForwardingDevice::ForwardingDevice;

  std::unique_ptr<DeviceStream> NewStream() override {
    return std::make_unique<Stream>(inner().NewStream(), this);
  }

  // What all streams worked since the call before. REQUIRES: they were synchronised.
  Seconds Take() { return std::exchange(seconds_, {}); }

 private:
  class Stream final : public ForwardingStream {
   public:
    Stream(std::unique_ptr<DeviceStream> inner, TimedDevice* device)
        : ForwardingStream(std::move(inner)),
          device_(*device),
          from_(device->NewEvent()),
          to_(device->NewEvent()) {}

    void Upload(const void* host, std::byte* device, int64_t bytes) override {
      Begin();
      ForwardingStream::Upload(host, device, bytes);
    }
    void Download(const std::byte* device, void* host, int64_t bytes) override {
      Begin();
      ForwardingStream::Download(device, host, bytes);
    }
    void Copy(const std::byte* from, std::byte* to, int64_t bytes) override {
      Begin();
      ForwardingStream::Copy(from, to, bytes);
    }
    void Fill(std::byte* device, unsigned char value, int64_t bytes) override {
      Begin();
      ForwardingStream::Fill(device, value, bytes);
    }
    void Launch(const DeviceKernel& kernel, const DeviceGrid& grid, const void* args) override {
      Begin();
      ForwardingStream::Launch(kernel, grid, args);
    }
    void Launch(const DeviceGraph& graph) override {
      Begin();
      ForwardingStream::Launch(graph);
    }
    void BeginCapture() override {
      recording_ = true;
      ForwardingStream::BeginCapture();
    }
    std::unique_ptr<DeviceGraph> EndCapture() override {
      recording_ = false;
      return ForwardingStream::EndCapture();
    }
    void Synchronize() override {
      if (working_) Record(to_.get());
      ForwardingStream::Synchronize();
      if (!std::exchange(working_, false)) return;
      const auto milliseconds = device_.Milliseconds(*from_, *to_);
      device_.seconds_.device_clock = milliseconds.has_value();
      device_.seconds_.device += milliseconds.value_or(0) / 1e3;
      device_.seconds_.host += watch_.seconds();
    }

   private:
    void Begin() {
      if (recording_ || std::exchange(working_, true)) return;
      watch_ = {};
      Record(from_.get());
    }

    TimedDevice& device_;
    std::unique_ptr<DeviceEvent> from_, to_;
    Stopwatch watch_;
    bool recording_ = false;
    bool working_ = false;
  };

  Seconds seconds_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_TIMED_DEVICE_H_
