// The shift of the context: positions of a sequence are deleted, and the rows behind them move down
// into their place, so that a sequence may go on when its positions are used up.
//
// Keys carry their position as a rotation, so what moves is turned back by the distance
// (engine/ARITHMETIC.md, section 4.10). This is no computation of the remaining text: rows above
// layer 0 were computed from tokens that are gone, and stay what those made of them. StreamingLLM
// says when that is good enough (https://arxiv.org/abs/2309.17453); llama.cpp and others do it.
#ifndef LOCKSTEP_ENGINE_SHIFT_H_
#define LOCKSTEP_ENGINE_SHIFT_H_

#include <cstdint>

#include "caches/kv_cache.h"
#include "engine/kernels.h"
#include "engine/model.h"

namespace lockstep {

// Positions [first, end).
struct DeletedSpan {
  int32_t first = 0;
  int32_t end = 0;

  int32_t count() const { return end - first; }
};

// Whether all layers keep all their rows: a ring has no rows that could come into the place of
// those that a shift overwrites, and could not undo one that failed [W2].
bool MayShift(const KvCache& cache);

// Deletes these positions: rows [end, length) become rows [first, length - count()), read as the
// cache's View shows them, keys turned, and written by Update. Works on any cache that keeps all
// rows. With end == length it is Rollback(first). Rows before `first` stay as they are; open
// reservations of layers are cancelled.
//
// Throws, and changes nothing: std::invalid_argument when the cache's geometry is not the model's,
// its layers differ in length, or one forgets rows (MayShift); std::out_of_range unless 0 <= first
// < end <= length; std::bad_alloc; PoolExhausted when blocks that move are shared and there are
// none to copy them to. A cache of others that throws later than at its first write loses the rows
// from `first` on.
void ShiftContext(const ModelConfig& config, const KernelTable& kernels, const DeletedSpan& deleted,
                  KvCache* cache);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_SHIFT_H_
