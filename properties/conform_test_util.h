// What the tests of the conformance kit share.
#ifndef LOCKSTEP_PROPERTIES_CONFORM_TEST_UTIL_H_
#define LOCKSTEP_PROPERTIES_CONFORM_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

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

// Every clause passes, but for those that the plug-in's table has nothing for.
inline void ExpectNoFailure(const ConformResult& result,
                            const std::vector<std::string>& unsupported) {
  EXPECT_TRUE(result.conforms);
  for (const ClauseResult& r : result.clauses) {
    const bool declared = std::ranges::find(unsupported, r.clause) != unsupported.end();
    EXPECT_EQ(r.verdict,
              declared ? ClauseResult::Verdict::kUnsupported : ClauseResult::Verdict::kPass)
        << r.clause << " " << r.what << "\n"
        << ScriptText(r.script);
  }
}

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_CONFORM_TEST_UTIL_H_
