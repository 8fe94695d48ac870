// What levels 0 to 3 of the conformance kit report on.
#ifndef LOCKSTEP_PROPERTIES_CONFORM_CLAUSES_H_
#define LOCKSTEP_PROPERTIES_CONFORM_CLAUSES_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "caches/plugin_cache.h"
#include "properties/script_runner.h"

namespace lockstep {

struct ConformClause {
  std::string_view clause;  // of caches/CONTRACT.md, a case of one, or what has no clause there
  int32_t level;
  std::string_view summary;
};

// In the order of the contract, then what has no clause of its own.
std::span<const ConformClause> ConformClauses();

// The clause, or its case, that a finding of the script runner belongs to.
std::string ConformCaseOf(const CacheScript& script, const ScriptFinding& finding);

// False when the plug-in declares that it does not do what the clause is about.
bool ConformDeclares(const PluginLibrary& plugin, std::string_view clause);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_CONFORM_CLAUSES_H_
