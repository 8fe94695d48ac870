// Digests of the K and V rows that a step wrote, taken while decoding.
//
// A row that changes after it was written shows in the digest of the whole cache alone; a row that
// was wrong from the start shows here, in the step that wrote it.
#ifndef LOCKSTEP_ENGINE_ROW_WATCH_H_
#define LOCKSTEP_ENGINE_ROW_WATCH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "caches/digest.h"
#include "caches/kv_cache.h"

namespace lockstep {

class RowWatch {
 public:
  // XXH3-128 over, for each layer: the K rows of `positions` in their order, then the V rows, as
  // canonical floats of the view. Caches that show equal rows have equal digests, however they
  // store them. Allocates nothing once the largest step was seen.
  // Throws std::out_of_range when a layer does not show a position.
  Digest OfRows(const KvCache& cache, std::span<const int32_t> positions);

 private:
  void AddRows(int64_t stride, std::span<const int32_t> positions, bool keys);

  KvView view_;
  std::vector<float> row_;      // one row
  std::vector<uint32_t> bits_;  // [layers, K and V, positions, stride]
  size_t used_ = 0;             // of bits_
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_ROW_WATCH_H_
