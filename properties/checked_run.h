// RunScript with checks of memory, over every cache whose memory comes from
// caches/aligned_buffer.h.
//
// The script runs twice, under two MemoryWatches: buffers end before a guard page in one run and
// begin after one in the other; memory without rows holds a NaN in the first and a number in the
// second. After every operation, besides everything that RunScript compares:
//   * no canary beside a buffer has changed;
//   * no byte has changed that the operation had no right to write, see runner/write_set.h; reads,
//     refusals and calls that threw change none at all [V3, R2, U1];
//   * hashes and the bytes of a cache file are the same in both runs: they depend on nothing but
//     rows.
// A subject that touches a guard page ends the process; CheckedJudge outlives it.
#ifndef LOCKSTEP_PROPERTIES_CHECKED_RUN_H_
#define LOCKSTEP_PROPERTIES_CHECKED_RUN_H_

#include <cstdint>

#include "properties/script_runner.h"

namespace lockstep {

struct MemoryCounts {
  int64_t bytes_changed = 0;    // that were looked at one by one
  int64_t states_hashed = 0;    // compared between the two runs
  int64_t buffers_watched = 0;  // live ones, summed over operations

  MemoryCounts& operator+=(const MemoryCounts& other);
};

struct CheckedRun {
  ScriptRun run;
  MemoryCounts memory;
};

// `seed` says which run has the guard pages after its buffers.
CheckedRun RunScriptChecked(const CacheScript& script, const ScriptSubject& subject,
                            uint64_t seed = 0);

// The same in a process of its own: a crash is a finding of clause "crash", a hang one of "hang".
// REQUIRES when it is called: the process has one thread.
ScriptJudge CheckedJudge(const ScriptSubject& subject, int32_t seconds_max = 10);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_CHECKED_RUN_H_
