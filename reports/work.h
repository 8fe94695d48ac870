// What a forward pass has to do at least, from the model's shapes alone: the bytes that come from
// memory and the multiply-adds. Divided by the machine's limits it gives the time at best.
#ifndef LOCKSTEP_REPORTS_WORK_H_
#define LOCKSTEP_REPORTS_WORK_H_

#include <cstdint>

#include "caches/kv_cache.h"
#include "engine/model.h"

namespace lockstep {

struct Work {
  double bytes = 0;  // weights as the file stores them, and K and V rows, each read once
  double dot_multiply_adds = 0;  // of 8-bit integers: weights in block formats
  double fma_multiply_adds = 0;  // of F32: other weights, and attention
};

// A prompt of `tokens` from position 0, in steps of `step_tokens`; logits of the last token of each
// step. The query at position p sees p + 1 rows, and reads K and V of each: attention is
// 2 * heads * head_dim * (p + 1) a layer. K and V rows stay in the processor's caches: not bytes.
// REQUIRES: tokens > 0, step_tokens > 0.
Work PrefillWork(const Model& model, int32_t tokens, int32_t step_tokens);

struct RowTypes {
  RowType keys = RowType::kF32;
  RowType values = RowType::kF32;
};

// One token at position `depth`, whose query reads depth + 1 rows of every layer.
Work DecodeWork(const Model& model, const RowTypes& rows, int32_t depth);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_WORK_H_
