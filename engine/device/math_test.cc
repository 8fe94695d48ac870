// The single-source operations against the host's, over many inputs. On a GPU they run in the
// kernels of the other tests.
#include "engine/device/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "caches/codec.h"
#include "caches/digest.h"
#include "caches/random.h"
#include "engine/math.h"

namespace lockstep {
namespace {

void ExpectSameExp(uint32_t bits) {
  const auto x = std::bit_cast<float>(bits);
  ASSERT_EQ(CanonicalBits(CanonicalExp(x)), CanonicalBits(device::Exp(x))) << x;
}

TEST(DeviceMathTest, ExpAtEveryEdge) {
  const std::vector<float> edges = {0.0f,
                                    0x1.62e42ep+6f,
                                    0x1.9fe368p+6f,
                                    0x1.4cec68p+2f,
                                    87.336544f,
                                    126.0f * 0.6931472f,
                                    0x1p-126f,
                                    std::numeric_limits<float>::infinity(),
                                    std::numeric_limits<float>::quiet_NaN(),
                                    std::numeric_limits<float>::max()};
  for (float edge : edges) {
    for (uint32_t around = 0; around < 2000; ++around) {
      const uint32_t bits = std::bit_cast<uint32_t>(edge) + around - 1000;
      ExpectSameExp(bits);
      ExpectSameExp(bits ^ 0x80000000u);
    }
  }
  for (int n = -160; n <= 160; ++n) {  // where the power of two changes
    for (uint32_t around = 0; around < 20; ++around) {
      const float x = (static_cast<float>(n) + 0.5f) * 0.6931472f;
      ExpectSameExp(std::bit_cast<uint32_t>(x) + around - 10);
    }
  }
}

TEST(DeviceMathTest, ExpOverAllExponents) {
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4099) {
    ExpectSameExp(static_cast<uint32_t>(bits));
  }
}

void ExpectSameTanh(uint32_t bits) {
  const auto x = std::bit_cast<float>(bits);
  ASSERT_EQ(CanonicalBits(CanonicalTanh(x)), CanonicalBits(device::Tanh(x))) << x;
}

TEST(DeviceMathTest, TanhAtItsEdgesAndOverAllExponents) {
  for (const float edge :
       {0.0f, 0x1.4p-1f, 0x1.429024p-1f, 9.0f, 0x1p-126f, std::numeric_limits<float>::infinity()}) {
    for (uint32_t around = 0; around < 2000; ++around) {
      const uint32_t bits = std::bit_cast<uint32_t>(edge) + around - 1000;
      ExpectSameTanh(bits);
      ExpectSameTanh(bits ^ 0x80000000u);
    }
  }
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 8191) {
    ExpectSameTanh(static_cast<uint32_t>(bits));
  }
}

// Every selector of bytes of two words, and every place of the table of IQ4.
TEST(DeviceMathTest, BytesAreTakenFromWhereTheSelectorSays) {
  const uint32_t a = 0x33221100u, b = 0x77665544u;
  for (uint32_t selector = 0; selector < 0x8888u; ++selector) {
    if ((selector & 0x8888u) != 0) continue;
    uint32_t expected = 0;
    for (int j = 0; j < 4; ++j) expected |= (selector >> (4 * j) & 7u) * 0x11u << (8 * j);
    ASSERT_EQ(device::BytesAt(a, b, selector), expected) << selector;
  }
}

// Products and sums of every size against each other: ties, cancellation, subnormal results.
TEST(DeviceMathTest, FmaRoundsOnce) {
  Random random(1);
  for (int i = 0; i < 1000000; ++i) {
    const auto draw = [&](int low, int high) {
      const float mantissa =
          1.0f +
          static_cast<float>(random.Below(1u << 23) & (i % 3 == 0 ? 0x7ff000u : ~0u)) * 0x1p-23f;
      return std::ldexp(random.Below(2) == 0 ? mantissa : -mantissa, random.Between(low, high));
    };
    const int reach = i % 2 == 0 ? 8 : 74;
    const float a = draw(-reach, reach);
    const float b = draw(-reach, reach);
    const float c = i % 5 == 0 ? -(a * b) : draw(-2 * reach, std::min(2 * reach, 126));
    ASSERT_EQ(CanonicalBits(std::fma(a, b, c)), CanonicalBits(device::Fma(a, b, c)))
        << a << " * " << b << " + " << c;
  }
  const float inf = std::numeric_limits<float>::infinity();
  for (float a : {0.0f, -0.0f, 1.0f, inf, -inf, std::nanf(""), 0x1p-149f, 0x1.fffffep+127f}) {
    for (float b : {0.0f, -1.0f, inf, 0x1p-149f, 0x1.fffffep+127f, 0x1p-75f, 0x1.8p-75f}) {
      for (float c : {0.0f, -0.0f, 1.0f, -inf, 0x1p-149f, -0x1.fffffep+127f}) {
        ASSERT_EQ(CanonicalBits(std::fma(a, b, c)), CanonicalBits(device::Fma(a, b, c)))
            << a << " * " << b << " + " << c;
      }
    }
  }
}

TEST(DeviceMathTest, Dp4aTakesSignedBytes) {
  EXPECT_EQ(device::Dp4a(0x80808080u, 0x7f7f7f7fu, 0), -4 * 128 * 127);
  EXPECT_EQ(device::Dp4a(0x80808080u, 0x80808080u, -1), 4 * 128 * 128 - 1);
  EXPECT_EQ(device::Dp4a(0x01000000u, 0xff000000u, 5), 4);
  EXPECT_EQ(device::Dp4a(0x04030201u, 0x01010101u, 0), 10);
}

TEST(DeviceMathTest, EveryHalf) {
  for (uint32_t half = 0; half < 0x10000u; ++half) {
    ASSERT_EQ(CanonicalBits(F32FromF16(static_cast<uint16_t>(half))),
              CanonicalBits(device::WidenF16(static_cast<uint16_t>(half))));
  }
}

}  // namespace
}  // namespace lockstep
