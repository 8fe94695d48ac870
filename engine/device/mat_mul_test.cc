// Products against the scalar table, bit for bit.
#include <cmath>
#include <limits>

#include "engine/device/kernels.h"
#include "engine/device/test_device.h"
#include "engine/kernels/test_inputs.h"

namespace lockstep {
namespace {

using device_test::ExpectSameBits;
using device_test::HasWholeBlocks;
using device_test::kWeightTypes;
using kernels_test::MakeActivations;
using kernels_test::OwnedActivations;
using kernels_test::RandomValues;
using kernels_test::RandomWeights;

constexpr float kCanary = -0x1.abcdp+100f;

const KernelTable& Scalar() { return SelectKernels("scalar"); }

// What comes after the product.
struct After {
  bool y = true;
  bool bias = false;
  float scale = 1;
  float cap = 0;
  bool residual = false;
};

class MatMulCases : public device_test::DeviceTest {
 protected:
  using DeviceTest::DeviceTest;

  void Check(const PackedMatrix& w, const OwnedActivations& x, const After& after) {
    Random random(9);
    const auto rows = static_cast<size_t>(w.rows());
    const auto count = static_cast<size_t>(x.tokens) * rows;
    const auto bias = RandomValues(rows, &random);
    auto residual = RandomValues(count, &random);
    residual.push_back(kCanary);
    const auto device_residual = Put(residual);
    std::vector<float> y(count + 1, kCanary);
    const auto device_y = Put(y);

    kernels_test::Multiply(Scalar(), w, x.Get(), 0, w.groups(), y.data(), w.rows());
    for (int32_t t = 0; t < x.tokens; ++t) {
      float* row = &y[static_cast<size_t>(t) * rows];
      if (after.bias) Scalar().add(bias.data(), w.rows(), row);
      if (after.scale != 1.0f) Scalar().scale(after.scale, w.rows(), row);
      if (after.cap != 0.0f) Scalar().soft_cap(after.cap, w.rows(), row);
      if (after.residual) Scalar().add(row, w.rows(), &residual[static_cast<size_t>(t) * rows]);
    }
    Run(w, x, after, bias, device_y, device_residual);
    const std::string where = fmt::format("{}, {} x {}, {} tokens", TraitsOf(w.type())->name,
                                          w.rows(), w.cols(), x.tokens);
    if (!after.y) y.assign(count + 1, kCanary);
    ExpectSameBits(y, Get(device_y), where);
    ExpectSameBits(residual, Get(device_residual), where + ", residual");
  }

  void CheckShape(GgmlType type, int32_t rows, int32_t cols, int32_t tokens, const After& after,
                  Random* random) {
    const auto bytes = RandomWeights(type, int64_t{rows} * cols, random);
    const PackedMatrix w(type, rows, cols, bytes);
    const auto x = MakeActivations(
        Scalar(), tokens, cols,
        RandomValues(static_cast<size_t>(tokens) * static_cast<size_t>(cols), random));
    Check(w, x, after);
  }

  void CheckChosen(GgmlType type, int32_t rows, int32_t cols, int32_t matrices,
                   const std::vector<int32_t>& chosen, int32_t share, Random* random) {
    std::vector<PackedMatrix> all;
    std::vector<std::byte> packed;
    for (int32_t i = 0; i < matrices; ++i) {
      const PackedMatrix& w =
          all.emplace_back(type, rows, cols, RandomWeights(type, int64_t{rows} * cols, random));
      packed.insert(packed.end(), w.data(), w.data() + PackedMatrix::PackedBytes(type, rows, cols));
    }
    const auto tokens = static_cast<int32_t>(chosen.size());
    const auto x = MakeActivations(
        Scalar(), tokens / share, cols,
        RandomValues(static_cast<size_t>(tokens / share) * static_cast<size_t>(cols), random));
    std::vector<float> expected(chosen.size() * static_cast<size_t>(rows));
    for (size_t t = 0; t < chosen.size(); ++t) {
      const auto row = static_cast<int64_t>(t) / share;
      const Activations one = {.tokens = 1,
                               .cols = cols,
                               .values = x.values.data() + row * cols,
                               .blocks = x.blocks.data() + row * (cols / 32)};
      const PackedMatrix& w = all[static_cast<size_t>(chosen[t])];
      kernels_test::Multiply(Scalar(), w, one, 0, w.groups(),
                             &expected[t * static_cast<size_t>(rows)], rows);
    }
    const auto weights = PutBytes(packed);
    const auto values = Put(x.values);
    const auto blocks = PutBytes(std::as_bytes(std::span(x.blocks)));
    const auto device_chosen = Put(chosen);
    const auto y = Put(std::vector<float>(expected.size(), kCanary));
    device::MatMulArgs args;
    args.w = {type, rows, cols, weights.all(), matrices};
    args.tokens = tokens;
    args.x = IsQuantized(type) ? Global<const float>{} : Global<const float>(values.all());
    args.blocks = IsQuantized(type) ? Global<const uint8_t>(blocks.all()) : Global<const uint8_t>{};
    args.y = y.all();
    args.chosen = device_chosen.all();
    args.x_share = share;
    device::MatMul(stream(), args);
    ExpectSameBits(expected, Get(y),
                   fmt::format("{} of {} matrices", TraitsOf(type)->name, matrices));
  }

