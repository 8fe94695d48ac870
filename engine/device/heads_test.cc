// QK-norm, RoPE and the way into a cache, against the scalar table and the codec, bit for bit.
#include <cstring>
#include <tuple>

#include "caches/codec.h"
#include "engine/device/kernels.h"
#include "engine/device/test_device.h"
#include "engine/kernels/test_inputs.h"

namespace lockstep {
namespace {

using device_test::ExpectSameBits;
using kernels_test::RandomValues;

constexpr int32_t kPositions = 20;
constexpr uint8_t kCanary = 0xa5;

const KernelTable& Scalar() { return SelectKernels("scalar"); }

struct HeadCase {
  int32_t heads = 0;
  int32_t head_dim = 0;
  int32_t rope_dim = 0;
  bool halves = false;
  bool norm = false;

  std::string Name() const {
    return fmt::format("{} heads of {}, RoPE {}{}{}", heads, head_dim, rope_dim,
                       halves ? " in halves" : "", norm ? ", normed" : "");
  }
};

class HeadCases : public device_test::DeviceTest {
 protected:
  using DeviceTest::DeviceTest;

  // Rows as they have to become, and what the kernels take for it.
  struct Inputs {
    std::vector<float> x;
    std::vector<float> expected;
    std::vector<int32_t> positions;
    DeviceBuffer<float> norm, cos, sin, device_x;
    DeviceBuffer<int32_t> device_positions;
    device::HeadFinish finish;
  };

  Inputs Make(const HeadCase& c, const std::vector<int32_t>& positions) {
    Random random(static_cast<uint64_t>(c.head_dim));
    Inputs in;
    in.positions = positions;
    const auto width = static_cast<size_t>(c.heads * c.head_dim);
    const auto half = static_cast<size_t>(c.rope_dim / 2);
    in.x = RandomValues(positions.size() * width, &random);
    const auto norm = RandomValues(static_cast<size_t>(c.head_dim), &random);
    const auto cos = RandomValues(kPositions * half, &random);
    const auto sin = RandomValues(kPositions * half, &random);
    in.expected = in.x;
    for (size_t i = 0; i < positions.size(); ++i) {
      float* row = &in.expected[i * width];
      for (int32_t h = 0; c.norm && h < c.heads; ++h) {
        float* head = row + h * c.head_dim;
        Scalar().rms_norm(head, norm.data(), c.head_dim, 1e-5f, head);
      }
      if (c.rope_dim == 0) continue;
      const size_t at = static_cast<size_t>(positions[i]) * half;
      (c.halves ? Scalar().rope_halves : Scalar().rope_interleaved)(row, c.heads, c.head_dim,
                                                                    c.rope_dim, &cos[at], &sin[at]);
    }
    in.norm = Put(norm);
    if (half > 0) {
      in.cos = Put(cos);
      in.sin = Put(sin);
    }
    in.device_x = Put(in.x);
    in.device_positions = Put(positions);
    in.finish = {.head_dim = c.head_dim,
                 .norm = c.norm ? Global<const float>(in.norm.all()) : Global<const float>{},
                 .eps = 1e-5f,
                 .rope_dim = c.rope_dim,
                 .halves = c.halves,
                 .cos = half > 0 ? Global<const float>(in.cos.all()) : Global<const float>{},
                 .sin = half > 0 ? Global<const float>(in.sin.all()) : Global<const float>{}};
    return in;
  }

  void CheckQuery(const HeadCase& c) {
    const Inputs in = Make(c, {7, 8, 9, 19, 0});
    device::FinishQuery(stream(), in.finish, in.device_positions.all(), 5, c.heads,
                        in.device_x.all());
    ExpectSameBits(in.expected, Get(in.device_x), c.Name());
  }

