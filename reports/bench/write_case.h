// One way to write K and V rows into a cache: tokens one by one, each into every layer. The rows
// come from where a projection would compute them: on the direct path that is the slot, on the
// legacy path scratch memory that Update copies from.
#ifndef LOCKSTEP_REPORTS_BENCH_WRITE_CASE_H_
#define LOCKSTEP_REPORTS_BENCH_WRITE_CASE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "caches/digest.h"
#include "caches/kv_cache.h"

namespace lockstep::internal {

struct WriteGeometry {
  std::string_view name;
  KvGeometry geometry;  // max_length is that of the case

  // What Update copies for one token, all layers.
  int64_t copied_bytes() const { return 2 * geometry.kv_stride() * 4 * geometry.num_layers; }
};

// SmolLM-135M (kv_stride 192, 30 layers) and a 7B model with grouped queries (1024, 32).
std::vector<WriteGeometry> WriteGeometries();

enum class WritePath { kUpdate, kDirect };

class WriteCase {
 public:
  // Throws Error for an unknown cache. REQUIRES: tokens > 0.
  WriteCase(const std::string& cache, const WriteGeometry& geometry, WritePath path,
            int32_t tokens);

  // Rolls back to nothing and writes all tokens. REQUIRES on the direct path: the cache grants.
  void Run();

  // Of the cache's rows.
  Digest digest() const;

  // Bytes that were handed to Update in the last Run; 0 on the direct path.
  int64_t handed_over() const { return handed_over_; }
  int32_t tokens() const { return tokens_; }

 private:
  std::span<const float> RowsOf(int32_t token, int32_t layer) const;  // [2, kv_stride]

  KvGeometry geometry_;
  WritePath path_;
  int32_t tokens_;
  int64_t handed_over_ = 0;
  std::vector<float> source_;   // [tokens * layers + 1, 2, kv_stride], overlapping
  std::vector<float> scratch_;  // [2, kv_stride]
  std::unique_ptr<KvCache> cache_;
};

// A plain copy of as many bytes as Update copies for so many tokens, into memory of the same shape.
class CopyCase {
 public:
  CopyCase(const WriteGeometry& geometry, int32_t tokens);
  void Run();
  Digest digest() const;

 private:
  size_t row_;                        // floats copied at once: K or V of one layer and token
  std::vector<float> source_, copy_;  // [tokens, layers, 2, kv_stride]
};

}  // namespace lockstep::internal

#endif  // LOCKSTEP_REPORTS_BENCH_WRITE_CASE_H_
