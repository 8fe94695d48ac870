// What the tests of single caches share: rows without any luck in them, and short ways to write and
// read.
#ifndef LOCKSTEP_CACHES_STORAGE_TEST_UTIL_H_
#define LOCKSTEP_CACHES_STORAGE_TEST_UTIL_H_

#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "caches/kv_cache.h"
#include "caches/random.h"

namespace lockstep::storage_test {

// [n, kv_stride] floats in [-4, 4) that no block format keeps exactly; each half, layer, position
// and version has its own.
inline std::vector<float> Rows(const KvGeometry& geometry, int32_t layer,
                               std::span<const int32_t> positions, int32_t version, bool keys) {
  std::vector<float> rows;
  for (int32_t position : positions) {
    Random random = Random(keys ? 1 : 2)
                        .Split(static_cast<uint64_t>(layer))
                        .Split(static_cast<uint64_t>(position))
                        .Split(static_cast<uint64_t>(version));
    for (int64_t i = 0; i < geometry.kv_stride(); ++i) {
      rows.push_back(static_cast<float>(random.Between(-(1 << 23), (1 << 23) - 1)) / (1 << 21));
    }
  }
  return rows;
}

// first, ..., end - 1
inline std::vector<int32_t> Range(int32_t first, int32_t end) {
  std::vector<int32_t> positions(static_cast<size_t>(end - first));
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

inline void Write(KvCache* cache, int32_t layer, const std::vector<int32_t>& positions,
                  int32_t version) {
  const KvGeometry& g = cache->geometry();
  cache->Update(layer, positions, Rows(g, layer, positions, version, true),
                Rows(g, layer, positions, version, false));
}

inline void WriteAll(KvCache* cache, const std::vector<int32_t>& positions, int32_t version) {
  for (int32_t layer = 0; layer < cache->geometry().num_layers; ++layer) {
    Write(cache, layer, positions, version);
  }
}

// Equal to the bit: -0.0 is not +0.0, a NaN equals itself.
inline bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

inline KvRows Read(const KvCache& cache, int32_t layer) {
  KvView view;
  cache.View(layer, &view);
  return DecodeRows(view, cache.geometry().kv_stride());
}

inline KvRows ReadForQuery(const KvCache& cache, int32_t layer, int32_t position) {
  KvView view;
  cache.ViewForQuery(layer, position, &view);
  return DecodeRows(view, cache.geometry().kv_stride());
}

// All that a caller can see, to compare before and after.
struct Snapshot {
  std::vector<int32_t> lengths;  // [num_layers]
  Digest cache;
  Digest storage;
  friend bool operator==(const Snapshot&, const Snapshot&) = default;
};

inline Snapshot SnapshotOf(const KvCache& cache) {
  Snapshot snapshot{.lengths = {}, .cache = DigestOfCache(cache), .storage = cache.StorageDigest()};
  for (int32_t layer = 0; layer < cache.geometry().num_layers; ++layer) {
    snapshot.lengths.push_back(cache.length(layer));
  }
  return snapshot;
}

}  // namespace lockstep::storage_test

#endif  // LOCKSTEP_CACHES_STORAGE_TEST_UTIL_H_
