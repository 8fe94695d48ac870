// The devices that kernel tests run on, and the way of data to and from them.
#ifndef LOCKSTEP_ENGINE_DEVICE_TEST_DEVICE_H_
#define LOCKSTEP_ENGINE_DEVICE_TEST_DEVICE_H_

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caches/device.h"
#include "caches/digest.h"
#include "engine/gguf.h"

namespace lockstep::device_test {

inline constexpr GgmlType kWeightTypes[] = {
    GgmlType::kF32,  GgmlType::kF16,  GgmlType::kBF16, GgmlType::kQ8_0,   GgmlType::kQ4_0,
    GgmlType::kQ4_1, GgmlType::kQ5_0, GgmlType::kQ5_1, GgmlType::kQ2_K,   GgmlType::kQ3_K,
    GgmlType::kQ4_K, GgmlType::kQ5_K, GgmlType::kQ6_K, GgmlType::kIQ4_NL, GgmlType::kIQ4_XS};

inline bool HasWholeBlocks(GgmlType type, int64_t cols) {
  return cols % TraitsOf(type)->block_elements == 0;
}

// A name of a device: "executor0" to "executor2" (orders of blocks and threads, the last on two
// threads of the host), "checked", and "cuda" where LOCKSTEP_DEVICE asks for it.
inline std::shared_ptr<Device> DeviceOf(std::string_view name) {
  if (name == "cuda") return MakeDevice(name);
  if (name == "checked") return MakeHostExecutor({.seed = 5, .checked = true});
  if (name == "executor2") return MakeHostExecutor({.seed = 2, .threads = 2});
  return MakeHostExecutor({.seed = static_cast<uint64_t>(name.back() - '0')});
}

// And a GPU where one is asked for.
inline std::vector<std::string> WithCuda(std::vector<std::string> names) {
  const char* wanted = std::getenv("LOCKSTEP_DEVICE");
  if (wanted != nullptr && std::string_view(wanted) == "cuda") names.emplace_back("cuda");
  return names;
}

inline std::string NameOf(const testing::TestParamInfo<std::string>& param) { return param.param; }

class DeviceTest : public testing::TestWithParam<std::string> {
 protected:
  DeviceTest() : device_(DeviceOf(GetParam())), stream_(device_->NewStream()) {}

  Device& device() { return *device_; }
  DeviceStream& stream() { return *stream_; }

  template <typename T>
  DeviceBuffer<T> Put(std::span<const T> values) {
    DeviceBuffer<T> buffer(*device_, static_cast<int64_t>(values.size()));
    stream_->Upload(values.data(), buffer.address(), static_cast<int64_t>(values.size_bytes()));
    stream_->Synchronize();
    return buffer;
  }
  template <typename T>
  DeviceBuffer<T> Put(const std::vector<T>& values) {
    return Put(std::span<const T>(values));
  }
  DeviceBuffer<uint8_t> PutBytes(std::span<const std::byte> bytes) {
    return Put(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
  }

  template <typename T>
  std::vector<T> Get(const DeviceBuffer<T>& buffer) {
    std::vector<T> values(static_cast<size_t>(buffer.size()));
    stream_->Download(buffer.address(), values.data(),
                      buffer.size() * static_cast<int64_t>(sizeof(T)));
    stream_->Synchronize();
    return values;
  }

 private:
  std::shared_ptr<Device> device_;
  std::unique_ptr<DeviceStream> stream_;
};

// The bits, every NaN as one.
inline void ExpectSameBits(std::span<const float> expected, std::span<const float> actual,
                           const std::string& where) {
  ASSERT_EQ(expected.size(), actual.size()) << where;
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(CanonicalBits(expected[i]), CanonicalBits(actual[i]))
        << where << ", element " << i << ": expected " << expected[i] << ", got " << actual[i];
  }
}

}  // namespace lockstep::device_test

#define LOCKSTEP_ON_DEVICES(Test)                                                                  \
  INSTANTIATE_TEST_SUITE_P(                                                                        \
      Devices, Test,                                                                               \
      testing::ValuesIn(lockstep::device_test::WithCuda({"executor0", "executor1", "executor2"})), \
      lockstep::device_test::NameOf)

// Small cases: of every access, on the executor, and on a GPU under compute-sanitizer, which finds
// them by their name (ci/device-check).
#define LOCKSTEP_ON_CHECKED_DEVICES(Test)                                                   \
  INSTANTIATE_TEST_SUITE_P(Small, Test,                                                     \
                           testing::ValuesIn(lockstep::device_test::WithCuda({"checked"})), \
                           lockstep::device_test::NameOf)

#endif  // LOCKSTEP_ENGINE_DEVICE_TEST_DEVICE_H_
