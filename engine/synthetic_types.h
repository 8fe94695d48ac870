// Synthetic models in any weight type: what is needed to run every family with every type.
#ifndef LOCKSTEP_ENGINE_SYNTHETIC_TYPES_H_
#define LOCKSTEP_ENGINE_SYNTHETIC_TYPES_H_

#include <string_view>
#include <vector>

#include "engine/gguf.h"
#include "engine/synthetic.h"

namespace lockstep {

// Those that lockstep computes with, in the order of their ids.
std::vector<GgmlType> WeightTypes();

// "q4_k". Throws Error, naming `where` and the types, when there is none of that name.
GgmlType ParseWeightType(std::string_view where, std::string_view name);

// The same model with all its matrices in this type. Widths that are no whole blocks of it are
// rounded up, that of the heads together by more query heads for each KV head; what a cache stores
// of a position stays as it is, but where the heads' dimension is no multiple of 32: it becomes
// one.
SyntheticSpec InWeightType(SyntheticSpec spec, GgmlType type);

// One of each family: presets that differ in what the pipeline does, and not in shapes or types
// alone, as small as leaves all of that in place. A new preset with something new is one more.
std::vector<SyntheticSpec> SyntheticFamilies();

// The family that does what this preset does.
SyntheticSpec FamilyOf(const SyntheticSpec& preset);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_SYNTHETIC_TYPES_H_
