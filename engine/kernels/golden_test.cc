// Fixed digests of every kernel: any table, compiler and optimisation level must give these bits.
//
// A change of a constant below is a change of engine/ARITHMETIC.md and needs its reason there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "caches/digest.h"
#include "caches/kv_cache.h"
#include "engine/kernels.h"
#include "engine/kernels/test_inputs.h"
#include "engine/math.h"

namespace lockstep {
namespace {

using kernels_test::Attend;
using kernels_test::MakeActivations;
using kernels_test::Multiply;
using kernels_test::RandomValues;
using kernels_test::RandomWeights;

class GoldenTest : public testing::TestWithParam<const KernelTable*> {
 protected:
  const KernelTable& kernels() const { return *GetParam(); }
};

std::string MatmulDigest(const KernelTable& kernels, GgmlType type) {
  DigestBuilder digest;
  Random random(51);
  const bool super = TraitsOf(type)->block_elements == 256;
  for (int32_t cols : {super ? 256 : 32, super ? 512 : 288, super ? 768 : 576, 1536}) {
    const int32_t rows = 40, tokens = 7;
    const PackedMatrix w(type, rows, cols, RandomWeights(type, int64_t{rows} * cols, &random));
    const auto x = MakeActivations(kernels, tokens, cols,
                                   RandomValues(static_cast<size_t>(tokens * cols), &random));
    std::vector<float> y(static_cast<size_t>(tokens * rows));
    Multiply(kernels, w, x.Get(), 0, w.groups(), y.data(), rows);
    digest.AddFloats(y);
  }
  return digest.Finish().Hex();
}

TEST_P(GoldenTest, MatmulF32) {
  EXPECT_EQ(MatmulDigest(kernels(), GgmlType::kF32), "ab93be8a68c19abf8de6130c9825e4ab");
}
TEST_P(GoldenTest, MatmulF16) {
  EXPECT_EQ(MatmulDigest(kernels(), GgmlType::kF16), "0b203ce9a6de6e5c115871f4ca1d0996");
}
TEST_P(GoldenTest, MatmulBF16) {
  EXPECT_EQ(MatmulDigest(kernels(), GgmlType::kBF16), "1ba1b378806bb91167859e7d324890bc");
}
TEST_P(GoldenTest, MatmulQ8) {
  EXPECT_EQ(MatmulDigest(kernels(), GgmlType::kQ8_0), "69a3a5fc44ca156a09c168d9605bffd4");
}
TEST_P(GoldenTest, MatmulQ4) {
  EXPECT_EQ(MatmulDigest(kernels(), GgmlType::kQ4_0), "b584bd1ac2642f31441a4fa9a2e1b4c7");
}

TEST_P(GoldenTest, MatmulOfTheOtherQuantizedTypes) {
  const std::map<GgmlType, std::string> digests = {
      {GgmlType::kQ4_1, "412e7cb59ab6c0ea559c3e88a20207ab"},
      {GgmlType::kQ5_0, "e7f0a9ac1fd88401d69a8d5318d1ca4e"},
      {GgmlType::kQ5_1, "cf140e55972fa79b6689a67783b1defe"},
      {GgmlType::kQ2_K, "0ad8ff7582592f871ea48b7549b57bd5"},
      {GgmlType::kQ3_K, "329ab9f76918c84ce839fa0cbf6456bd"},
      {GgmlType::kQ4_K, "a7be97b92f67ec8b8fa69a10b89ac2b8"},
      {GgmlType::kQ5_K, "9850f57f93dee9d3a65649c4428aaa53"},
      {GgmlType::kQ6_K, "a6df43c28c96304c7677d976eb94704d"},
      {GgmlType::kIQ4_NL, "951b37287faea109cf5c6dde1d305b94"},
      {GgmlType::kIQ4_XS, "caeec5cd200e30b559134120021a48d8"},
  };
  for (const auto& [type, digest] : digests) {
    EXPECT_EQ(MatmulDigest(kernels(), type), digest) << TraitsOf(type)->name;
  }
}

TEST_P(GoldenTest, QuantizeActivations) {
  Random random(52);
  const auto x = MakeActivations(kernels(), 1, 32768, RandomValues(32768, &random));
  DigestBuilder digest;
  std::vector<float> scales;
  std::vector<int32_t> sums;
  for (const ActivationBlock& block : x.blocks) {
    digest.AddBytes(std::as_bytes(std::span(block.quants)));
    scales.push_back(block.scale);
    sums.push_back(block.offset / -128);
  }
  digest.AddFloats(scales);
  digest.AddBytes(std::as_bytes(std::span(sums)));
  EXPECT_EQ(digest.Finish().Hex(), "886ce9e7065b3196165c70817accd15a");
}

std::string AttentionDigest(const KernelTable& kernels, RowType row_type, GgmlType weight_type,
                            int32_t window = 0, float cap = 0) {
  DigestBuilder digest;
  Random random(53);
  const AttentionShape shape = {
      .num_heads = 9, .num_kv_heads = 3, .head_dim = 64, .window = window, .cap = cap};
  const int32_t length = 700;
  const auto keys = RandomWeights(weight_type, length * 192, &random);
  const auto values = RandomWeights(weight_type, length * 192, &random);
  const KvView view = {.length = length,
                       .segments = {{.first = 0,
                                     .count = length,
                                     .key_type = row_type,
                                     .value_type = row_type,
                                     .keys = keys.data(),
                                     .values = values.data()}}};
  auto q = RandomValues(576, &random);
  for (float& value : q) value *= 0x1p-6f;  // so that many positions have a say
  for (int32_t visible : {1, 17, 256, 700}) {
    std::vector<float> out(q.size());
    Attend(kernels, shape, q.data(), view, visible, out.data());
    digest.AddFloats(out);
  }
  return digest.Finish().Hex();
}

TEST_P(GoldenTest, AttentionF32) {
  EXPECT_EQ(AttentionDigest(kernels(), RowType::kF32, GgmlType::kF32),
            "29e9922a52d200e95e4af5a7aaec3686");
}
TEST_P(GoldenTest, AttentionF16) {
  EXPECT_EQ(AttentionDigest(kernels(), RowType::kF16, GgmlType::kF16),
            "35fd5da7c9c90451b1cd4672d0c8d02e");
}
TEST_P(GoldenTest, AttentionBf16) {
  EXPECT_EQ(AttentionDigest(kernels(), RowType::kBf16, GgmlType::kBF16),
            "d3e7ede27c7f10d725ddd83cc0a6c721");
}
TEST_P(GoldenTest, AttentionQ8) {
  EXPECT_EQ(AttentionDigest(kernels(), RowType::kQ8_0, GgmlType::kQ8_0),
            "c1c954003a7f07e11e356131e0de390c");
}
TEST_P(GoldenTest, AttentionQ4) {
  EXPECT_EQ(AttentionDigest(kernels(), RowType::kQ4_0, GgmlType::kQ4_0),
            "a77ee9a4da63976ec5a63464320fee61");
}

TEST_P(GoldenTest, AttentionOfAWindowWithACap) {
  EXPECT_EQ(AttentionDigest(kernels(), RowType::kF32, GgmlType::kF32, 300, 2.5f),
            "bc60afc2248ede996519ec48d7fc39e0");
}

TEST_P(GoldenTest, RmsNorm) {
  DigestBuilder digest;
  Random random(54);
  for (int32_t n : {1, 15, 16, 17, 64, 576}) {
    const auto x = RandomValues(static_cast<size_t>(n), &random);
    const auto weight = RandomValues(static_cast<size_t>(n), &random);
    std::vector<float> y(x.size());
    kernels().rms_norm(x.data(), weight.data(), n, 1e-5f, y.data());
    digest.AddFloats(y);
  }
  EXPECT_EQ(digest.Finish().Hex(), "12358dbfeb9946e832bb1778cc44c257");
}

TEST_P(GoldenTest, Rope) {
  DigestBuilder digest;
  Random random(55);
  const RopeTable table({.dim = 64, .theta = 10000.0}, 2048);
  for (int32_t position : {0, 1, 100, 2047}) {
    auto x = RandomValues(9 * 64, &random);
    kernels().rope_interleaved(x.data(), 9, 64, 64, table.cos(position).data(),
                               table.sin(position).data());
    digest.AddFloats(x);
  }
  EXPECT_EQ(digest.Finish().Hex(), "300d8f9c13d0a5d4b59e8af73289e807");
}

TEST_P(GoldenTest, RopeOfHalvesWithFactors) {
  DigestBuilder digest;
  Random random(57);
  RopeFrequencies frequencies = {.dim = 48, .theta = 500000.0, .linear = 4.0};
  for (int32_t i = 0; i < 24; ++i)
    frequencies.factors.push_back(1.0f + 0.25f * static_cast<float>(i));
  const RopeTable table(frequencies, 2048);
  for (int32_t position : {0, 1, 100, 2047}) {
    auto x = RandomValues(9 * 64, &random);
    kernels().rope_halves(x.data(), 9, 64, 48, table.cos(position).data(),
                          table.sin(position).data());
    digest.AddFloats(x);
  }
  EXPECT_EQ(digest.Finish().Hex(), "a0cd68abea095a1fe328eeea6e9bfd02");
}

TEST_P(GoldenTest, SiluGateAndAdd) {
  Random random(56);
  const auto gate = RandomValues(4099, &random);
  auto up = RandomValues(4099, &random);
  std::vector<float> out(gate.size());
  kernels().silu_gate(gate.data(), up.data(), 4099, out.data());
  kernels().add(gate.data(), 4099, up.data());
  DigestBuilder digest;
  digest.AddFloats(out);
  digest.AddFloats(up);
  EXPECT_EQ(digest.Finish().Hex(), "e9b09579582d1ca9fee4d368ed02f131");
}

TEST_P(GoldenTest, GeluGateAndSoftCap) {
  Random random(58);
  const auto gate = RandomValues(4099, &random);
  auto up = RandomValues(4099, &random);
  std::vector<float> out(gate.size());
  kernels().gelu_gate(gate.data(), up.data(), 4099, out.data());
  kernels().soft_cap(1.75f, 4099, up.data());
  DigestBuilder digest;
  digest.AddFloats(out);
  digest.AddFloats(up);
  EXPECT_EQ(digest.Finish().Hex(), "b1092b268a1baa1e06f228568469c4c5");
}

std::string TableName(const testing::TestParamInfo<const KernelTable*>& param) {
  return std::string(param.param->name);
}

INSTANTIATE_TEST_SUITE_P(AllTables, GoldenTest,
                         testing::ValuesIn(AvailableKernels().begin(), AvailableKernels().end()),
                         TableName);

TEST(GoldenMathTest, Exp) {
  std::vector<float> values;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 8191) {
    values.push_back(CanonicalExp(std::bit_cast<float>(static_cast<uint32_t>(bits))));
  }
  EXPECT_EQ(DigestOfFloats(values).Hex(), "88703a8d922bed154d2408b5fcfac54a");
}

TEST(GoldenMathTest, Tanh) {
  std::vector<float> values;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 8191) {
    values.push_back(CanonicalTanh(std::bit_cast<float>(static_cast<uint32_t>(bits))));
  }
  EXPECT_EQ(DigestOfFloats(values).Hex(), "33ebafad364c1f8228d1f312c1ec8689");
}

