// Rows as device kernels write and read them (caches/device_rows.h) against the codec.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "caches/codec.h"
#include "caches/device.h"
#include "caches/device/test_devices.h"
#include "caches/device/test_kernels.h"
#include "caches/device_rows.h"
#include "caches/random.h"

namespace lockstep {

namespace {

constexpr float kMax = std::numeric_limits<float>::max();
constexpr RowType kTypes[] = {RowType::kF32, RowType::kF16, RowType::kBf16, RowType::kQ8_0,
                              RowType::kQ4_0};

struct Rows {
  int32_t count = 0;
  int64_t stride = 0;
  std::vector<float> x;  // [count, stride]
};

std::vector<uint8_t> EncodedByCodec(RowType type, const Rows& rows) {
  const auto bytes = static_cast<size_t>(RowBytes(type, rows.stride));
  const auto stride = static_cast<size_t>(rows.stride);
  std::vector<uint8_t> stored(bytes * static_cast<size_t>(rows.count));
  for (size_t r = 0; r < static_cast<size_t>(rows.count); ++r) {
    EncodeRow(type, std::span(rows.x).subspan(r * stride, stride),
              std::as_writable_bytes(std::span(stored)).subspan(r * bytes, bytes));
  }
  return stored;
}

void ExpectTheCodecsBits(Device& device, RowType type, const Rows& rows) {
  const std::vector<uint8_t> expected = EncodedByCodec(type, rows);
  const auto bytes = static_cast<int64_t>(expected.size());
  const auto elements = static_cast<int64_t>(rows.x.size());
  DeviceBuffer<float> x(device, elements);
  DeviceBuffer<uint8_t> stored(device, bytes);
  DeviceBuffer<float> decoded(device, elements);
  std::vector<uint8_t> bytes_back(expected.size());
  std::vector<float> x_back(rows.x.size());
  const auto stream = device.NewStream();
  stream->Upload(rows.x.data(), x.address(), elements * 4);
  const DeviceGrid grid = {.x = rows.count};
  Launch<EncodeRowsKernel>(*stream, grid, {type, rows.stride, x.all(), stored.all()});
  Launch<DecodeRowsKernel>(*stream, grid, {type, rows.stride, stored.all(), decoded.all()});
  stream->Download(stored.address(), bytes_back.data(), bytes);
  stream->Download(decoded.address(), x_back.data(), elements * 4);
  stream->Synchronize();
  ASSERT_EQ(bytes_back, expected) << RowTypeName(type) << " x " << rows.stride;

  std::vector<float> x_expected(rows.x.size());
  DecodeRow(type, std::as_bytes(std::span(expected)), x_expected);
  for (size_t i = 0; i < x_back.size(); ++i) {
    if (std::isnan(x_expected[i]) && type != RowType::kF32) {
      ASSERT_TRUE(std::isnan(x_back[i])) << RowTypeName(type) << " element " << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(x_back[i]), std::bit_cast<uint32_t>(x_expected[i]))
          << RowTypeName(type) << " element " << i;
    }
  }
}

// Blocks at every edge of the codec: those of codec_test, in other words.
Rows Edges() {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float more = 1.0f + 1.0f / (1 << 22);
  const std::vector<std::vector<float>> firsts = {
      {0.0f},
      {-0.0f, -0.0f},
      {127, .5f, 1.5f, 2.5f, -.5f, -1.5f, -2.5f, 126.5f, -126.5f, -127},
      {-8, -7.5f, -7, -6.5f, -.5f, .5f, 6.5f, 7.5f, 8},
      {4, 1, 1, 8, 1, -8, 7.5f},
      {4, 1, 1, -8, 1, 8, 7.5f},
      {127.0f / (1 << 20), -63.5f / (1 << 20), 1.0f / (1 << 20)},
      {0x1.7ed4d6p+0f, 0, 0x1.60afecp-1f, -0x1.60afecp-1f},
      {0x1.c46472p+0f, 0, 0x1.8bd7e6p-1f, -0x1.8bd7e6p-1f},
      {127.0f / (1 << 25), -1e-6f},
      {127.0f / (1 << 25) * more, -1e-6f, 2e-6f},
      {8.0f / (1 << 25), -1e-7f},
      {8.0f / (1 << 25) * more, -1e-7f},
      {0, 1e-37f, -1e-38f, std::numeric_limits<float>::denorm_min()},
      {127 * 65519.0f, -65504, 1e6f},
      {127.75f * 65504, -127.75f * 65504, 127.25f * 65504},
      {1e7f, -1e7f, 127 * 65504.0f, 65504, -32752, 1, kMax},
      {1e6f, -1e6f, 65504, 32752, -65504, 1, 7 * 65504.0f},
      {-kMax, 1e6f, 65504, -7 * 65504.0f},
      {1, nan},
      {-nan, 1},
      {inf, 1},
      {kMax, -inf},
      {65519.9f, 65520.0f, -65520.0f, 65504.0f, 0x1p-24f, 0x1p-25f, 0x1.8p-25f, 0x1.8p-24f},
      {0x1.ffcp-15f, 0x1.ffep-15f, 0x1p-14f, 1.00048828125f, 1.00146484375f},
  };
  Rows rows{.count = static_cast<int32_t>(firsts.size()), .stride = 32, .x = {}};
  for (const std::vector<float>& first : firsts) {
    std::vector<float> row(first);
    row.resize(32);
    rows.x.insert(rows.x.end(), row.begin(), row.end());
  }
  return rows;
}

// Any exponent the formats tell apart, and any bits at all.
Rows AnyRows(Random* random, int32_t count, int64_t stride) {
  Rows rows{.count = count, .stride = stride, .x = {}};
  for (int32_t r = 0; r < count; ++r) {
    const float scale =
        std::bit_cast<float>(static_cast<uint32_t>(random->Between(127 - 40, 127 + 25)) << 23);
    const bool any_bits = random->Below(4) == 0;
    for (int64_t i = 0; i < stride; ++i) {
      const auto bits = static_cast<uint32_t>(random->Next());
      rows.x.push_back(any_bits
                           ? std::bit_cast<float>(bits)
                           : scale * (static_cast<float>(random->Between(-4096, 4096)) / 4096.0f));
    }
  }
  return rows;
}

class DeviceRowsTest : public testing::TestWithParam<device_test::TestDevice> {
 protected:
  void SetUp() override { device_test::SkipWithout(GetParam()); }

  std::shared_ptr<Device> device_ = GetParam().Make();
};

TEST_P(DeviceRowsTest, EdgesAreTheCodecs) {
  for (RowType type : kTypes) ExpectTheCodecsBits(*device_, type, Edges());
}

TEST_P(DeviceRowsTest, AnyRowsAreTheCodecs) {
  Random random(20261130);
  const int32_t count = GetParam().executor.checked ? 8 : 200;
  for (RowType type : kTypes) {
    for (int64_t stride : {32, 96, 320}) {
      ExpectTheCodecsBits(*device_, type, AnyRows(&random, count, stride));
    }
  }
}

TEST_P(DeviceRowsTest, RowsOfAnyLengthInF32AndF16) {
  Random random(7);
  for (RowType type : {RowType::kF32, RowType::kF16}) {
    for (int64_t stride : {1, 3, 8, 31, 33, 63, 100}) {
      ExpectTheCodecsBits(*device_, type, AnyRows(&random, 5, stride));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, DeviceRowsTest, device_test::TestDevices(),
                         [](const auto& i) { return i.param.Name(); });

}  // namespace
}  // namespace lockstep
