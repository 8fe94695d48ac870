// A sound GGUF image taken into pieces whose numbers are known by name, changed, and put together
// again: damage that a parser cannot refuse by its first glance.
#ifndef LOCKSTEP_PROPERTIES_FUZZ_GGUF_PIECES_H_
#define LOCKSTEP_PROPERTIES_FUZZ_GGUF_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::fuzz {

// A little-endian number inside a piece.
struct GgufField {
  std::string name;  // "array length"
  size_t offset = 0;
  size_t bytes = 0;  // 1, 2, 4 or 8
};

// A metadata entry or a line of the tensor table.
struct GgufPiece {
  std::string name;  // its key, or its tensor's name
  std::vector<std::byte> bytes;
  std::vector<GgufField> fields;
};

struct GgufPieces {
  GgufPiece header;  // magic, version, counts
  std::vector<GgufPiece> metadata;
  std::vector<GgufPiece> tensors;
  std::vector<std::byte> data;
  bool counts_changed = false;  // a count was set on purpose: Assemble leaves them

  // Header, metadata and tensors, in this order.
  size_t size() const { return 1 + metadata.size() + tensors.size(); }
  GgufPiece& at(size_t i);
  const GgufPiece& at(size_t i) const;
};

// REQUIRES: an image that GgufWriter made (LS_CHECK).
GgufPieces TakeApart(std::span<const std::byte> image);

// With the counts of what is there, unless one was set on purpose; data aligned to 32.
std::vector<std::byte> Assemble(const GgufPieces& pieces);

}  // namespace lockstep::fuzz

#endif  // LOCKSTEP_PROPERTIES_FUZZ_GGUF_PIECES_H_
