// The checks that a fault has to get past: every test binary, and `lockstep` commands.
#ifndef LOCKSTEP_CI_MUTATION_SUITE_H_
#define LOCKSTEP_CI_MUTATION_SUITE_H_

#include <string>
#include <string_view>
#include <vector>

#include "ci/plan/plan.h"

namespace lockstep::mutation {

struct Check {
  std::string name;                  // "caches_paged_test", "fuzz"
  std::vector<std::string> targets;  // what has to be built
  std::vector<std::string> argv;     // argv[0] relative to the build folder
  bool is_gtest = false;             // takes gtest's flags
  double seconds = 0;                // with no fault in place, once that was measured
  bool in_sources = false;           // runs in the root of the sources, else in the build folder
  std::string left_out = {};         // of a gtest: its patterns of what does not run, ":" between
};

// Every test binary that `checks_file` lists (a line each: target, path relative to the build
// folder; CMake writes it), then the commands. Throws Error for an unreadable file.
std::vector<Check> ReadSuite(const std::string& checks_file);

// The reference's own suite, restated: what catches a fault if one has nothing else. Not part of
// the suite above, whose test binaries hold the same cases.
std::vector<Check> ReferenceSuite(const std::vector<Check>& suite);

// A catcher of the catalogue, "check" or "check:filter", as a check with that filter of gtest.
// Throws Error for one that the suite does not have.
Check FindCheck(const std::vector<Check>& suite, std::string_view catcher);

// What stands for the parts of a tier of ci/lockstep.toml, by name: how much of the suite that tier
// is. Throws Error for a tier that is not there and for a part that is no check.
std::vector<std::string> ChecksOfTier(const Plan& plan, std::string_view tier);

// The patterns of ci/slow_tests.txt, ":" between. Throws Error for a file without one.
std::string ReadSlowTests(const std::string& file);

// What ci/quick-tests runs: every test binary, without the slow tests.
inline constexpr std::string_view kQuickTests = "quick-tests";

// The checks of those names, each once, a filter of gtest as in a catcher; all when there are none.
// kQuickTests stands for every test binary without `slow_tests`. Throws Error as FindCheck does.
std::vector<Check> ChosenChecks(const std::vector<Check>& suite,
                                const std::vector<std::string>& names,
                                const std::string& slow_tests);

// Whether FindCheck finds it.
bool HasCheck(const std::vector<Check>& suite, std::string_view catcher);

// The order in which a fault in `file` meets them: `first` when it is not empty, then those of the
// file's own folder, then the rest; each by the seconds that they take.
std::vector<Check> InOrder(const std::vector<Check>& suite, std::string_view file,
                           std::string_view first);

// What a failing check printed, cut to what people want to see.
struct Failure {
  std::string test;    // gtest's name of the first test that failed; "" when there is none
  int script_ops = 0;  // operations of the cache script that it printed; 0: none
};
Failure ReadFailure(std::string_view log);

}  // namespace lockstep::mutation

#endif  // LOCKSTEP_CI_MUTATION_SUITE_H_
