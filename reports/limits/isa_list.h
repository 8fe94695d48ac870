// The instruction sets that this processor can run, for measuring.
#ifndef LOCKSTEP_REPORTS_LIMITS_ISA_LIST_H_
#define LOCKSTEP_REPORTS_LIMITS_ISA_LIST_H_

#include <string_view>
#include <vector>

#include "reports/limits/isa_limits.h"

namespace lockstep::internal {

// Best last, never empty.
std::vector<const IsaLimits*> AvailableIsaLimits();

// nullptr when there is none of that name here.
const IsaLimits* FindIsaLimits(std::string_view name);

}  // namespace lockstep::internal

#endif  // LOCKSTEP_REPORTS_LIMITS_ISA_LIST_H_
