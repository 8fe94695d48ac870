// Kernels over rows against the scalar table, bit for bit.
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/device/kernels.h"
#include "engine/device/test_device.h"
#include "engine/kernels/test_inputs.h"

namespace lockstep {
namespace {

using device_test::ExpectSameBits;
using device_test::HasWholeBlocks;
using device_test::kWeightTypes;
using kernels_test::RandomValues;
using kernels_test::RandomWeights;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kCanary = -0x1.abcdp+100f;
constexpr int32_t kTokens = 35;  // of a vocabulary: three groups of rows, the last one not whole

const KernelTable& Scalar() { return SelectKernels("scalar"); }

std::vector<uint8_t> QuantizedBytesOf(std::span<const float> x) {
  std::vector<ActivationBlock> blocks(x.size() / 32);
  Scalar().quantize_activations(x.data(), static_cast<int32_t>(x.size()), blocks.data());
  std::vector<uint8_t> bytes(blocks.size() * sizeof(ActivationBlock));
  std::memcpy(bytes.data(), blocks.data(), bytes.size());
  return bytes;
}

// Whatever the NaN of a scale is.
std::vector<uint8_t> WithOneNan(std::vector<uint8_t> bytes) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(ActivationBlock)) {
    float scale = 0;
    std::memcpy(&scale, &bytes[at + 32], 4);
    const uint32_t bits = CanonicalBits(scale);
    std::memcpy(&bytes[at + 32], &bits, 4);
  }
  return bytes;
}

// What a test does on any device, the checked one included.
class RowCases : public device_test::DeviceTest {
 protected:
  using DeviceTest::DeviceTest;

  void CheckEmbed(int32_t cols) {
    Random random(1);
    for (GgmlType type : kWeightTypes) {
      if (!HasWholeBlocks(type, cols)) continue;
      const auto table = RandomWeights(type, int64_t{kTokens} * cols, &random);
      const PackedMatrix packed(type, kTokens, cols, table);
      const auto device_table = PutBytes(
          {packed.data(), static_cast<size_t>(PackedMatrix::PackedBytes(type, kTokens, cols))});
      const std::vector<int32_t> tokens = {4, 0, 0, kTokens - 1, 16};
      const auto device_tokens = Put(tokens);
      for (float scale : {1.0f, 0.34f}) {
        std::vector<float> expected;
        const size_t row_bytes = table.size() / kTokens;
        for (int32_t token : tokens) {
          std::vector<float> row(static_cast<size_t>(cols));
          DecodeWeights(type,
                        std::span(table).subspan(static_cast<size_t>(token) * row_bytes, row_bytes),
                        row);
          if (scale != 1.0f) Scalar().scale(scale, cols, row.data());
          expected.insert(expected.end(), row.begin(), row.end());
        }
        const DeviceBuffer<float> out(device(), static_cast<int64_t>(expected.size()));
        device::Embed(stream(), {type, kTokens, cols, device_table.all()}, device_tokens.all(),
                      static_cast<int32_t>(tokens.size()), scale, out.all());
        ExpectSameBits(expected, Get(out),
                       fmt::format("{}, {} columns, scale {}", TraitsOf(type)->name, cols, scale));
      }
    }
  }

  void CheckRmsNorm(int32_t rows, int32_t n, bool in_place, bool adds = false) {
    Random random(3);
    const auto count = static_cast<size_t>(rows) * static_cast<size_t>(n);
    auto x = RandomValues(count, &random);
    x[count / 2] = 0x1p-140f;
    const auto weight = RandomValues(static_cast<size_t>(n), &random);
    std::vector<float> expected(count);
    for (size_t at = 0; at < count; at += static_cast<size_t>(n)) {
      Scalar().rms_norm(&x[at], weight.data(), n, 1e-5f, &expected[at]);
    }
    auto residual = RandomValues(count, &random);
    const auto device_residual = Put(residual);
    Scalar().add(expected.data(), static_cast<int32_t>(count), residual.data());
    const auto device_x = Put(x);
    const auto device_weight = Put(weight);
    auto guarded = std::vector<float>(count + 1, kCanary);
    const auto y = Put(guarded);
    const bool quantize = n % 32 == 0;
    const DeviceBuffer<uint8_t> blocks(device(), quantize ? device::QuantizedBytes(rows, n) : 1);
    device::RmsNorm(stream(), {.x = device_x.all(),
                               .weight = device_weight.all(),
                               .rows = rows,
                               .n = n,
                               .eps = 1e-5f,
                               .y = in_place ? device_x.all() : y.all(),
                               .blocks = quantize ? blocks.all() : Global<uint8_t>{},
                               .residual = adds ? device_residual.all() : Global<float>{}});
    if (adds) ExpectSameBits(residual, Get(device_residual), fmt::format("residual of {}", n));
    auto actual = in_place ? Get(device_x) : Get(y);
    if (!in_place) {
      EXPECT_EQ(actual.back(), kCanary);
      actual.pop_back();
    }
    ExpectSameBits(expected, actual, fmt::format("{} rows of {}", rows, n));
    if (quantize) {
      EXPECT_EQ(QuantizedBytesOf(expected), Get(blocks)) << rows << " rows of " << n;
    }
  }

