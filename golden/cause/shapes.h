// Causes that show in the two versions of the rows alone.
#ifndef LOCKSTEP_GOLDEN_CAUSE_SHAPES_H_
#define LOCKSTEP_GOLDEN_CAUSE_SHAPES_H_

#include <optional>
#include <vector>

#include "golden/cause.h"

namespace lockstep {

// Whether element i of the place is not what it should be.
bool Differs(const CausePlace& place, size_t i);

// REQUIRES: `differing`, the indices of all elements that differ, is not empty.
std::optional<CauseVerdict> CauseOfShape(const CausePlace& place,
                                         const std::vector<size_t>& differing);

// Whether all differences are as small as rounding makes them. `differing` may be empty: then the
// rows are within their bounds, and other bits all the same.
std::optional<CauseVerdict> CauseOfRounding(const CausePlace& place,
                                            const std::vector<size_t>& differing);

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_CAUSE_SHAPES_H_
