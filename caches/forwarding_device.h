// Decorators of a device and of its streams that change nothing: bases for those that count or
// time. Memories, events and graphs are those of the device inside.
#ifndef LOCKSTEP_CACHES_FORWARDING_DEVICE_H_
#define LOCKSTEP_CACHES_FORWARDING_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "caches/device.h"

namespace lockstep {

class ForwardingStream : public DeviceStream {
 public:
  explicit ForwardingStream(std::unique_ptr<DeviceStream> inner) : inner_(std::move(inner)) {}

  void Upload(const void* host, std::byte* device, int64_t bytes) override {
    inner_->Upload(host, device, bytes);
  }
  void Download(const std::byte* device, void* host, int64_t bytes) override {
    inner_->Download(device, host, bytes);
  }
  void Copy(const std::byte* from, std::byte* to, int64_t bytes) override {
    inner_->Copy(from, to, bytes);
  }
  void Fill(std::byte* device, unsigned char value, int64_t bytes) override {
    inner_->Fill(device, value, bytes);
  }
  void Launch(const DeviceKernel& kernel, const DeviceGrid& grid, const void* args) override {
    inner_->Launch(kernel, grid, args);
  }
  void Record(DeviceEvent* event) override { inner_->Record(event); }
  void Wait(const DeviceEvent& event) override { inner_->Wait(event); }
  void BeginCapture() override { inner_->BeginCapture(); }
  std::unique_ptr<DeviceGraph> EndCapture() override { return inner_->EndCapture(); }
  void Launch(const DeviceGraph& graph) override { inner_->Launch(graph); }
  void Synchronize() override { inner_->Synchronize(); }

 private:
  std::unique_ptr<DeviceStream> inner_;
};

// What is left open is which streams it makes.
class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(std::shared_ptr<Device> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  std::string Description() const override { return inner_->Description(); }
  int64_t FreeBytes() const override { return inner_->FreeBytes(); }
  std::unique_ptr<DeviceMemory> Allocate(int64_t bytes) override { return inner_->Allocate(bytes); }
  std::unique_ptr<DeviceEvent> NewEvent() override { return inner_->NewEvent(); }
  std::optional<double> Milliseconds(const DeviceEvent& from, const DeviceEvent& to) override {
    return inner_->Milliseconds(from, to);
  }
  void Synchronize(const DeviceEvent& event) override { inner_->Synchronize(event); }

 protected:
  Device& inner() { return *inner_; }

 private:
  std::shared_ptr<Device> inner_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_FORWARDING_DEVICE_H_
