// Random GGUF images and random damage that understands the format: the base of fuzzing. The same
// generator state always gives the same image and the same damage.
#ifndef LOCKSTEP_ENGINE_GGUF_MUTATE_H_
#define LOCKSTEP_ENGINE_GGUF_MUTATE_H_

#include <cstddef>
#include <span>
#include <vector>

#include "caches/random.h"
#include "engine/gguf/raw_image.h"

namespace lockstep::raw {

// A sound image of up to 6 metadata entries of any kind and up to 5 tensors of any type.
Image RandomImage(Random& random);

// Damages `image` once: a field set to a number at some limit, nudged or exchanged for another's;
// bits or bytes changed anywhere; a piece cut out, cut off or repeated. `fields` are where Build
// put them; after a cut or a repeat they no longer fit, which only makes later damage blinder.
// REQUIRES: neither is empty.
void Mutate(std::vector<std::byte>& image, std::span<const Field> fields, Random& random);

}  // namespace lockstep::raw

#endif  // LOCKSTEP_ENGINE_GGUF_MUTATE_H_
