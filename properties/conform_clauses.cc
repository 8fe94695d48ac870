#include "properties/conform_clauses.h"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

constexpr std::array<ConformClause, 27> kClauses = {{
    {"V1", 1, "a view shows the layer's length and no more"},
    {"V2", 1, "gap rows read as zero"},
    {"V3", 1, "reading changes nothing"},
    {"U2", 1, "overwrite by position, in input order"},
    {"U4", 0, "what an update refuses"},
    {"U5", 1, "the length never shrinks by an update"},
    {"R1", 0, "a bad layer throws before anything else"},
    {"R2", 0, "which runs are granted, and nothing changes by a refusal"},
    {"R3", 0, "a cache without slots refuses every run"},
    {"R4", 1, "a slot has memory for its rows"},
    {"R5", 1, "a slot is invisible until its commit"},
    {"R7", 3, "a slot is exclusively owned"},
    {"C1", 1, "a commit publishes its reservation"},
    {"C2", 0, "a commit without its reservation"},
    {"C2, past max_length", 0, "a commit of positions that cannot be"},
    {"C3", 1, "reserve, write and commit equal update"},
    {"B1", 0, "rollback shrinks, and refuses lengths outside"},
    {"B2", 1, "what is rolled back is gone"},
    {"B3", 1, "the blocks in use are those that hold rows"},
    {"B4", 3, "forks are independent"},
    {"X1", 1, "equal rows hash equally"},
    {"S1", 1, "restored equals saved"},
    {"logits", 2, "the engine gives the model cache's bits on both write paths"},
    {"border", 0, "statuses, lengths and pointers mean something; no exception gets out"},
    {"crash", 0, "no call ends by a signal"},
    {"hang", 0, "every call returns"},
    {"exit", 0, "no call ends the process"},
}};

}  // namespace

std::span<const ConformClause> ConformClauses() { return kClauses; }

// A commit that had to be refused is two different mistakes: past the end, and out of nothing.
std::string ConformCaseOf(const CacheScript& script, const ScriptFinding& finding) {
  if (finding.clause != "C2") return finding.clause;
  const ScriptOp& op = script.ops[static_cast<size_t>(finding.op)];
  const bool past =
      std::ranges::any_of(op.positions, [&](int32_t p) { return p >= script.geometry.max_length; });
  return past ? "C2, past max_length" : "C2";
}

bool ConformDeclares(const PluginLibrary& plugin, std::string_view clause) {
  if (clause == "R3") return !plugin.grants_slots();
  if (clause == "B3") return plugin.counts_blocks();
  if (clause == "B4") return plugin.forks();
  if (clause == "S1") return plugin.saves();
  if (clause == "R7") return plugin.forks() && plugin.grants_slots();
  const std::array<std::string_view, 5> of_slots = {"R2", "R4", "R5", "C1", "C3"};
  return plugin.grants_slots() || std::ranges::find(of_slots, clause) == of_slots.end();
}

}  // namespace lockstep
