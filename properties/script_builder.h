// Makes cache scripts from a source of choices: a seed (generators) or a byte string (fuzzers).
// One builder serves both, so a fuzzer reaches everything that a generator reaches.
#ifndef LOCKSTEP_PROPERTIES_SCRIPT_BUILDER_H_
#define LOCKSTEP_PROPERTIES_SCRIPT_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "caches/random.h"
#include "properties/script.h"

namespace lockstep {

class Chooser {
 public:
  virtual ~Chooser() = default;
  virtual uint32_t Below(uint32_t bound) = 0;  // REQUIRES: bound > 0
  virtual bool Exhausted() const = 0;          // no further operation is wanted

  int32_t Between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(Below(static_cast<uint32_t>(high - low) + 1));
  }
  bool OneIn(uint32_t n) { return Below(n) == 0; }
};

// From a seed: `operations` of them.
class RandomChooser final : public Chooser {
 public:
  RandomChooser(uint64_t seed, int32_t operations) : random_(seed), operations_(operations) {}
  uint32_t Below(uint32_t bound) override { return random_.Below(bound); }
  bool Exhausted() const override { return operations_-- <= 0; }

 private:
  Random random_;
  mutable int32_t operations_;
};

// From bytes, low byte first, one for bounds up to 256, else two; zeros after the end.
class ByteChooser final : public Chooser {
 public:
  explicit ByteChooser(std::span<const std::byte> bytes) : rest_(bytes) {}
  uint32_t Below(uint32_t bound) override;
  bool Exhausted() const override { return rest_.empty(); }

 private:
  uint32_t NextByte();
  std::span<const std::byte> rest_;
};

// Geometry, pool, weights of the operations (swarm testing: some are left out), then operations
// until the chooser is exhausted.
//   Groce, Zhang, Eide, Chen, Regehr, "Swarm Testing", ISSTA 2012.
CacheScript BuildScript(std::string_view cache, Chooser& choose);

// BuildScript from a seed.
CacheScript GenerateScript(std::string_view cache, uint64_t seed, int32_t operations);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_SCRIPT_BUILDER_H_
