// Which devices there are.
#include <fmt/format.h>

#include <cstdlib>

#include "caches/device.h"
#include "caches/device/host_executor.h"
#include "caches/error.h"

namespace lockstep {

std::shared_ptr<Device> MakeHostExecutor(const HostExecutorOptions& options) {
  return std::make_shared<HostExecutor>(options);
}

#if !defined(LOCKSTEP_CUDA)
std::shared_ptr<Device> MakeCudaDevice() { return nullptr; }
std::string WhyNoCudaDevice() { return "built without the CUDA Toolkit"; }
#endif

std::shared_ptr<Device> MakeDevice(std::string_view name) {
  if (name == "host-executor") return MakeHostExecutor();
  if (name == "cuda") {
    if (auto device = MakeCudaDevice()) return device;
    throw Error({"device 'cuda'", WhyNoCudaDevice(), "use host-executor"});
  }
  throw Error({fmt::format("device '{}'", name), "is not known", "use host-executor or cuda"});
}

std::shared_ptr<Device> NewDefaultDevice() {
  const char* name = std::getenv("LOCKSTEP_DEVICE");
  return MakeDevice(name != nullptr ? name : "host-executor");
}

const std::shared_ptr<Device>& DefaultDevice() {
  thread_local const std::shared_ptr<Device> device = NewDefaultDevice();
  return device;
}

}  // namespace lockstep
