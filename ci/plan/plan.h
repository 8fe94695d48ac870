// What `lockstep gate` runs: a lockstep.toml, as data.
//
// The file (docs/gate.md gives an example of each key):
//
//   ignore = ["docs/*"]       changes of these files affect no part; may be left out
//   [[tier]]
//   name = "smoke"
//   minutes = 2               of the whole tier; what has no time left is not run, and not green
//   select = "diff"           only parts that the changed files affect; or "all"
//   [[part]]
//   name = "caches"
//   run = "lockstep fuzz --seconds 10 --seed {seed}"      a line of /bin/sh
//   proof = "holds"           what it prints when it did its work: exit code 0 alone is no proof
//   tiers = ["smoke", "full"]
//   minutes = 1               of this part
//   paths = ["caches/*"]      files that affect it; left out: every file does
//   may_skip = ["GpuTest.*"]  of a part that is a run of ctest: the tests that it may skip;
//                             any other that it skips, or does not run, makes it inconclusive
//   [skips]
//   machine = ["GpuTest.*"]   a list that parts name: may_skip = ["@machine", "Other.*"]
//   [[plugin]]                a part "conform-NAME", which ends with `lockstep conform LIBRARY`
//   name = "cache"
//   library = "libcache.so"   caches/plugin.h
//   build = "make libcache.so"   a line of /bin/sh that makes it; may be left out
//   level = 4                    the highest that is asked; left out: all
//   tiers = ["smoke", "full"]    left out: all
//   minutes = 2                  left out: 5
//   paths = ["src/cache/*"]      as a part's
//
// Paths and names of tests are patterns of fnmatch(3) without flags, paths from the root of the
// repository: a `*` matches slashes too. A line runs in the folder of `lockstep gate` and finds
// this `lockstep` first in its PATH. {seed} stands for the run's seed, {out} for a folder of the
// part's own, {bin} for the one that this `lockstep` is in.
#ifndef LOCKSTEP_CI_PLAN_PLAN_H_
#define LOCKSTEP_CI_PLAN_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct PlanTier {
  std::string name;
  int32_t minutes = 0;
  bool by_diff = false;
};

struct PlanPart {
  std::string name;  // letters, digits, '-', '_' and '.': it names a folder
  std::string run;
  std::string proof;
  std::vector<std::string> tiers;
  int32_t minutes = 0;
  std::vector<std::string> paths = {};                    // none: every file affects it
  std::optional<std::vector<std::string>> may_skip = {};  // nothing: nobody looks
};

struct Plan {
  std::vector<std::string> ignore;
  std::vector<PlanTier> tiers;
  std::vector<PlanPart> parts;  // in the order in which they run, which is the file's
};

// Throws Error with the line for text that is no such file: unknown keys (with the one that may be
// meant), names given twice, tiers that no part has, parts of tiers that are not there, lists of
// [skips] that are not there, or that nobody uses.
Plan ParsePlan(std::string_view toml, std::string_view where);

// The file that stands where none is given: what holds for every repository.
std::string_view DefaultPlan();

// Throws Error for a name that the plan has not.
const PlanTier& FindTier(const Plan& plan, std::string_view name);

}  // namespace lockstep

#endif  // LOCKSTEP_CI_PLAN_PLAN_H_
