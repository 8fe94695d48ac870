// The fused multiply-add of machines without one, against std::fma: 100 million cases and more.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "caches/digest.h"
#include "caches/random.h"
#include "engine/kernels/lanes.h"

namespace lockstep {
namespace {

constexpr size_t kLanes = 16;
using Lanes = std::array<float, kLanes>;

struct Operands {
  float a, b, c;
};

// What the emulation must not be: a sum in double, narrowed, rounds twice.
float RoundedTwice(const Operands& x) {
  return static_cast<float>(double{x.a} * double{x.b} + double{x.c});
}

bool SameBits(float x, float y) { return CanonicalBits(x) == CanonicalBits(y); }

// +-2^exponent * (1 + fraction * 2^-23).
float Make(bool negative, int exponent, uint32_t fraction) {
  const float magnitude = std::ldexp(1.0f + static_cast<float>(fraction) * 0x1p-23f, exponent);
  return negative ? -magnitude : magnitude;
}

// c in [2^e, 2^(e + 1)) plus a product that is half its last place, or so near it that only the
// exact sum tells the side: (1 + f)(1 - f) = 1 - f^2.
Operands NearMiddle(Random* random, int exponent) {
  const auto shift = static_cast<uint32_t>(random->Between(0, 22));
  const float f = std::ldexp(1.0f, -static_cast<int>(shift) - 1);
  const float above = random->Below(3) == 0 ? 1.0f : 1.0f + f;
  const float below = random->Below(3) == 0 ? 1.0f : 1.0f - f;
  const int split = random->Between(-60, 60);
  const bool minus = random->Below(2) == 0;
  const float c = Make(random->Below(2) == 0, exponent, random->Below(1u << 23));
  return {std::ldexp(minus ? -above : above, split), std::ldexp(below, exponent - 24 - split), c};
}

// Results around and below the smallest normal number.
Operands NearSubnormal(Random* random) {
  if (random->Below(2) == 0) {
    // An odd multiple of half the smallest number, or a hair beside it.
    const float f = std::ldexp(1.0f, -random->Between(1, 23));
    const float c = std::bit_cast<float>(random->Below(1u << 24) | random->Below(2) << 31);
    const bool minus = random->Below(2) == 0;
    return {std::ldexp(minus ? -1.0f - f : 1.0f + f, -75), std::ldexp(1.0f - f, -75), c};
  }
  return {Make(random->Below(2) == 0, random->Between(-80, -60), random->Below(1u << 23)),
          Make(random->Below(2) == 0, random->Between(-80, -60), random->Below(1u << 23)),
          std::bit_cast<float>(random->Below(1u << 25) | random->Below(2) << 31)};
}

// Any bits at all, infinities and NaNs too.
Operands AnyBits(Random* random) {
  const uint64_t x = random->Next(), y = random->Next();
  return {std::bit_cast<float>(static_cast<uint32_t>(x)),
          std::bit_cast<float>(static_cast<uint32_t>(x >> 32)),
          std::bit_cast<float>(static_cast<uint32_t>(y))};
}

// A product within 2^+-30 of the addend, as in a dot product.
Operands Comparable(Random* random) {
  const int e = random->Between(-50, 50);
  return {Make(random->Below(2) == 0, e, random->Below(1u << 23)),
          Make(random->Below(2) == 0, -e, random->Below(1u << 23)),
          Make(random->Below(2) == 0, random->Between(-30, 30), random->Below(1u << 23))};
}

Operands Draw(Random* random, uint32_t kind) {
  switch (kind) {
    case 0:
      return NearMiddle(random, random->Between(-100, 100));
    case 1:
      return NearSubnormal(random);
    case 2:
      return NearMiddle(random, 127);  // the edge of overflow
    case 3:
      return AnyBits(random);
    default:
      return Comparable(random);
  }
}

void FmaAll(const Lanes& a, const Lanes& b, const Lanes& c, Lanes* out) {
  using internal::LoadLanes;
  internal::StoreLanes(
      internal::FmaLanes(LoadLanes(a.data()), LoadLanes(b.data()), LoadLanes(c.data())),
      out->data());
}

void ExpectAllLanes(const std::array<Operands, kLanes>& operands) {
  Lanes a, b, c, out;
  for (size_t j = 0; j < kLanes; ++j) {
    a[j] = operands[j].a;
    b[j] = operands[j].b;
    c[j] = operands[j].c;
  }
  FmaAll(a, b, c, &out);
  for (size_t j = 0; j < kLanes; ++j) {
    const float expected = std::fma(a[j], b[j], c[j]);
    ASSERT_TRUE(SameBits(out[j], expected))
        << std::hexfloat << "lane " << j << ": fma(" << a[j] << ", " << b[j] << ", " << c[j]
        << ") = " << expected << ", not " << out[j];
    const float single = internal::EmulatedFma(a[j], b[j], c[j]);
    ASSERT_TRUE(SameBits(single, expected)) << std::hexfloat << a[j] << " " << b[j] << " " << c[j];
  }
}

// Cases that rounding twice gets wrong, worked out by hand.
const std::vector<Operands> kTwiceRounded = {
    // 1 + 2^-24 - 2^-48 - 2^-71..: below the middle of 1 and 1 + 2^-23, double sees the middle;
    // with an odd last bit in c the tie goes up, the truth goes down.
    {0x1.000002p+0f, 0x1.fffffcp-25f, 0x1.000002p+0f},
    {-0x1.000002p+0f, 0x1.fffffcp-25f, -0x1.000002p+0f},
    // 2^-127 + 2^-149 + 2^-150 (1 - 2^-46): subnormal, where the middle lies elsewhere.
    {0x1.000002p-75f, 0x1.fffffcp-76f, 0x1.000004p-127f},
};

TEST(FmaTest, RoundingTwiceIsWrongWhereTheEmulationIsRight) {
  for (const Operands& x : kTwiceRounded) {
    const float expected = std::fma(x.a, x.b, x.c);
    EXPECT_FALSE(SameBits(RoundedTwice(x), expected)) << std::hexfloat << x.a << " " << x.b;
    // In every lane: the detection must not miss one.
    for (size_t lane = 0; lane < kLanes; ++lane) {
      std::array<Operands, kLanes> operands;
      operands.fill({1.0f, 2.0f, 3.0f});
      operands[lane] = x;
      ExpectAllLanes(operands);
    }
  }
}

TEST(FmaTest, TheGeneratorsHitDoubleRounding) {
  Random random(21);
  for (uint32_t kind : {0u, 1u, 2u}) {
    int wrong = 0;
    for (int i = 0; i < 100000; ++i) {
      const Operands x = Draw(&random, kind);
      wrong += SameBits(RoundedTwice(x), std::fma(x.a, x.b, x.c)) ? 0 : 1;
    }
    EXPECT_GT(wrong, 100) << "generator " << kind << " tests nothing";
  }
}

TEST(FmaTest, EveryPairOfSpecialValues) {
  const std::vector<uint32_t> specials = {0,          1,          0x007fffff, 0x00800000,
                                          0x00800001, 0x3f800000, 0x3f800001, 0x3effffff,
                                          0x7f7fffff, 0x7f7ffffe, 0x7f800000, 0x7fc00000,
                                          0x7f800001, 0x34000000, 0x4b800000};
  std::vector<float> values;
  for (uint32_t bits : specials) {
    values.push_back(std::bit_cast<float>(bits));
    values.push_back(std::bit_cast<float>(bits | 0x80000000u));
  }
  for (float a : values) {
    for (float b : values) {
      for (size_t i = 0; i < values.size(); i += kLanes) {
        std::array<Operands, kLanes> operands;
        for (size_t j = 0; j < kLanes; ++j) {
          operands[j] = {a, b, values[std::min(i + j, values.size() - 1)]};
        }
        ExpectAllLanes(operands);
      }
    }
  }
}

TEST(FmaTest, OneHundredMillionCases) {
  Random random(22);
  // The lanes are drawn from a pool and recombined, which is faster than drawing and keeps a, b and
  // c of one case together often enough.
  constexpr size_t kPool = 1u << 16;
  std::vector<Operands> pool(kPool);
  for (int round = 0; round < 10; ++round) {
    for (size_t i = 0; i < kPool; ++i) pool[i] = Draw(&random, static_cast<uint32_t>(i % 5));
    for (int pass = 0; pass < 10; ++pass) {
      const float scale = std::ldexp(1.0f, -pass);
      Lanes a, b, c, out;
      for (size_t i = 0; i < kPool; i += kLanes) {
        for (size_t j = 0; j < kLanes; ++j) {
          a[j] = pool[i + j].a * scale;
          b[j] = pool[i + j].b;
          c[j] = pool[i + j].c * scale;
        }
        for (int step = 0; step < 16; ++step) {  // a chain, as in a dot product
          FmaAll(a, b, c, &out);
          bool same = true;
          for (size_t j = 0; j < kLanes; ++j) {
            same = same && SameBits(out[j], std::fma(a[j], b[j], c[j]));
          }
          ASSERT_TRUE(same) << "round " << round << ", pass " << pass << ", case " << i;
          c = out;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
