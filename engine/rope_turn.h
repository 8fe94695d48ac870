// The angles between two positions, for rows that move (engine/ARITHMETIC.md, section 4.10).
#ifndef LOCKSTEP_ENGINE_ROPE_TURN_H_
#define LOCKSTEP_ENGINE_ROPE_TURN_H_

#include <cstdint>
#include <vector>

#include "engine/math.h"

namespace lockstep {

// cos and sin of `distance` times each pair's frequency, rounded once to binary32: RopeTable's row
// of that position without what `attention` and YaRN scale it by, for a row that is turned once
// more is not scaled once more.
struct RopeTurn {
  std::vector<float> cos, sin;  // [dim / 2]
};

// REQUIRES: of RopeTable; distance >= 0.
RopeTurn RopeTurnOver(const RopeFrequencies& frequencies, int32_t distance);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_ROPE_TURN_H_
