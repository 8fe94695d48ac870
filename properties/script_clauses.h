// Which clause of caches/CONTRACT.md a difference speaks of, from the operation after which it
// showed. A guess for people to begin with: the difference itself is the finding.
#ifndef LOCKSTEP_PROPERTIES_SCRIPT_CLAUSES_H_
#define LOCKSTEP_PROPERTIES_SCRIPT_CLAUSES_H_

#include <cstdint>
#include <string_view>

#include "properties/script.h"

namespace lockstep {

enum class Outcome : uint8_t {
  kDone,
  kGranted,
  kRefused,
  kOutOfRange,
  kInvalid,
  kLogic,
  kExhausted,
  kNoMemory,
  kOther
};

const char* OutcomeName(Outcome outcome);

// The outcomes differ; `expected` is the model's.
std::string_view OutcomeClause(ScriptOpKind kind, Outcome expected, bool refuses_host_slots);

// The lengths differ.
std::string_view LengthClause(ScriptOpKind kind);

// A row differs. `gap`: the model shows zeros, which no generated row is. `shared`: there is more
// than one sequence.
std::string_view RowClause(ScriptOpKind kind, bool gap, bool shared);

// The operation wrote where it had nothing to write. `refused`: it had to change nothing.
std::string_view WriteClause(ScriptOpKind kind, bool refused);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_SCRIPT_CLAUSES_H_