TEST(GoldenMathTest, RopeOfYarn) {
  const RopeFrequencies frequencies = {.dim = 64,
                                       .theta = 1000000.0,
                                       .yarn = YarnScaling{.factor = 4, .original = 8192},
                                       .attention = 1.25};
  const RopeTable table(frequencies, 2048);
  DigestBuilder digest;
  for (int32_t position = 0; position < 2048; ++position) {
    digest.AddFloats(table.cos(position));
    digest.AddFloats(table.sin(position));
  }
  EXPECT_EQ(digest.Finish().Hex(), "8e226e788bd018ab07e23a56bd344486");
}

TEST(GoldenMathTest, SinCosAndPow) {
  DigestBuilder digest;
  for (int i = 0; i < 20000; ++i) {
    const SinCos pair = CanonicalSinCos(static_cast<double>(i) * static_cast<double>(i) * 0x1.3p-2);
    digest.AddU64(std::bit_cast<uint64_t>(pair.sin));
    digest.AddU64(std::bit_cast<uint64_t>(pair.cos));
  }
  for (int i = 0; i < 1000; ++i) {
    const double power = CanonicalPow(1.0 + i * 0x1.1p-3, (i - 500) * 0x1.7p-5);
    digest.AddU64(std::bit_cast<uint64_t>(power));
  }
  EXPECT_EQ(digest.Finish().Hex(), "caaaf8d436c63a1a3b27dff6ef55ab09");
}

TEST(GoldenMathTest, RopeTable) {
  DigestBuilder digest;
  for (double theta : {10000.0, 500000.0, 1e6}) {
    const RopeTable table({.dim = 80, .theta = theta}, 512);
    for (int32_t p = 0; p < 512; ++p) {
      digest.AddFloats(table.cos(p));
      digest.AddFloats(table.sin(p));
    }
  }
  EXPECT_EQ(digest.Finish().Hex(), "d371f54c5daa1d34afd63292d4008a29");
}

TEST(GoldenMathTest, DecodeWeights) {
  DigestBuilder digest;
  Random random(57);
  for (GgmlType type :
       {GgmlType::kF32, GgmlType::kF16, GgmlType::kBF16, GgmlType::kQ8_0, GgmlType::kQ4_0}) {
    std::vector<float> out(1024);
    DecodeWeights(type, RandomWeights(type, 1024, &random), out);
    digest.AddFloats(out);
  }
  EXPECT_EQ(digest.Finish().Hex(), "93ab1f5d76663459f9969305032ec7d6");
}

}  // namespace
}  // namespace lockstep
