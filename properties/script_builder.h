// Makes cache scripts from a source of choices: a seed (generators) or a byte string (fuzzers).
// One builder serves both, so a fuzzer reaches everything that a generator reaches.
#ifndef LOCKSTEP_PROPERTIES_SCRIPT_BUILDER_H_
#define LOCKSTEP_PROPERTIES_SCRIPT_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
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

// What the builder has to know of the cache that a script is for.
struct ScriptTarget {
  std::string name;        // becomes CacheScript::cache
  int32_t block_size = 0;  // positions; 0: none
  int32_t head_dim_multiple = 1;
  bool limits_pool = true;     // scripts may ask for a pool that is too small
  bool takes_windows = false;  // of the geometry's layers, where the cache keeps them alone
};

// The registered cache of that name. Throws Error for an unknown one.
ScriptTarget RegisteredTarget(std::string_view cache);

// Geometry, pool, weights of the operations (swarm testing: some are left out), then operations
// until the chooser is exhausted.
//   Groce, Zhang, Eide, Chen, Regehr, "Swarm Testing", ISSTA 2012.
CacheScript BuildScript(const ScriptTarget& target, Chooser& choose);

// BuildScript from a seed.
CacheScript GenerateScript(const ScriptTarget& target, uint64_t seed, int32_t operations);
CacheScript GenerateScript(std::string_view cache, uint64_t seed, int32_t operations);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_SCRIPT_BUILDER_H_
