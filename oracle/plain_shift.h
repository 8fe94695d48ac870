// The shift of the context in plain loops, as engine/ARITHMETIC.md, section 4.10, says it: neither
// kernels nor tables of the engine, angles in long double.
#ifndef LOCKSTEP_ORACLE_PLAIN_SHIFT_H_
#define LOCKSTEP_ORACLE_PLAIN_SHIFT_H_

#include <cstdint>
#include <span>

#include "engine/model.h"

namespace lockstep {

// One key row of a layer, [kv_dim], turned back by `distance` positions. An entry of the table is
// rounded once from 64 bits and so is the canonical one, but for angles within 2^-38 of a tie.
void PlainTurnBack(const ModelConfig& config, int32_t layer, int32_t distance,
                   std::span<float> key);

}  // namespace lockstep

#endif  // LOCKSTEP_ORACLE_PLAIN_SHIFT_H_
