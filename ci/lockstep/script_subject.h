// What replay and fuzz share: a subject with an optional planted fault, and how a finding is shown.
#ifndef LOCKSTEP_CI_LOCKSTEP_SCRIPT_SUBJECT_H_
#define LOCKSTEP_CI_LOCKSTEP_SCRIPT_SUBJECT_H_

#include <string>
#include <string_view>

#include "properties/script_runner.h"

namespace lockstep::cli {

// The registered cache of that name; `plant` is a fault of oracle/faulty_cache.h or empty.
// Throws Error for an unknown name or plant.
ScriptSubject SubjectFor(std::string_view cache, const std::string& plant);

// Checks that a script can be run at all: its cache is known and can be built with its geometry.
// Throws Error naming `where` otherwise.
void CheckRunnable(const CacheScript& script, const ScriptSubject& subject,
                   const std::string& where);

// The finding, and with the script that shows it, on standard output.
void PrintFindingLine(const ScriptFinding& finding);
void PrintFinding(const CacheScript& script, const ScriptFinding& finding);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_SCRIPT_SUBJECT_H_
