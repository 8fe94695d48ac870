// ggml's tensor types: sizes of all that are known, computed with or not, for bounds and messages.
#ifndef LOCKSTEP_ENGINE_GGUF_TYPES_H_
#define LOCKSTEP_ENGINE_GGUF_TYPES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "engine/gguf.h"

namespace lockstep {

inline constexpr std::string_view kSupportedTypesRemedy =
    "convert the model to F32, F16, BF16, Q4_0 to Q8_0, Q2_K to Q6_K, IQ4_NL or IQ4_XS";

// Sizes of every type id that ggml defines; nullopt for the others.
std::optional<GgmlTypeTraits> KnownTraitsOf(GgmlType type);

// "q6_k", or "with id 9999" for a type that ggml does not define.
std::string DescribeType(GgmlType type);

// Bytes that a tensor takes; nullopt when a count overflows or shape[0] is no multiple of the
// block. REQUIRES: shape is not empty, every dimension is at least 1.
std::optional<int64_t> TensorBytes(const GgmlTypeTraits& traits, std::span<const int64_t> shape);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_GGUF_TYPES_H_
