// Counts what operator new hands out, for tests that bound a parser's appetite. One thread only.
#ifndef LOCKSTEP_ENGINE_GGUF_ALLOCATION_METER_H_
#define LOCKSTEP_ENGINE_GGUF_ALLOCATION_METER_H_

#include <cstddef>

namespace lockstep {

// Measures from its construction on. REQUIRES: one at a time.
class AllocationMeter {
 public:
  AllocationMeter();

  // The most bytes held at once beyond those held at construction. A request that was refused
  // counts as if it had been granted.
  size_t peak() const;

 private:
  size_t live_at_start_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_GGUF_ALLOCATION_METER_H_
