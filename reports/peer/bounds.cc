#include <algorithm>
#include <array>

#include "caches/check.h"
#include "reports/peer_check.h"

namespace lockstep {
namespace {

constexpr std::string_view kExact =
    "the peer rounds activations to this type; lockstep rounds none, and has to be the twin's bits";
constexpr std::string_view k32 =
    "both round activations to 8 bits in blocks of 32; the peer also rounds the scale to F16";
constexpr std::string_view k32WithLow =
    "as q8_0; the peer also rounds the block's sum to F16, for the low";
constexpr std::string_view k256 =
    "both round activations to 8 bits, the peer in blocks of 256, lockstep of 32";

constexpr std::array kBounds = {
    PeerBound{GgmlType::kF32, 0, "nothing: the model is its own twin"},
    PeerBound{GgmlType::kF16, 0, kExact},
    PeerBound{GgmlType::kQ4_0, 1.5, k32},
    PeerBound{GgmlType::kQ4_1, 1.5, k32WithLow},
    PeerBound{GgmlType::kQ5_0, 1.5, k32},
    PeerBound{GgmlType::kQ5_1, 1.5, k32WithLow},
    PeerBound{GgmlType::kQ8_0, 1.5, k32},
    PeerBound{GgmlType::kQ2_K, 1.25, k256},
    PeerBound{GgmlType::kQ3_K, 1.25, k256},
    PeerBound{GgmlType::kQ4_K, 1.25, k256},
    PeerBound{GgmlType::kQ5_K, 1.25, k256},
    PeerBound{GgmlType::kQ6_K, 1.25, k256},
    PeerBound{GgmlType::kIQ4_NL, 1.5, k32},
    PeerBound{GgmlType::kIQ4_XS, 1.25, k256},
    PeerBound{GgmlType::kBF16, 0, kExact},
};

}  // namespace

std::span<const PeerBound> PeerBounds() { return kBounds; }

const PeerBound& PeerBoundOf(const GgufFile& file) {
  const PeerBound* widest = &kBounds.front();
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.shape.size() < 2) continue;
    const auto* of_type = std::ranges::find(kBounds, tensor.type, &PeerBound::type);
    LS_CHECK(of_type != kBounds.end(), "no bound for type {}", static_cast<uint32_t>(tensor.type));
    if (of_type->rounding > widest->rounding || widest->type == GgmlType::kF32) widest = of_type;
  }
  return *widest;
}

}  // namespace lockstep
