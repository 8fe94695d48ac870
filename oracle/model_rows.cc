#include "oracle/model_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "caches/check.h"

namespace lockstep::oracle {
namespace {

constexpr size_t kBlock = 32;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// One binary32 operation: for two binary32 operands, rounding the double result of +, *, / once
// more gives the correctly rounded binary32 result, because 53 >= 2 * 24 + 2 (Figueroa 1995).
float Rounded(double value) { return static_cast<float>(value); }

unsigned ByteAt(std::span<const std::byte> bytes, size_t index) {
  return std::to_integer<unsigned>(bytes[index]);
}

uint16_t U16At(std::span<const std::byte> bytes, size_t index) {
  return static_cast<uint16_t>(ByteAt(bytes, index) | ByteAt(bytes, index + 1) << 8);
}

void PutU16(uint16_t value, std::vector<std::byte>* out) {
  out->push_back(static_cast<std::byte>(value & 0xff));
  out->push_back(static_cast<std::byte>(value >> 8));
}

bool AllFinite(std::span<const float> block) {
  return std::ranges::all_of(block, [](float x) { return std::isfinite(x); });
}

// The scale of a block whose largest magnitude asks for `wanted`, after the edges zero and huge.
// Zero stands for "the zero block".
float ScaleInRange(float wanted) {
  const double stored = ValueOfF16(NearestF16(wanted));
  if (stored == 0) return 0;
  if (std::isinf(stored)) return std::copysign(65504.0f, wanted);
  return wanted;
}

// Nearest integer, halves away from zero, in [-127, 127].
int CodeQ8_0(float x, float id) {
  const double scaled = Rounded(double{x} * id);
  const double nearest = scaled < 0 ? -std::floor(-scaled + 0.5) : std::floor(scaled + 0.5);
  return static_cast<int>(std::clamp(nearest, -127.0, 127.0));
}

int CodeQ4_0(float x, float id) {
  const double shifted = Rounded(double{Rounded(double{x} * id)} + 8.5);
  return static_cast<int>(std::clamp(std::trunc(shifted), 0.0, 15.0));
}

// Scale and codes of a block, before they are packed.
struct Codes {
  uint16_t scale = 0;
  int code[kBlock] = {};
};

template <typename Code>
Codes EncodeBlock(std::span<const float> x, float wanted, int zero, Code code) {
  Codes out;
  std::fill_n(out.code, kBlock, zero);
  if (!AllFinite(x)) {
    out.scale = 0x7e00;
    return out;
  }
  const float d = ScaleInRange(wanted);
  if (d == 0) return out;
  out.scale = NearestF16(d);
  const float id = Rounded(1.0 / d);
  for (size_t i = 0; i < kBlock; ++i) out.code[i] = code(x[i], id);
  return out;
}

// The first of the elements of largest magnitude.
float Largest(std::span<const float> x) {
  return *std::ranges::max_element(x, {}, [](float v) { return std::fabs(v); });
}

void EncodeQ8_0(std::span<const float> x, std::vector<std::byte>* out) {
  const Codes codes = EncodeBlock(x, Rounded(std::fabs(Largest(x)) / 127.0), 0, CodeQ8_0);
  PutU16(codes.scale, out);
  for (int code : codes.code) out->push_back(static_cast<std::byte>(code & 0xff));
}

void EncodeQ4_0(std::span<const float> x, std::vector<std::byte>* out) {
  const Codes codes = EncodeBlock(x, Rounded(Largest(x) / -8.0), 8, CodeQ4_0);
  PutU16(codes.scale, out);
  for (size_t j = 0; j < kBlock / 2; ++j) {
    out->push_back(static_cast<std::byte>(codes.code[j] + 16 * codes.code[j + kBlock / 2]));
  }
}

}  // namespace

double ValueOfF16(uint16_t bits) {
  const int sign = bits >> 15;
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  double magnitude = 0;
  if (exponent == 31) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity() : kNan;
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, -24);
  } else {
    magnitude = std::ldexp(1024 + fraction, exponent - 25);
  }
  return sign == 1 ? -magnitude : magnitude;
}

double ValueOfBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

