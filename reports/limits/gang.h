// Several threads that start the same work at the same moment.
#ifndef LOCKSTEP_REPORTS_LIMITS_GANG_H_
#define LOCKSTEP_REPORTS_LIMITS_GANG_H_

#include <cstdint>
#include <functional>

namespace lockstep::internal {

// Runs work(0), ..., work(threads - 1), each on a thread of its own (the first on the caller's).
// Returns the seconds from when all were ready until the last was done. REQUIRES: threads > 0.
double SecondsOfAll(int32_t threads, const std::function<void(int32_t)>& work);

}  // namespace lockstep::internal

#endif  // LOCKSTEP_REPORTS_LIMITS_GANG_H_
