// What looks over the runner's shoulder: memory checks, failing allocations.
#ifndef LOCKSTEP_PROPERTIES_RUNNER_PROBE_H_
#define LOCKSTEP_PROPERTIES_RUNNER_PROBE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "properties/runner/sequence.h"
#include "properties/script_clauses.h"
#include "properties/script_runner.h"

namespace lockstep::runner {

// The bytes that an operation may change, of those that hold rows. Memory that held no row of any
// sequence, or holds none any more, is never part of it: what is in there nobody can see.
struct WriteRule {
  enum class Kind : uint8_t {
    kNothing,   // not a byte
    kSlot,      // the bytes of `slot`
    kRows,      // rows `positions` of `layer`
    kRowsFrom,  // rows of all layers from position `from`
    kSequence,  // all rows of the sequence
  };

  Kind kind = Kind::kNothing;
  int32_t sequence = 0;  // its id
  int32_t layer = 0;
  int32_t from = 0;
  std::vector<int32_t> positions = {};
  KvSlot slot = {};
};

class Probe {
 public:
  virtual ~Probe() = default;

  virtual void Before(std::span<const Sequence> /*sequences*/) {}

  // After an operation that ended so, before the sequences are compared.
  virtual std::optional<ScriptFinding> After(ScriptOpKind /*kind*/, Outcome /*outcome*/,
                                             const WriteRule& /*rule*/,
                                             std::span<const Sequence> /*sequences*/) {
    return std::nullopt;
  }

  // Lets the allocation after `n` more fail in the next call of the subject; -1: none.
  // False: this probe lets none fail.
  virtual bool FailAllocation(int64_t /*n*/) { return false; }

  // The allocation at which the next call fails and is given up; none: it is repeated until it has
  // what it needs.
  virtual std::optional<int64_t> GivesUpAt() { return std::nullopt; }
};

}  // namespace lockstep::runner

#endif  // LOCKSTEP_PROPERTIES_RUNNER_PROBE_H_
