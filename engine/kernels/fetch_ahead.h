// Hints that a line of memory will be read soon. They change no bit, and may name memory that is
// nobody's: a hint is no access.
//
// Always inlined: a function with nothing but hints has no effect in g++'s eyes, and calls of it
// go.
//
// Internal linkage and no standard library, for the reasons of bits.h.
#ifndef LOCKSTEP_ENGINE_KERNELS_FETCH_AHEAD_H_
#define LOCKSTEP_ENGINE_KERNELS_FETCH_AHEAD_H_

#include <cstdint>

#include "engine/kernels/isa_kernels.h"
#include "engine/kernels/packed_layout.h"
#include "engine/kernels/quant_format.h"

namespace lockstep::internal {
namespace {

// Asks for `lines` from address `begin` on, into the second-level cache.
[[gnu::always_inline]] inline void FetchLines(uintptr_t begin, int64_t lines) {
  for (int64_t i = 0; i < lines; ++i) {
    const uintptr_t line = begin + static_cast<uintptr_t>(i * kLineBytes);
    __builtin_prefetch(reinterpret_cast<const void*>(line), 0, 2);
  }
}

// Asks for `bytes` from `at` + `ahead` on.
[[gnu::always_inline]] inline void FetchAhead(const uint8_t* at, int64_t ahead, int64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(at) + static_cast<uintptr_t>(ahead);
  for (int64_t b = 0; b < bytes; b += kLineBytes) {
    __builtin_prefetch(reinterpret_cast<const void*>(begin + static_cast<uintptr_t>(b)));
  }
}

// The weights of one token's matmul, read once from end to end. The processor's own prefetchers
// stop at each page of 4 KiB, and what kernels compute on a line keeps later loads from being begun
// early; so every line is asked for this far ahead. (From 12 KiB on
// it works, at 8 KiB it does not; measured on an Intel Xeon of 2023, where it nearly doubles the
// speed of the types with few bits.)
inline constexpr int64_t kWeightsAhead = 16 << 10;

class WeightStream {
 public:
  WeightStream() = default;  // asks for nothing
  // Of groups [.., group_end). What follows a matrix is asked for too: the next matrix.
  WeightStream(const PackedView& w, int32_t group_end)
      : end_(group_end * kRows < w.rows ? reinterpret_cast<uintptr_t>(GroupOf(w, group_end))
                                        : UINTPTR_MAX) {}

  // `lines` at `at` are read now.
  [[gnu::always_inline]] void Read(const uint8_t* at, int64_t lines) const {
    const auto begin = reinterpret_cast<uintptr_t>(at) + kWeightsAhead;
    if (begin < end_) FetchLines(begin, lines);
  }

 private:
  uintptr_t end_ = 0;  // nothing is asked for from here on
};

// Block b of a quantized group is read now, and the head of its unit if it is the first there.
template <GgmlType kType>
[[gnu::always_inline]] inline void ReadBlock(const WeightStream& stream, const uint8_t* group,
                                             int32_t b) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  if (b % kFormat.unit_blocks() == 0) {
    stream.Read(group + UnitAt(kFormat, b), kFormat.head_lines());
  }
  stream.Read(group + CodesAt(kFormat, b), kFormat.lines());
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_FETCH_AHEAD_H_
