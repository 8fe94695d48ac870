// What a script of cache operations chooses by chance: geometry, operations, positions, rows. All
// of it follows from the seed.
#ifndef LOCKSTEP_ORACLE_SCRIPT_CHOICES_H_
#define LOCKSTEP_ORACLE_SCRIPT_CHOICES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "caches/kv_cache.h"
#include "caches/random.h"

namespace lockstep::oracle {

class Choices {
 public:
  enum Kind { kUpdate, kReserve, kCommit, kStep, kRollback, kClear, kFork, kQuery, kKinds };

  // REQUIRES: head_dim_multiple > 0; head_dim is a multiple of it.
  Choices(uint64_t seed, int32_t head_dim_multiple, bool forks);

  const KvGeometry& geometry() const { return geometry_; }
  bool OneIn(uint32_t n) { return random_.Below(n) == 0; }
  size_t Index(size_t size) { return random_.Below(static_cast<uint32_t>(size)); }
  Kind PickKind();

  // Mostly good ones; the rest is what has to be refused or to throw.
  int32_t PickLayer();
  std::vector<int32_t> PickPositions(int32_t length, int32_t max_step_rows);
  int32_t PickRollback(int32_t length);

  // Rows of ordinary values and of those that row codecs have edges for, [rows, kv_stride].
  std::vector<float> PickRows(size_t rows);

 private:
  std::vector<int32_t> RunOf(int64_t first, int32_t count) const;
  std::vector<int32_t> AnyOf(int32_t count);
  int32_t AnyPosition() { return random_.Between(0, geometry_.max_length - 1); }
  float PickFloat(uint32_t style);

  Random random_;
  KvGeometry geometry_;
  std::array<uint32_t, kKinds> weights_ = {};
};

}  // namespace lockstep::oracle

#endif  // LOCKSTEP_ORACLE_SCRIPT_CHOICES_H_
