#include "properties/script_clauses.h"

#include <array>

namespace lockstep {

const char* OutcomeName(Outcome outcome) {
  constexpr std::array<const char*, 9> kNames = {"done",
                                                 "granted",
                                                 "refused",
                                                 "std::out_of_range",
                                                 "std::invalid_argument",
                                                 "std::logic_error",
                                                 "PoolExhausted",
                                                 "std::bad_alloc",
                                                 "some other exception"};
  return kNames[static_cast<size_t>(outcome)];
}

std::string_view OutcomeClause(ScriptOpKind kind, Outcome expected, bool refuses_host_slots) {
  switch (kind) {
    case ScriptOpKind::kUpdate:
      return expected == Outcome::kDone ? "U2" : "U4";
    case ScriptOpKind::kReserve:
      if (expected == Outcome::kOutOfRange) return "R1";
      return refuses_host_slots ? "R3" : "R2";
    case ScriptOpKind::kCommit:
      return expected == Outcome::kDone ? "C1" : "C2";
    case ScriptOpKind::kRollback:
      return "B1";
    case ScriptOpKind::kClear:
      return "B2";
    case ScriptOpKind::kFork:
      return "B4";
    default:
      return "V1";
  }
}

std::string_view LengthClause(ScriptOpKind kind) {
  switch (kind) {
    case ScriptOpKind::kUpdate:
      return "U5";
    case ScriptOpKind::kReserve:
    case ScriptOpKind::kWrite:
      return "R5";
    case ScriptOpKind::kCommit:
      return "C1";
    case ScriptOpKind::kRollback:
      return "B1";
    case ScriptOpKind::kClear:
      return "B2";
    case ScriptOpKind::kFork:
    case ScriptOpKind::kEnd:
      return "B4";
    case ScriptOpKind::kRestore:
      return "S1";
    default:
      return "V1";
  }
}

std::string_view WriteClause(ScriptOpKind kind, bool refused) {
  switch (kind) {
    case ScriptOpKind::kUpdate:
      return refused ? "U1" : "U2";
    case ScriptOpKind::kReserve:
      return refused ? "R2" : "R5";
    case ScriptOpKind::kWrite:
      return "R4";
    case ScriptOpKind::kCommit:
      return refused ? "C2" : "C1";
    case ScriptOpKind::kRollback:
    case ScriptOpKind::kClear:
      return refused ? "B1" : "B2";
    case ScriptOpKind::kFork:
    case ScriptOpKind::kEnd:
      return "B4";
    case ScriptOpKind::kRestore:
      return refused ? "S2" : "S1";
    default:
      return "V3";
  }
}

std::string_view RowClause(ScriptOpKind kind, bool gap, bool shared) {
  if (gap) return "V2";
  switch (kind) {
    case ScriptOpKind::kUpdate:
      return shared ? "B4" : "U2";
    case ScriptOpKind::kReserve:
    case ScriptOpKind::kWrite:
      return shared ? "R7" : "R5";
    case ScriptOpKind::kCommit:
      return "C3";
    case ScriptOpKind::kRollback:
    case ScriptOpKind::kClear:
      return "B2";
    case ScriptOpKind::kFork:
    case ScriptOpKind::kEnd:
      return "B4";
    case ScriptOpKind::kRestore:
      return "S1";
    default:
      return "V3";
  }
}

}  // namespace lockstep
