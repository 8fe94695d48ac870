// GGUF images for tests, sound or not: every count, length, type and offset can be given freely,
// which GgufWriter does not allow.
#ifndef LOCKSTEP_ENGINE_GGUF_RAW_IMAGE_H_
#define LOCKSTEP_ENGINE_GGUF_RAW_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/gguf/format.h"

namespace lockstep::raw {

// The little-endian bytes of a number.
template <typename T>
std::string Number(T value) {
  static_assert(std::is_arithmetic_v<T>);
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

inline std::string Type(GgufValueType type) { return Number(static_cast<uint32_t>(type)); }

// A string, whose stated length may be a lie.
inline std::string Text(std::string_view text, std::optional<uint64_t> length = std::nullopt) {
  return Number(length.value_or(text.size())) + std::string(text);
}

// A whole metadata entry from the bytes of its value.
inline std::string Entry(std::string_view key, GgufValueType type, std::string_view value) {
  return Text(key) + Type(type) + std::string(value);
}

// A whole metadata entry with an array from the bytes of its elements.
inline std::string ArrayEntry(std::string_view key, GgufValueType element, uint64_t count,
                              std::string_view elements) {
  return Entry(key, GgufValueType::kArray, Type(element) + Number(count) + std::string(elements));
}

struct Tensor {
  std::string name = "t";
  std::vector<uint64_t> shape = {4};
  uint32_t type = 0;  // F32
  uint64_t offset = 0;
  std::optional<uint32_t> dimensions = {};  // default: shape.size()
};

struct Image {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::vector<std::string> metadata;  // bytes of each entry
  std::vector<Tensor> tensors;
  std::optional<uint64_t> metadata_count;  // default: metadata.size()
  std::optional<uint64_t> tensor_count;    // default: tensors.size()
  uint64_t alignment = kGgufDefaultAlignment;
  size_t data_bytes = 0;  // of the data section, filled with 0, 1, 2, ...; 0: no section at all
};

// Where a number lies in a built image: what a mutator changes to be understood.
struct Field {
  size_t offset = 0;
  size_t bytes = 0;  // 4 or 8
};

// Appends to `fields`, where given, the counts, lengths, shapes, types and offsets of header and
// tensor entries, and the length of every metadata key.
std::vector<std::byte> Build(const Image& image, std::vector<Field>* fields = nullptr);

}  // namespace lockstep::raw

#endif  // LOCKSTEP_ENGINE_GGUF_RAW_IMAGE_H_