namespace {

// A format of 16 bits whose positive finite numbers are ordered as their bits.
struct HalfFormat {
  double (*value)(uint16_t bits);
  uint16_t infinity;
  double past_largest;  // where infinity's number would be if it were one
  uint16_t nan;
};

uint16_t Nearest(const HalfFormat& format, double value) {
  if (std::isnan(value)) return format.nan;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  // Find the last number that is not above, then choose between it and the next.
  uint16_t low = 0;
  uint16_t high = format.infinity;
  while (high - low > 1) {
    const auto middle = static_cast<uint16_t>((low + high) / 2);
    (format.value(middle) <= magnitude ? low : high) = middle;
  }
  const double below = format.value(low);
  const double above = high == format.infinity ? format.past_largest : format.value(high);
  const double middle = (below + above) / 2;  // exact
  const bool up = magnitude > middle || (magnitude == middle && low % 2 == 1);
  return static_cast<uint16_t>(sign | (up ? high : low));
}

}  // namespace

uint16_t NearestF16(double value) {
  return Nearest({.value = ValueOfF16, .infinity = 0x7c00, .past_largest = 65536.0, .nan = 0x7e00},
                 value);
}

uint16_t NearestBf16(double value) {
  return Nearest({.value = ValueOfBf16, .infinity = 0x7f80, .past_largest = 0x1p128, .nan = 0x7fc0},
                 value);
}

void ValuesOfQ8_0(const std::byte* block, double* values) {
  const std::span<const std::byte> bytes(block, 34);
  const double d = ValueOfF16(U16At(bytes, 0));
  for (size_t i = 0; i < kBlock; ++i) {
    const int code = static_cast<int>(ByteAt(bytes, 2 + i));
    values[i] = d * (code < 128 ? code : code - 256);
  }
}

void ValuesOfQ4_0(const std::byte* block, double* values) {
  const std::span<const std::byte> bytes(block, 18);
  const double d = ValueOfF16(U16At(bytes, 0));
  for (size_t j = 0; j < kBlock / 2; ++j) {
    const int both = static_cast<int>(ByteAt(bytes, 2 + j));
    values[j] = d * (both % 16 - 8);
    values[j + kBlock / 2] = d * (both / 16 - 8);
  }
}

std::vector<std::byte> EncodeModelRow(RowType type, std::span<const float> row) {
  std::vector<std::byte> stored;
  switch (type) {
    case RowType::kF32:
      for (float x : row) {
        const auto bits = std::bit_cast<uint32_t>(x);
        PutU16(static_cast<uint16_t>(bits & 0xffff), &stored);
        PutU16(static_cast<uint16_t>(bits >> 16), &stored);
      }
      return stored;
    case RowType::kF16:
      for (float x : row) PutU16(NearestF16(x), &stored);
      return stored;
    case RowType::kBf16:
      for (float x : row) PutU16(NearestBf16(x), &stored);
      return stored;
    case RowType::kQ8_0:
    case RowType::kQ4_0:
      LS_CHECK(row.size() % kBlock == 0, "a row of {} elements", row.size());
      for (size_t i = 0; i < row.size(); i += kBlock) {
        (type == RowType::kQ8_0 ? EncodeQ8_0 : EncodeQ4_0)(row.subspan(i, kBlock), &stored);
      }
      return stored;
  }
  LS_CHECK(false, "row type {}", static_cast<int>(type));
  return {};
}

std::vector<float> DecodeModelRow(RowType type, std::span<const std::byte> stored) {
  std::vector<float> row;
  double block[kBlock];
  switch (type) {
    case RowType::kF32:
      for (size_t i = 0; i < stored.size(); i += 4) {
        row.push_back(
            std::bit_cast<float>(U16At(stored, i) | uint32_t{U16At(stored, i + 2)} << 16));
      }
      return row;
    case RowType::kF16:
      for (size_t i = 0; i < stored.size(); i += 2) {
        row.push_back(Rounded(ValueOfF16(U16At(stored, i))));
      }
      return row;
    case RowType::kBf16:
      for (size_t i = 0; i < stored.size(); i += 2) {
        row.push_back(Rounded(ValueOfBf16(U16At(stored, i))));
      }
      return row;
    case RowType::kQ8_0:
    case RowType::kQ4_0:
      for (size_t i = 0; i < stored.size(); i += type == RowType::kQ8_0 ? 34 : 18) {
        (type == RowType::kQ8_0 ? ValuesOfQ8_0 : ValuesOfQ4_0)(stored.data() + i, block);
        for (double value : block) row.push_back(Rounded(value));
      }
      return row;
  }
  LS_CHECK(false, "row type {}", static_cast<int>(type));
  return {};
}

}  // namespace lockstep::oracle
