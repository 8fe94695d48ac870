#include "engine/gguf/types.h"

#include <fmt/format.h>

#include <array>

namespace lockstep {
namespace {

struct KnownType {
  uint32_t id;
  bool supported;  // lockstep computes with it
  GgmlTypeTraits traits;
};

// ggml's block formats (ggml/src/ggml-common.h). Missing ids were withdrawn by ggml. Ids from 40 on
// are left out because their layouts still change, and a wrong size would refuse a sound file.
constexpr std::array kKnownTypes = {
    KnownType{0, true, {"f32", 1, 4}},          KnownType{1, true, {"f16", 1, 2}},
    KnownType{2, true, {"q4_0", 32, 18}},       KnownType{3, true, {"q4_1", 32, 20}},
    KnownType{6, true, {"q5_0", 32, 22}},       KnownType{7, true, {"q5_1", 32, 24}},
    KnownType{8, true, {"q8_0", 32, 34}},       KnownType{9, false, {"q8_1", 32, 36}},
    KnownType{10, true, {"q2_k", 256, 84}},     KnownType{11, true, {"q3_k", 256, 110}},
    KnownType{12, true, {"q4_k", 256, 144}},    KnownType{13, true, {"q5_k", 256, 176}},
    KnownType{14, true, {"q6_k", 256, 210}},    KnownType{15, false, {"q8_k", 256, 292}},
    KnownType{16, false, {"iq2_xxs", 256, 66}}, KnownType{17, false, {"iq2_xs", 256, 74}},
    KnownType{18, false, {"iq3_xxs", 256, 98}}, KnownType{19, false, {"iq1_s", 256, 50}},
    KnownType{20, true, {"iq4_nl", 32, 18}},    KnownType{21, false, {"iq3_s", 256, 110}},
    KnownType{22, false, {"iq2_s", 256, 82}},   KnownType{23, true, {"iq4_xs", 256, 136}},
    KnownType{24, false, {"i8", 1, 1}},         KnownType{25, false, {"i16", 1, 2}},
    KnownType{26, false, {"i32", 1, 4}},        KnownType{27, false, {"i64", 1, 8}},
    KnownType{28, false, {"f64", 1, 8}},        KnownType{29, false, {"iq1_m", 256, 56}},
    KnownType{30, true, {"bf16", 1, 2}},        KnownType{34, false, {"tq1_0", 256, 54}},
    KnownType{35, false, {"tq2_0", 256, 66}},   KnownType{39, false, {"mxfp4", 32, 17}},
};

const KnownType* Find(GgmlType type) {
  for (const KnownType& known : kKnownTypes) {
    if (known.id == static_cast<uint32_t>(type)) return &known;
  }
  return nullptr;
}

}  // namespace

std::optional<GgmlTypeTraits> TraitsOf(GgmlType type) {
  const KnownType* known = Find(type);
  if (known == nullptr || !known->supported) return std::nullopt;
  return known->traits;
}

std::optional<GgmlTypeTraits> KnownTraitsOf(GgmlType type) {
  const KnownType* known = Find(type);
  if (known == nullptr) return std::nullopt;
  return known->traits;
}

std::string DescribeType(GgmlType type) {
  const KnownType* known = Find(type);
  if (known != nullptr) return std::string(known->traits.name);
  return fmt::format("with id {}", static_cast<uint32_t>(type));
}

std::optional<int64_t> TensorBytes(const GgmlTypeTraits& traits, std::span<const int64_t> shape) {
  if (shape[0] % traits.block_elements != 0) return std::nullopt;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(shape[0] / traits.block_elements, traits.block_bytes, &bytes)) {
    return std::nullopt;
  }
  for (int64_t dimension : shape.subspan(1)) {
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) return std::nullopt;
  }
  return bytes;
}

}  // namespace lockstep