  void CheckQuantize(const std::vector<float>& x, int32_t rows) {
    const auto device_x = Put(x);
    const auto cols = static_cast<int32_t>(x.size()) / rows;
    const DeviceBuffer<uint8_t> blocks(device(), device::QuantizedBytes(rows, cols));
    device::QuantizeActivations(stream(), device_x.all(), rows, cols, blocks.all());
    EXPECT_EQ(WithOneNan(QuantizedBytesOf(x)), WithOneNan(Get(blocks)));
  }

  void CheckGate(int32_t rows, int32_t n, bool gelu) {
    const auto on_host = gelu ? Scalar().gelu_gate : Scalar().silu_gate;
    const auto on_device = gelu ? device::GeluGate : device::SiluGate;
    Random random(5);
    std::vector<float> gate = {0.0f,   -0.0f, kInf,  -kInf, kNan,   88.0f,  89.0f,
                               -88.0f, 90.0f, -90.f, 1e30f, -1e30f, 1e-45f, -1e-45f};
    const auto count = static_cast<size_t>(rows) * static_cast<size_t>(n);
    const auto more = RandomValues(count, &random);
    gate.insert(gate.end(), more.begin(), more.end());
    gate.resize(count);
    const auto up = RandomValues(count, &random);
    std::vector<float> expected(count);
    on_host(gate.data(), up.data(), static_cast<int32_t>(count), expected.data());
    const auto device_gate = Put(gate);
    const auto device_up = Put(up);
    const bool quantize = n % 32 == 0;
    const DeviceBuffer<uint8_t> blocks(device(), quantize ? device::QuantizedBytes(rows, n) : 1);
    const auto out = Put(std::vector<float>(count + 1, kCanary));
    on_device(stream(), device_gate.all(), device_up.all(), rows, n, out.all(), {});
    auto actual = Get(out);
    EXPECT_EQ(actual.back(), kCanary);
    actual.pop_back();
    ExpectSameBits(expected, actual, fmt::format("{} rows of {}", rows, n));
    on_device(stream(), device_gate.all(), device_up.all(), rows, n, device_gate.all(),
              quantize ? blocks.all() : Global<uint8_t>{});
    ExpectSameBits(expected, Get(device_gate), fmt::format("in place, {} rows of {}", rows, n));
    if (!quantize) return;
    EXPECT_EQ(WithOneNan(QuantizedBytesOf(expected)), WithOneNan(Get(blocks)));
  }

  void CheckScaleAndAdd(int32_t n, float scale, bool adds) {
    Random random(6);
    const auto count = static_cast<size_t>(n);
    auto x = RandomValues(count, &random);
    auto residual = RandomValues(count, &random);
    const auto device_x = Put(x);
    const auto device_residual = Put(residual);
    device::ScaleAndAdd(stream(), device_x.all(), n, scale,
                        adds ? device_residual.all() : Global<float>{});
    if (scale != 1.0f) Scalar().scale(scale, n, x.data());
    if (adds) Scalar().add(x.data(), n, residual.data());
    ExpectSameBits(x, Get(device_x), fmt::format("{} times {}", n, scale));
    ExpectSameBits(residual, Get(device_residual), fmt::format("{} times {}, added", n, scale));
  }
};

class DeviceRowsTest : public RowCases {};

TEST_P(DeviceRowsTest, Embed) {
  for (int32_t cols : {1, 31, 32, 96, 256, 300, 512, 576}) CheckEmbed(cols);
}

TEST_P(DeviceRowsTest, RmsNorm) {
  for (int32_t n = 1; n <= 70; ++n) CheckRmsNorm(2, n, n % 2 == 0);
  for (int32_t n : {576, 1024, 2048, 2064, 4160}) CheckRmsNorm(3, n, n % 64 == 0);
  for (int32_t n : {1, 33, 96, 1030}) CheckRmsNorm(3, n, n % 2 == 0, true);
}

