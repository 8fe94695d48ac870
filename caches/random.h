// The one random generator of lockstep: seeded, splittable, integer output, the same everywhere.
//
// SplitMix64: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
// A generator is passed as an argument; nothing in lockstep uses std::random_device, a std::
// distribution or std::shuffle, whose outputs differ between standard libraries.
#ifndef LOCKSTEP_CACHES_RANDOM_H_
#define LOCKSTEP_CACHES_RANDOM_H_

#include <cstdint>

namespace lockstep {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    return Mix(state_);
  }

  // Uniform in [0, bound) without modulo bias worth naming: the high half of a 64x32-bit product.
  // REQUIRES: bound > 0.
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(((Next() >> 32) * bound) >> 32); }

  // Uniform in [low, high]. REQUIRES: low <= high.
  int32_t Between(int32_t low, int32_t high) {
    const uint32_t span = static_cast<uint32_t>(high) - static_cast<uint32_t>(low) + 1u;
    const uint32_t offset = span == 0 ? static_cast<uint32_t>(Next() >> 32) : Below(span);
    return static_cast<int32_t>(static_cast<uint32_t>(low) + offset);
  }

  // An independent stream: the same `stream` of the same seed is always the same generator.
  Random Split(uint64_t stream) const {
    return Random(Mix(state_ ^ Mix(stream + 0x632be59bd9b4e019u)));
  }

 private:
  static uint64_t Mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  uint64_t state_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_RANDOM_H_
