// Targets whose input is a list of operations of a few bytes each, after a head that says what they
// are done to. The text form is a line of hexadecimal digits each, with what it does as a comment.
#ifndef LOCKSTEP_PROPERTIES_FUZZ_CHUNKS_H_
#define LOCKSTEP_PROPERTIES_FUZZ_CHUNKS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "properties/fuzz/targets.h"

namespace lockstep::fuzz {

using Chunk = std::vector<std::byte>;

struct ChunkInput {
  Chunk head;
  std::vector<Chunk> ops;
};

class ChunkTarget : public TypedTarget<ChunkInput> {
 protected:
  explicit ChunkTarget(std::string_view word) : word_(word) {}

  // One line, without a newline. `ops` before this one are done already.
  virtual std::string DescribeHead(const ChunkInput& input) const = 0;
  virtual std::string DescribeOp(const ChunkInput& input, size_t op) const = 0;

 private:
  std::string Print(const ChunkInput& input) const final;
  ChunkInput Parse(std::string_view text, std::string_view where) const final;
  // Leaves out operations, then the last bytes of each.
  ChunkInput ShrinkInput(ChunkInput input, const InputJudge& judge) const final;

  std::string word_;
};

// The little-endian number of up to 8 bytes at `at`; bytes beyond the end count as zero.
uint64_t NumberAt(const Chunk& chunk, size_t at, size_t bytes);

// Printable ASCII as it is, everything else as \xNN.
std::string Printable(std::string_view bytes);

}  // namespace lockstep::fuzz

#endif  // LOCKSTEP_PROPERTIES_FUZZ_CHUNKS_H_