 private:
  void Run(const PackedMatrix& w, const OwnedActivations& x, const After& after,
           const std::vector<float>& bias, const DeviceBuffer<float>& y,
           const DeviceBuffer<float>& residual) {
    const int64_t packed = PackedMatrix::PackedBytes(w.type(), w.rows(), w.cols());
    const auto weights = PutBytes({w.data(), static_cast<size_t>(packed)});
    const auto values = Put(x.values);
    const auto blocks = PutBytes(std::as_bytes(std::span(x.blocks)));
    const auto device_bias = Put(bias);
    device::MatMulArgs args;
    args.w = {w.type(), w.rows(), w.cols(), weights.all()};
    args.tokens = x.tokens;
    if (w.quantized()) {
      args.blocks = blocks.all();
    } else {
      args.x = values.all();
    }
    if (after.y) args.y = y.all();
    if (after.bias) args.bias = device_bias.all();
    args.scale = after.scale;
    args.cap = after.cap;
    if (after.residual) args.residual = residual.all();
    device::MatMul(stream(), args);
    stream().Synchronize();
  }
};

class DeviceMatMulTest : public MatMulCases {};

TEST_P(DeviceMatMulTest, OneTokenAtEveryBoundary) {
  Random random(1);
  for (GgmlType type : kWeightTypes) {
    for (int32_t cols : kernels_test::kMatMulCols) {
      if (!HasWholeBlocks(type, cols)) continue;
      for (int32_t rows : kernels_test::kMatMulRows) {
        CheckShape(type, rows, cols, 1, {}, &random);
        ASSERT_FALSE(HasFailure());
      }
      CheckShape(type, 33, cols, 1, {}, &random);
    }
    CheckShape(type, 17, 4352, 1, {}, &random);
    ASSERT_FALSE(HasFailure());
  }
}

// The shapes of the host's tests; many rows times many columns are left to one token, which is what
// an executor can afford.
TEST_P(DeviceMatMulTest, FewTokensAtEveryBoundary) {
  Random random(12);
  for (GgmlType type : kWeightTypes) {
    for (int32_t cols : kernels_test::kMatMulCols) {
      if (!HasWholeBlocks(type, cols)) continue;
      for (int32_t tokens : kernels_test::kFewTokens) {
        CheckShape(type, cols > 288 ? 1 + tokens % 3 : 15 + tokens % 3, cols, tokens, {}, &random);
        ASSERT_FALSE(HasFailure());
      }
    }
    const int32_t cols = HasWholeBlocks(type, 64) ? 64 : 256;
    for (int32_t tokens : kernels_test::kManyTokens) {
      CheckShape(type, cols == 64 ? 40 : 10, cols, tokens, {}, &random);
      ASSERT_FALSE(HasFailure());
    }
  }
}

TEST_P(DeviceMatMulTest, AnyNumberOfTokens) {
  Random random(2);
  for (GgmlType type : kWeightTypes) {
    const bool super = TraitsOf(type)->block_elements == 256;
    const std::vector<std::pair<int32_t, int32_t>> shapes =
        super ? std::vector<std::pair<int32_t, int32_t>>{{33, 256}, {64, 256}, {65, 768}}
              : std::vector<std::pair<int32_t, int32_t>>{{33, 288}, {64, 64}, {65, 544}, {17, 32}};
    for (int32_t tokens : {2, 8, 13, 63, 64, 65, 130}) {
      for (const auto& [rows, cols] : shapes) {
        if (tokens > 64 && cols > 288) continue;
        CheckShape(type, rows, cols, tokens, {}, &random);
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  for (GgmlType type : {GgmlType::kF32, GgmlType::kF16, GgmlType::kBF16}) {
    for (int32_t cols : {1, 31, 172, 255, 257, 259}) {
      CheckShape(type, 31, cols, 12, {}, &random);
      ASSERT_FALSE(HasFailure());
    }
  }
}

TEST_P(DeviceMatMulTest, BiasScaleCapAndResidualInThisOrder) {
  Random random(3);
  for (GgmlType type : {GgmlType::kF16, GgmlType::kQ8_0, GgmlType::kQ4_0, GgmlType::kQ5_1}) {
    for (int32_t tokens : {1, 3, 20}) {
      CheckShape(type, 33, 288, tokens, {.bias = true}, &random);
      CheckShape(type, 33, 288, tokens, {.scale = 0.22f, .residual = true}, &random);
      CheckShape(type, 33, 288, tokens, {.y = false, .residual = true}, &random);
      CheckShape(type, 33, 288, tokens, {.bias = true, .scale = 0.22f, .residual = true}, &random);
      CheckShape(type, 33, 288, tokens, {.bias = true, .scale = 3.0f, .cap = 5.0f}, &random);
    }
  }
}

// Every field of a block all zeros, all ones, and in between: the largest integer sums of both
// signs, and scales and lows at their ends.
TEST_P(DeviceMatMulTest, ExtremeQuantsAreSummedExactly) {
  for (GgmlType type : kWeightTypes) {
    if (!IsQuantized(type)) continue;
    const GgmlTypeTraits traits = *TraitsOf(type);
    const auto cols = static_cast<int32_t>(traits.block_elements);
    const internal::QuantHalves halves = internal::HalvesOf(type);
    for (const int fill : {0x00, 0xff, 0x0f, 0x7f, 0x80, 0x81}) {
      std::vector<std::byte> row(static_cast<size_t>(traits.block_bytes),
                                 static_cast<std::byte>(fill));
      kernels_test::StoreHalf(0x3c00, row.data() + halves.scale);  // 1
      if (halves.low >= 0) kernels_test::StoreHalf(0x3c00, row.data() + halves.low);
      std::vector<std::byte> bytes;
      for (int r = 0; r < 16; ++r) bytes.insert(bytes.end(), row.begin(), row.end());
      const PackedMatrix w(type, 16, cols, bytes);
      for (int tokens : {1, 10}) {
        for (const float sign : {1.0f, -1.0f}) {
          const std::vector<float> values(static_cast<size_t>(tokens * cols), 127 * sign);
          Check(w, MakeActivations(Scalar(), tokens, cols, values), {});
          ASSERT_FALSE(HasFailure()) << "fill " << fill;
        }
      }
    }
  }
}

// NaN and infinity in a token, and an infinite scale or element of a row.
TEST_P(DeviceMatMulTest, NonFiniteInputsReachTheirOutputsAndNoOthers) {
  Random random(8);
  constexpr int32_t kRows = 17;
  for (GgmlType type : kWeightTypes) {
    const int32_t cols = HasWholeBlocks(type, 288) ? 288 : 512;
    auto bytes = RandomWeights(type, int64_t{kRows} * cols, &random);
    if (IsQuantized(type)) {
      const GgmlTypeTraits traits = *TraitsOf(type);
      std::byte* block = bytes.data() + 4 * cols / traits.block_elements * traits.block_bytes;
      kernels_test::StoreHalf(0x7c00, block + internal::HalvesOf(type).scale);
    }
    const PackedMatrix w(type, kRows, cols, bytes);
    const auto row = static_cast<size_t>(cols);
    for (int32_t tokens : {3, 11}) {
      auto values = RandomValues(static_cast<size_t>(tokens) * row, &random);
      values[row + 5] = std::numeric_limits<float>::quiet_NaN();
      values[3 * row - 1] = std::numeric_limits<float>::infinity();
      values[3] = 0x1p-140f;
      Check(w, MakeActivations(Scalar(), tokens, cols, values), {});
      ASSERT_FALSE(HasFailure());
    }
  }
}

// A lone partial sum is the result itself: adding it to +0 would lose the sign of -0.
TEST_P(DeviceMatMulTest, ANegativeUnderflowStaysNegative) {
  for (int32_t cols : {1, 32, 33, 256, 257}) {
    for (int32_t tokens : {1, 9}) {
      std::vector<float> weights(static_cast<size_t>(cols), 0.0f);
      std::vector<float> values(static_cast<size_t>(cols * tokens), 1.0f);
      weights[static_cast<size_t>(std::min(cols, 256)) - 1] = -0x1p-100f;
      for (int32_t t = 0; t < tokens; ++t) {
        values[static_cast<size_t>(t * cols + std::min(cols, 256) - 1)] = 0x1p-100f;
      }
      const PackedMatrix w(GgmlType::kF32, 1, cols, std::as_bytes(std::span(weights)));
      Check(w, MakeActivations(Scalar(), tokens, cols, values), {});
    }
  }
}

// Each token multiplies with a matrix of its own, and several read one row of x.
TEST_P(DeviceMatMulTest, ATokenTakesTheMatrixThatItChose) {
  Random random(11);
  for (GgmlType type : kWeightTypes) {
    const int32_t cols = HasWholeBlocks(type, 96) ? 96 : 256;
    CheckChosen(type, 33, cols, 4, {2, 0, 3, 3, 1, 0}, 2, &random);
    CheckChosen(type, 17, cols, 3, {0, 1, 2, 2, 1, 0, 1, 1, 0, 2, 0, 1}, 1, &random);
    ASSERT_FALSE(HasFailure());
  }
}

LOCKSTEP_ON_DEVICES(DeviceMatMulTest);

class CheckedMatMulTest : public MatMulCases {};
LOCKSTEP_ON_CHECKED_DEVICES(CheckedMatMulTest);

TEST_P(CheckedMatMulTest, KeepsTheModel) {
  Random random(4);
  for (GgmlType type : kWeightTypes) {
    const bool super = TraitsOf(type)->block_elements == 256;
    CheckShape(type, 17, super ? 512 : 544, 1, {.bias = true, .residual = true}, &random);
    CheckShape(type, 65, super ? 256 : 64, 9, {.bias = true, .residual = true}, &random);
    CheckChosen(type, 17, super ? 256 : 32, 2, {1, 0, 1}, 1, &random);
  }
}

}  // namespace
}  // namespace lockstep
