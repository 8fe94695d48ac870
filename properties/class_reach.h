// Which classes of positions and of operations scripts on a cache can meet, and which a campaign
// has missed. A run that never reached a class has not tested it, whatever its length.
#ifndef LOCKSTEP_PROPERTIES_CLASS_REACH_H_
#define LOCKSTEP_PROPERTIES_CLASS_REACH_H_

#include <string>
#include <string_view>
#include <vector>

#include "caches/registry.h"
#include "properties/script_runner.h"

namespace lockstep {

bool CanReach(PositionClass position_class, const CacheSpec& spec);
// `subject`: whether there are forks and saves to aim at.
bool CanReach(OperationClass operation_class, const CacheSpec& spec, const ScriptSubject& subject);

// The names of all classes that one of the caches can reach and that count 0.
std::vector<std::string_view> MissedClasses(const ScriptCounts& counts,
                                            const std::vector<std::string>& caches,
                                            const std::vector<ScriptSubject>& subjects);

// All classes with their counts, in lines of at most 100 columns, each indented by two.
std::string ClassTable(const ScriptCounts& counts);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_CLASS_REACH_H_
