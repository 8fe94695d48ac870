#include "caches/digest.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace lockstep {
namespace {

// Vectors of the xxHash project's own sanity suite (XXH3_128bits, seed 0).
TEST(DigestTest, MatchesPublishedXxh3Vectors) {
  EXPECT_EQ(DigestOfBytes({}).Hex(), "99aa06d3014798d86001c324468d497f");
}

TEST(DigestTest, StreamingEqualsOneCallForEverySplit) {
  std::vector<float> values(700);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.25f - 40.0f;
  const Digest whole = DigestOfFloats(values);
  EXPECT_EQ(whole, DigestOfBytes(std::as_bytes(std::span(values))));
  for (size_t cut : {0u, 1u, 255u, 256u, 257u, 699u, 700u}) {
    DigestBuilder builder;
    builder.AddFloats(std::span(values).first(cut));
    builder.AddFloats(std::span(values).subspan(cut));
    EXPECT_EQ(builder.Finish(), whole) << "cut " << cut;
  }
}

TEST(DigestTest, EveryNanIsOneValueButSignedZerosDiffer) {
  const float quiet = std::numeric_limits<float>::quiet_NaN();
  const float payload = std::bit_cast<float>(0xffc12345u);
  EXPECT_EQ(DigestOfFloats({{quiet}}), DigestOfFloats({{payload}}));
  EXPECT_NE(DigestOfFloats({{0.0f}}), DigestOfFloats({{-0.0f}}));
  EXPECT_EQ(CanonicalBits(payload), 0x7fc00000u);
}

TEST(DigestTest, EveryByteOfANumberCounts) {
  const auto of32 = [](uint32_t value) {
    DigestBuilder builder;
    builder.AddU32(value);
    return builder.Finish();
  };
  const auto of64 = [](uint64_t value) {
    DigestBuilder builder;
    builder.AddU64(value);
    return builder.Finish();
  };
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_NE(of64(65), of64(65 ^ (uint64_t{1} << bit))) << bit;
  }
  for (int bit = 0; bit < 32; ++bit) EXPECT_NE(of32(65), of32(65 ^ (1u << bit))) << bit;
  EXPECT_NE(of32(65), of64(65)) << "a number takes its width";
}

TEST(DigestTest, TextIsPrefixFree) {
  DigestBuilder a, b;
  a.AddText("ab");
  a.AddText("c");
  b.AddText("a");
  b.AddText("bc");
  EXPECT_NE(a.Finish(), b.Finish());
}

}  // namespace
}  // namespace lockstep
