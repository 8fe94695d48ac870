// operator new that counts, and fails on request: for test programs, which link it to replace the
// library's own.
#ifndef LOCKSTEP_CACHES_FAILING_NEW_H_
#define LOCKSTEP_CACHES_FAILING_NEW_H_

#include <atomic>
#include <cstdint>

namespace lockstep::failing_new {

extern std::atomic<int64_t> allocations;  // so far
extern std::atomic<int64_t> failing_in;   // allocations until one fails, once; negative: never

}  // namespace lockstep::failing_new

#endif  // LOCKSTEP_CACHES_FAILING_NEW_H_
