// Scripts that are simpler than another one: what a shrinker tries next, ours and RapidCheck's.
#ifndef LOCKSTEP_PROPERTIES_SIMPLER_SCRIPTS_H_
#define LOCKSTEP_PROPERTIES_SIMPLER_SCRIPTS_H_

#include <vector>

#include "properties/script.h"

namespace lockstep {

// Each has fewer operations, or as many and something smaller in them or in the geometry; so taking
// one after another comes to an end. The boldest come first:
//   halves, then chunks of falling size, then pairs of operations left out; a reservation, its
//   write and its commit made one update; fewer layers, heads, elements, positions, any number of
//   blocks; the whole script some positions nearer to zero; shorter lists of positions; smaller
//   numbers.
std::vector<CacheScript> SimplerScripts(const CacheScript& script);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_SIMPLER_SCRIPTS_H_
