// What the tests of the conformance kit share.
#ifndef LOCKSTEP_PROPERTIES_CONFORM_TEST_UTIL_H_
#define LOCKSTEP_PROPERTIES_CONFORM_TEST_UTIL_H_

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "properties/conform.h"

namespace lockstep {

// Few scripts, so that a run takes a second or two.
inline ConformOptions OptionsFor(std::shared_ptr<const PluginLibrary> plugin) {
  ConformOptions options;
  options.plugin = std::move(plugin);
  options.scripts = 300;
  options.hostile_scripts = 30;
  return options;
}

inline const ClauseResult& FindClause(const ConformResult& result, const std::string& clause) {
  for (const ClauseResult& r : result.clauses) {
    if (r.clause == clause) return r;
  }
  throw std::runtime_error("no result for " + clause);
}

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_CONFORM_TEST_UTIL_H_
