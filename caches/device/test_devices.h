// The devices that tests of the device layer and of its caches run on: the executor in several
// orders and checked, and a GPU. A test of a GPU is skipped where there is none, and says why;
// where LOCKSTEP_DEVICE=cuda asks for one it fails.
#ifndef LOCKSTEP_CACHES_DEVICE_TEST_DEVICES_H_
#define LOCKSTEP_CACHES_DEVICE_TEST_DEVICES_H_

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "caches/device.h"

namespace lockstep::device_test {

struct TestDevice {
  HostExecutorOptions executor = {};
  bool cuda = false;

  std::string Name() const {
    if (cuda) return "cuda";
    return fmt::format("seed{}{}", executor.seed, executor.checked ? "_checked" : "");
  }
  // Empty: it can be made here.
  std::string WhyNot() const { return cuda ? WhyNoCudaDevice() : ""; }
  // Where it cannot, the executor, for fixtures whose tests are skipped.
  std::shared_ptr<Device> Make() const {
    return cuda && WhyNot().empty() ? MakeCudaDevice() : MakeHostExecutor(executor);
  }
};

inline auto TestDevices() {
  return testing::Values(
      TestDevice{}, TestDevice{.executor = {.seed = 1}}, TestDevice{.executor = {.seed = 2}},
      TestDevice{.executor = {.seed = 3, .checked = true}}, TestDevice{.cuda = true});
}

inline void SkipWithout(const TestDevice& device) {
  const std::string why = device.WhyNot();
  if (why.empty()) return;
  const char* wanted = std::getenv("LOCKSTEP_DEVICE");
  if (wanted != nullptr && std::string_view(wanted) == "cuda") FAIL() << why;
  GTEST_SKIP() << why;
}

}  // namespace lockstep::device_test

#endif  // LOCKSTEP_CACHES_DEVICE_TEST_DEVICES_H_
