// Constants of the GGUF format (ggml/docs/gguf.md) that reader and writer share.
#ifndef LOCKSTEP_ENGINE_GGUF_FORMAT_H_
#define LOCKSTEP_ENGINE_GGUF_FORMAT_H_

#include <bit>
#include <cstdint>
#include <string_view>

namespace lockstep {

static_assert(std::endian::native == std::endian::little, "GGUF fields are copied as they lie");

// Types of metadata values.
enum class GgufValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

inline constexpr uint32_t kGgufMagic = 0x46554747;  // "GGUF"
inline constexpr uint32_t kGgufOldestVersion = 2;
inline constexpr uint32_t kGgufNewestVersion = 3;

inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";
inline constexpr uint64_t kGgufDefaultAlignment = 32;

inline constexpr uint64_t kGgufMaxNameBytes = 65535;  // GGUF's limit for keys
inline constexpr uint32_t kGgmlMaxDimensions = 4;

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_GGUF_FORMAT_H_
