// What a few bytes do to a GGUF image in pieces: numbers set to where sizes wrap, entries dropped,
// repeated and exchanged, bytes changed, the end cut off.
#ifndef LOCKSTEP_PROPERTIES_FUZZ_GGUF_EDITS_H_
#define LOCKSTEP_PROPERTIES_FUZZ_GGUF_EDITS_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "properties/fuzz/chunks.h"
#include "properties/fuzz/gguf_pieces.h"

namespace lockstep::fuzz {

// kind, piece, field, how, and an argument of two bytes; absent ones are zero.
inline constexpr size_t kGgufEditBytes = 6;

// The image after all edits, in their order; what changes single bytes of the file comes last.
std::vector<std::byte> ApplyGgufEdits(const GgufPieces& sound, std::span<const Chunk> edits);

// What the last of these edits does after the others, in one line.
std::string DescribeGgufEdit(const GgufPieces& sound, std::span<const Chunk> edits);

}  // namespace lockstep::fuzz

#endif  // LOCKSTEP_PROPERTIES_FUZZ_GGUF_EDITS_H_