  void CheckStore(const HeadCase& c, RowType type, bool window, bool keys) {
    const Inputs in = Make(c, {7, 8, 9});
    const int64_t stride = int64_t{c.heads} * c.head_dim;
    const int64_t row_bytes = RowBytes(type, stride);
    const std::span<const float> rows = keys ? in.expected : in.x;
    std::vector<uint8_t> stored(static_cast<size_t>(kPositions * row_bytes), kCanary);
    std::vector<uint16_t> exact(static_cast<size_t>(8 * stride), 0xa5a5);
    const auto device_stored = Put(stored);
    const auto device_exact = Put(exact);
    const auto exact_first = Put(std::vector<int32_t>{4});
    for (size_t i = 0; i < 3; ++i) {
      const auto row = rows.subspan(i * static_cast<size_t>(stride), static_cast<size_t>(stride));
      EncodeRow(type, row,
                std::as_writable_bytes(std::span(stored).subspan(
                    (7 + i) * static_cast<size_t>(row_bytes), static_cast<size_t>(row_bytes))));
      for (size_t e = 0; window && e < row.size(); ++e) {
        exact[(4 + i) * row.size() + e] = F16FromF32(row[e]);
      }
    }
    device::StoreArgs args;
    args.slot = {.first = 7,
                 .count = 3,
                 .key_type = type,
                 .value_type = type,
                 .keys = keys ? device_stored.all() : Global<uint8_t>{},
                 .values = keys ? Global<uint8_t>{} : device_stored.all(),
                 .exact_first = 4,
                 .exact_keys = keys && window ? device_exact.all() : Global<uint16_t>{},
                 .exact_values = !keys && window ? device_exact.all() : Global<uint16_t>{}};
    args.x = in.device_x.all();
    args.positions = in.device_positions.all();
    if (window) args.exact_first = exact_first.all();
    args.heads = c.heads;
    if (keys) {
      args.rows = in.device_x.all();
      device::StoreKeys(stream(), in.finish, args);
      ExpectSameBits(in.expected, Get(in.device_x), c.Name());
    } else {
      device::StoreValues(stream(), c.head_dim, args);
    }
    EXPECT_EQ(stored, Get(device_stored)) << c.Name() << ", " << RowTypeName(type);
    EXPECT_EQ(exact, Get(device_exact)) << c.Name() << ", " << RowTypeName(type);
  }
};

class DeviceHeadsTest : public HeadCases {};

TEST_P(DeviceHeadsTest, FinishQuery) {
  for (int32_t head_dim : kernels_test::kHeadDims) {
    for (int32_t rope_dim : {head_dim / 2 * 2, head_dim / 4 * 2, 0}) {
      for (const bool halves : {false, true}) {
        CheckQuery({3, head_dim, rope_dim, halves, false});
        CheckQuery({3, head_dim, rope_dim, halves, true});
      }
    }
  }
}

TEST_P(DeviceHeadsTest, StoreKeysAndValues) {
  for (RowType type :
       {RowType::kF32, RowType::kF16, RowType::kBf16, RowType::kQ8_0, RowType::kQ4_0}) {
    const bool block = type == RowType::kQ8_0 || type == RowType::kQ4_0;
    for (int32_t head_dim : kernels_test::kHeadDims) {
      if (block && head_dim % 32 != 0) continue;
      for (const bool window : {false, true}) {
        const HeadCase c = {3, head_dim, head_dim / 2 * 2, head_dim % 64 == 0, head_dim > 32};
        CheckStore(c, type, window, true);
        CheckStore(c, type, window, false);
      }
    }
  }
}

LOCKSTEP_ON_DEVICES(DeviceHeadsTest);

class CheckedHeadsTest : public HeadCases {};
LOCKSTEP_ON_CHECKED_DEVICES(CheckedHeadsTest);

TEST_P(CheckedHeadsTest, KeepsTheModel) {
  for (const bool halves : {false, true}) {
    CheckQuery({2, 17, 16, halves, true});
    CheckQuery({2, 32, 32, halves, false});
  }
  for (RowType type :
       {RowType::kF32, RowType::kF16, RowType::kBf16, RowType::kQ8_0, RowType::kQ4_0}) {
    CheckStore({2, 32, 32, false, true}, type, true, true);
    CheckStore({2, 32, 32, false, true}, type, true, false);
  }
}

}  // namespace
}  // namespace lockstep
