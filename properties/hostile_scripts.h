// Scripts with which a cache's worst callers come: impossible layers and positions, empty lists,
// calls in odd orders, reservations that nobody commits. Directed, and few; the random ones are
// script_builder.h's.
#ifndef LOCKSTEP_PROPERTIES_HOSTILE_SCRIPTS_H_
#define LOCKSTEP_PROPERTIES_HOSTILE_SCRIPTS_H_

#include <vector>

#include "properties/script.h"
#include "properties/script_builder.h"

namespace lockstep {

// Layers, positions and lengths out of every range, and runs whose sums overflow: each at every
// call that takes one, alone and while a reservation is open.
std::vector<CacheScript> RangeScripts(const ScriptTarget& target);

// Lists without positions, at layers that exist and that do not.
std::vector<CacheScript> EmptyScripts(const ScriptTarget& target);

// Commits before, after and between the calls they belong to, sequences used after their relatives
// ended.
std::vector<CacheScript> OrderScripts(const ScriptTarget& target);

// Reservations that are abandoned in every way, and then all of max_length is written.
std::vector<CacheScript> AbandonScripts(const ScriptTarget& target);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_HOSTILE_SCRIPTS_H_
