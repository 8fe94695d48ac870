// Which clause of caches/CONTRACT.md a difference speaks of, from the operation after which it
// showed. A guess for people to begin with: the difference itself is the finding.
#ifndef LOCKSTEP_PROPERTIES_SCRIPT_CLAUSES_H_
#define LOCKSTEP_PROPERTIES_SCRIPT_CLAUSES_H_

#include <string_view>

#include "properties/script.h"

namespace lockstep {

enum class Outcome { kDone, kGranted, kRefused, kOutOfRange, kInvalid, kLogic, kExhausted, kOther };

const char* OutcomeName(Outcome outcome);

// The outcomes differ; `expected` is the model's.
std::string_view OutcomeClause(ScriptOpKind kind, Outcome expected, bool refuses_host_slots);

// The lengths differ.
std::string_view LengthClause(ScriptOpKind kind);

// A row differs. `gap`: the model shows zeros, which no generated row is. `shared`: there is more
// than one sequence.
std::string_view RowClause(ScriptOpKind kind, bool gap, bool shared);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_SCRIPT_CLAUSES_H_
