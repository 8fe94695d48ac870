// Scenarios: what a golden file is recorded of, as data.
//
// A case is a folder golden/cases/<name>/ with case.toml and one golden file for each way in which
// its caches store rows ("f32.golden", "q8_0+q4_0-w4.golden"): every cache of one way has to give
// exactly that file. case.toml:
//
//   why = "Chunks of every size write the rows that one step writes."   # one sentence
//   covers = ["prefill_step", "granted"]         # of CoverTags()
//   caches = ["simple", "paged/4"]               # names of caches/registry.h
//   max_length = 24                              # positions of a sequence
//   step = 8                                     # tokens of an internal step; may be left out
//   blocks = 6                                   # of a paged pool; may be left out
//   prompt = "Once upon a time"                  # the tokens of the first prefill; may be left out
//   script = """
//   prefill cuts=3,1 tokens=7
//   decode n=2
//   """                                          # operations of properties/engine_script.h
//   [model]
//   preset = "tiny-mha-4x4-f32"                  # of engine/synthetic.h, with
//   seed = 1
//   file = "stories260K-f32.gguf"                # or a file below the models' folder, or one of
//                                                # engine/story.h, with
//   digest = "0f..."                             # the XXH3-128 of its bytes
//   [[gap]]                                      # positions nobody writes; any number
//   op = 0                                       # within the tokens of this prefill,
//   after = 2                                    # behind so many of them,
//   rows = 1                                     # so many positions are passed over
#ifndef LOCKSTEP_GOLDEN_SCENARIO_H_
#define LOCKSTEP_GOLDEN_SCENARIO_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caches/digest.h"
#include "caches/registry.h"
#include "engine/model.h"
#include "properties/engine_script.h"

namespace lockstep {

struct ScenarioModelName {
  std::string preset = {};  // empty: a file
  int32_t seed = 1;
  std::string file = {};    // relative to the models' folder
  std::string digest = {};  // hex, of its bytes

  // "tiny-mha-4x4-f32, seed 1", or the file's name.
  std::string Description() const;
  friend bool operator==(const ScenarioModelName&, const ScenarioModelName&) = default;
};

// In a prefill, positions that are passed over.
struct ScenarioGap {
  int32_t op = 0;
  int32_t after = 0;  // tokens of the operation before it, at least 1
  int32_t rows = 0;   // at least 1
  friend bool operator==(const ScenarioGap&, const ScenarioGap&) = default;
};

struct Scenario {
  std::string name;  // of its folder
  std::string why;
  std::vector<std::string> covers;
  std::vector<std::string> caches;
  ScenarioModelName model;
  int32_t max_length = 0;
  int32_t step = 512;
  int32_t blocks = 0;  // 0: enough
  std::string prompt;  // empty: seeded tokens
  std::vector<ScenarioGap> gaps;
  std::vector<EngineOp> ops;
};

// Throws Error naming `where`, the line and the remedy for anything that is not as above.
Scenario ParseScenario(std::string_view toml, std::string_view name, std::string_view where);
Scenario ReadScenario(const std::string& folder, const std::string& name);

// Of what decides the facts: model, lengths, prompt, gaps, operations. Sentences, tags and the list
// of caches do not.
Digest ScenarioDigest(const Scenario& scenario);

// As a script that the runners of properties/ take, on one cache. REQUIRES: a preset (LS_CHECK).
EngineScript ScriptOf(const Scenario& scenario, const std::string& cache);

// How caches store rows; kinds with one name share a golden file.
std::string RowsName(const CacheSpec& spec);  // "f32", "q8_0", "q8_0+q4_0-w4"

// The caches that store rows as this one does, all or some of them on a device; none for a window
// of F32 rows.
std::vector<std::string> DeviceCachesLike(const CacheSpec& spec);

// The scenario's caches that store rows in one way.
struct RowsGroup {
  std::string rows;
  std::vector<std::string> caches;
};
std::vector<RowsGroup> GroupsOf(const Scenario& scenario);  // in order of the names

struct ScenarioModel {
  std::shared_ptr<const Model> model;
  Digest digest;                // of the file's bytes
  std::vector<int32_t> prompt;  // empty: seeded tokens
};

// Kept between calls; not for several threads at once. `models` is the folder of model files.
// Throws Error when the file cannot be read or has another digest, or the prompt or a cache does
// not suit the model.
ScenarioModel LoadScenarioModel(const Scenario& scenario, const std::string& models);

// One sentence when the scenario needs a file that is not in the folder: it cannot be run here.
std::optional<std::string> WhyNotHere(const Scenario& scenario, const std::string& models);

// What `covers` may name. The classes of engine scripts are among them, and what else a set of
// cases has to cover (golden/coverage_test.cc).
std::span<const std::string> CoverTags();

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_SCENARIO_H_
