// The argument checks that every cache shares, in the order that caches/CONTRACT.md fixes, and the
// bookkeeping of open reservations. They only look and throw: nothing here changes a cache.
#ifndef LOCKSTEP_CACHES_KV_CHECKS_H_
#define LOCKSTEP_CACHES_KV_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "caches/kv_cache.h"

namespace lockstep {

// std::invalid_argument unless every dimension is positive and a layer's storage fits 63 bits.
void CheckGeometry(const KvGeometry& geometry);

// std::out_of_range unless 0 <= layer < num_layers [R1, U4, C2].
void CheckLayer(const KvGeometry& geometry, int32_t layer);

// The checks of Update [U1, U4, U7]: layer, then number of elements, then every position.
// Returns 1 + the highest position, 0 for empty input.
int32_t CheckUpdate(const KvGeometry& geometry, int32_t layer, std::span<const int32_t> positions,
                    std::span<const float> keys, std::span<const float> values);

// The same for rows that lie elsewhere: so many elements each.
int32_t CheckUpdate(const KvGeometry& geometry, int32_t layer, std::span<const int32_t> positions,
                    size_t key_elements, size_t value_elements);
// The next of them, of caches with a full-precision window or with layers that forget rows.
void CheckStepRows(std::span<const int32_t> positions, int32_t max_step_rows);

// The check of ViewForQuery after that of the layer [V1].
void CheckQuery(int32_t position, int32_t length);

// The checks of Rollback [B1].
void CheckRollback(int32_t length, int32_t current_length);

// A non-empty contiguous run inside [0, max_length), computed without overflow [R2, U7].
struct PositionRun {
  int32_t first = 0;
  int32_t count = 0;                             // > 0
  int32_t end() const { return first + count; }  // <= max_length: cannot overflow
  friend bool operator==(const PositionRun&, const PositionRun&) = default;
};

// The run, or nullopt when R2 refuses: empty, not contiguous, negative, or past max_length.
std::optional<PositionRun> AsRun(std::span<const int32_t> positions, int32_t max_length);

// What CommitSlot has to do, decided in the order of C1 and C2.
enum class CommitAction { kPublish, kNothing };

// kPublish when `positions` are the open reservation; kNothing when they are empty or all below
// `length`; std::logic_error otherwise.
CommitAction DecideCommit(std::span<const int32_t> positions,
                          const std::optional<PositionRun>& reservation, int32_t length,
                          int32_t max_length);

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_KV_CHECKS_H_
