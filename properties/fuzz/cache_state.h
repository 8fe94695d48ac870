// What a fuzzer is told of a cache beside the edges of the code: states that no edge tells apart.
#ifndef LOCKSTEP_PROPERTIES_FUZZ_CACHE_STATE_H_
#define LOCKSTEP_PROPERTIES_FUZZ_CACHE_STATE_H_

#include <cstdint>

#include "caches/registry.h"

namespace lockstep::fuzz {

// A hash of: the kind; how many layers have an open reservation (`open`); where the length stands
// in a block, in the ring of an exact window or in that of a layer which forgets, the first row
// that this one has, and whether the layers agree about the length; in how many pieces the free
// list lies, and how blocks are shared. Numbers are cut to a few values each, so that a corpus that
// reaches every state stays small.
uint64_t CacheStateFeature(const CacheSpec& spec, const KvCache& cache, int32_t open);

}  // namespace lockstep::fuzz

#endif  // LOCKSTEP_PROPERTIES_FUZZ_CACHE_STATE_H_
