// The GGUF format itself: header, metadata, tensor entries, data section.
#ifndef LOCKSTEP_ENGINE_GGUF_PARSER_H_
#define LOCKSTEP_ENGINE_GGUF_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/gguf.h"

namespace lockstep {

struct GgufContents {
  uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<GgufTensor> tensors;  // their data points into the parsed bytes
  std::map<std::string, size_t, std::less<>> tensor_index;
};

// Throws Error for anything but a complete GGUF file of version 2 or 3; `file` is its name there.
GgufContents ParseGguf(std::span<const std::byte> bytes, const std::string& file);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_GGUF_PARSER_H_
