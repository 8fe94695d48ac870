// RunEngineScript over watched memory: the engine's own scratch, its caches' rows, everything that
// comes from caches/aligned_buffer.h.
//
// The script runs twice, under two MemoryWatches: buffers end before a guard page in one run and
// begin after one in the other; memory that nobody wrote holds a NaN in the first and a number in
// the second. Besides everything that RunEngineScript compares, no canary beside a buffer may
// change, and both runs have to give the same digest: no logit and no row depends on memory that
// was read before it was written. Touching a guard page ends the process.
#ifndef LOCKSTEP_PROPERTIES_ENGINE_CHECKED_RUN_H_
#define LOCKSTEP_PROPERTIES_ENGINE_CHECKED_RUN_H_

#include "properties/engine_script_runner.h"

namespace lockstep {

// Stops at the first finding, as RunEngineScript; what only memory shows has the clause "memory".
EngineRun RunEngineScriptChecked(const EngineScript& script, const EngineSubject& subject = {});

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_ENGINE_CHECKED_RUN_H_
