// What the contract's tests share: rows that every storage type keeps exactly, the plainest model
// of a cache to compare with, and a snapshot of everything that "no observable change" covers.
#ifndef LOCKSTEP_CACHES_CONTRACT_FIXTURE_H_
#define LOCKSTEP_CACHES_CONTRACT_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "caches/kv_cache.h"
#include "caches/registry.h"

namespace lockstep::contract {

// Odd where it can be: 3 heads (rows of 3 quantized blocks), a length that no block size divides.
inline constexpr KvGeometry kGeometry = {
    .num_layers = 3, .num_kv_heads = 3, .head_dim = 32, .max_length = 21};

enum class Half { kKeys, kValues };

// A row of kv_stride elements that is the same after any encoding: per 32 elements it holds only
// +0.0 and -127 * 2^k. Those are exact in F16 and BF16, and so are the scales 2^k (Q8_0) and
// 127 * 2^(k-3) (Q4_0) in F16. Rows differ in all that names them; `version` tells
// rewrites apart.
std::vector<float> Row(const KvGeometry& geometry, int32_t layer, int32_t position, int version,
                       Half half);

// The rows of `positions`, one after another: [n, kv_stride].
std::vector<float> Rows(const KvGeometry& geometry, int32_t layer,
                        std::span<const int32_t> positions, int version, Half half);

// first, first + 1, ..., end - 1.
std::vector<int32_t> Range(int32_t first, int32_t end);

// A map from position to row: the contract in its simplest form.
class Model {
 public:
  explicit Model(const KvGeometry& geometry)
      : geometry_(geometry), layers_(static_cast<size_t>(geometry.num_layers)) {}

  void Write(int32_t layer, std::span<const int32_t> positions, int version);
  void Rollback(int32_t length);

  int32_t length(int32_t layer) const { return layers_[static_cast<size_t>(layer)].length; }
  KvRows rows(int32_t layer) const;  // gaps are +0.0f

 private:
  struct Layer {
    int32_t length = 0;
    std::map<int32_t, int> versions;  // position -> version written last
  };
  KvGeometry geometry_;
  std::vector<Layer> layers_;
};

// ---- Writing -----------------------------------------------------------------------------

void Update(KvCache* cache, int32_t layer, const std::vector<int32_t>& positions, int version);

// Fills a reserved slot with the rows of `positions`.
void Fill(const KvCache& cache, const KvSlot& slot, int32_t layer,
          const std::vector<int32_t>& positions, int version);

// Reserve, write, commit. False, and nothing else happened, when the reservation was refused.
bool WriteDirect(KvCache* cache, int32_t layer, const std::vector<int32_t>& positions, int version);

// Update at every layer.
void UpdateAll(KvCache* cache, const std::vector<int32_t>& positions, int version);

// ---- Reading -----------------------------------------------------------------------------

KvRows Read(const KvCache& cache, int32_t layer);

// "" when every layer shows what the model holds, to the bit; else the first difference.
std::string Difference(const KvCache& cache, const Model& model);

// All that a caller can observe.
struct Snapshot {
  int32_t current_length = 0;
  std::vector<int32_t> lengths = {};                    // by layer
  std::vector<std::vector<uint32_t>> row_bits = {};     // by layer: K rows, then V rows
  std::vector<std::vector<Digest>> query_digests = {};  // by layer, by position of the query
  Digest hash;                                          // X1
  Digest storage;                                       // X2
  std::optional<BlockCounts> blocks = std::nullopt;

  friend bool operator==(const Snapshot&, const Snapshot&) = default;
};
Snapshot Observe(const KvCache& cache);
void PrintTo(const Snapshot& snapshot, std::ostream* out);

// The bits of floats, for comparison: -0.0 and NaNs count.
std::vector<uint32_t> Bits(std::span<const float> values);

// ---- Subjects ----------------------------------------------------------------------------

// The base of every test that runs over caches of the registry.
class CacheTest : public testing::TestWithParam<CacheSpec> {
 protected:
  std::unique_ptr<KvCache> Make(int32_t sequences = 2) const {
    return GetParam().make({.geometry = kGeometry, .sequences = sequences});
  }
  // The longest run from position 0 that one slot can hold.
  int32_t SlotRows() const {
    const int32_t block = GetParam().block_size;
    return block == 0 ? kGeometry.max_length : std::min(block, kGeometry.max_length);
  }
};

// Which caches a test runs over: all, but that of rings, which forget rows, there is one that is
// long enough not to; those that grant host slots, those that never do, those with
// blocks, those with a full-precision window.
std::vector<CacheSpec> EveryCache();
std::vector<CacheSpec> SlotCaches();
std::vector<CacheSpec> SlotlessCaches();
std::vector<CacheSpec> BlockCaches();
std::vector<CacheSpec> WindowCaches();
std::vector<CacheSpec> QuantizedCaches();
std::string TestName(const testing::TestParamInfo<CacheSpec>& info);

}  // namespace lockstep::contract

namespace lockstep {
void PrintTo(const CacheSpec& spec, std::ostream* out);
}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_CONTRACT_FIXTURE_H_