TEST_P(DeviceRowsTest, QuantizeActivations) {
  Random random(6);
  for (int32_t cols : {32, 64, 480, 512, 544}) {
    std::vector<float> x = RandomValues(static_cast<size_t>(cols) * 3, &random);
    for (size_t at = 0; at < x.size(); ++at)
      x[at] *= std::ldexp(1.0f, static_cast<int>(at / 32) * 9 - 110);
    CheckQuantize(x, 3);
  }
  // One block each: ties, tiny, huge and non-finite.
  const float limit = 0x1.fcp-122f;  // 127 * 2^-128: the largest whose 127 / amax is infinite
  std::vector<float> x;
  for (float value : {0.0f, -0.0f, 0x1p-149f, -0x1p-126f, limit, std::nextafter(limit, 1.0f),
                      -std::nextafter(limit, 1.0f), 0x1.fffffep+127f, -0x1.fffffep+127f, kInf,
                      -kInf, kNan, 127.0f}) {
    for (size_t at : {0u, 7u, 31u}) {
      std::vector<float> block(32, value == 127.0f ? 2.5f : 0.0f);
      block[at] = value;
      block[16] = value == 127.0f ? -0.5f : block[16];
      x.insert(x.end(), block.begin(), block.end());
    }
  }
  CheckQuantize(x, 1);
}

TEST_P(DeviceRowsTest, Gates) {
  std::vector<int32_t> lengths(std::begin(kernels_test::kGateLengths),
                               std::end(kernels_test::kGateLengths));
  lengths.insert(lengths.end(), {32, 512, 576});
  for (int32_t n : lengths) {
    CheckGate(3, n, false);
    CheckGate(3, n, true);
  }
}

TEST_P(DeviceRowsTest, ScaleAndAdd) {
  for (int32_t n : {1, 31, 256, 257, 1000}) {
    for (const float scale : {1.0f, 0.22f}) {
      CheckScaleAndAdd(n, scale, true);
      CheckScaleAndAdd(n, scale, false);
    }
  }
}

TEST_P(DeviceRowsTest, ArgMax) {
  const auto expect = [&](const std::vector<float>& values, int32_t rows) {
    const auto n = static_cast<int32_t>(values.size()) / rows;
    const auto device_values = Put(values);
    const DeviceBuffer<int32_t> scratch(device(), device::ArgMaxScratch(rows, n));
    const DeviceBuffer<int32_t> out(device(), rows);
    device::ArgMax(stream(), device_values.all(), rows, n, scratch.all(), out.all());
    std::vector<int32_t> expected;
    for (int32_t r = 0; r < rows; ++r) {
      expected.push_back(lockstep::ArgMax(std::span(values).subspan(
          static_cast<size_t>(r) * static_cast<size_t>(n), static_cast<size_t>(n))));
    }
    EXPECT_EQ(expected, Get(out)) << n << " values, " << rows << " rows";
  };
  for (const std::vector<float>& values :
       std::initializer_list<std::vector<float>>{{1.0f},
                                                 {1.0f, 3.0f, 3.0f, 2.0f},
                                                 {-0.0f, 0.0f},
                                                 {0.0f, -0.0f},
                                                 {kNan, -kInf, kNan, -kInf},
                                                 {kNan, 1.0f, kNan, 2.0f, kNan},
                                                 {2.0f, kNan, 1.0f},
                                                 {kNan, kNan},
                                                 {-kInf, -kInf},
                                                 {1.0f, kInf, kInf}}) {
    expect(values, 1);
  }
  Random random(8);
  for (size_t n : {255u, 4096u, 4097u, 20000u}) {
    auto values = RandomValues(3 * n, &random);
    values[n / 2] = values[n - 1] = 100.0f;  // the lower of two in one row
    values[n] = kNan;
    values[2 * n - 1] = 100.0f;
    for (size_t i = 2 * n; i < 3 * n; ++i) values[i] = kNan;
    expect(values, 3);
  }
}

LOCKSTEP_ON_DEVICES(DeviceRowsTest);

class CheckedRowsTest : public RowCases {};
LOCKSTEP_ON_CHECKED_DEVICES(CheckedRowsTest);

TEST_P(CheckedRowsTest, KeepsTheModel) {
  CheckEmbed(64);
  CheckEmbed(256);
  CheckRmsNorm(2, 33, false);
  CheckRmsNorm(2, 96, true);
  CheckQuantize(std::vector<float>(96, 3.0f), 1);
  CheckGate(2, 96, false);
  CheckGate(2, 96, true);
  CheckScaleAndAdd(300, 0.5f, true);
  CheckRmsNorm(2, 33, true, true);
  const auto values = Put(std::vector<float>(5000, 1.0f));
  const DeviceBuffer<int32_t> scratch(device(), device::ArgMaxScratch(1, 5000));
  const DeviceBuffer<int32_t> out(device(), 1);
  device::ArgMax(stream(), values.all(), 1, 5000, scratch.all(), out.all());
  EXPECT_EQ(Get(out)[0], 0);
}

}  // namespace
}  // namespace lockstep
