// Explains a golden file that no longer holds: where the first difference is, what stands there on
// both sides, why, and what follows from it.
//
// A golden file has digests, so the values of its side are computed again. Sought first is a run of
// this program on another way that the golden says gives the same bits (another cache, write path,
// kernel table, the model cache, token by token): one whose digests agree with the golden at that
// place and before it gives the old values to the bit. Where none agrees, as after a change of the
// engine itself, the reference transformer gives them in double precision: approximate, within the
// rounding bounds of the stage.
#ifndef LOCKSTEP_GOLDEN_EXPLAIN_H_
#define LOCKSTEP_GOLDEN_EXPLAIN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/kernels.h"
#include "golden/cause.h"
#include "golden/compare_values.h"
#include "golden/facts.h"
#include "golden/scenario.h"
#include "properties/engine_script_runner.h"

namespace lockstep {

struct ExplainOptions {
  std::string models = {};               // the folder of model files
  const KernelTable* kernels = nullptr;  // nullptr: SelectKernels()
  int32_t threads = 1;
  EngineSubject subject = {};   // of the run that is explained alone: what is planted
  bool reference_only = false;  // no other way is tried for the old side
};

enum class OldSide : uint8_t {
  kNone,         // digests alone
  kExact,        // a run that agrees with the golden
  kApproximate,  // the reference transformer
};
std::string_view OldSideName(OldSide side);  // "digest only", "to the bit", "approximate"

// A way that was tried for the old side.
struct TriedWay {
  std::string name;          // "cache paged/4", "kernels scalar"
  bool agrees = false;       // with the golden, at the place and before it
  std::string differs = {};  // where not: the first place
};

// One element on both sides.
struct ElementPair {
  int32_t position = -1;  // -1: the row has none
  int32_t row = 0;
  int32_t element = 0;
  float before = 0;
  float now = 0;
};

// A step whose likeliest tokens are others.
struct TopChange {
  int32_t op = 0;
  int32_t step = 0;
  int32_t sequence = 0;
  std::string before;  // ids, the first is the argmax
  std::string now;
  bool argmax = false;  // the first is another
};

// Whether what a stage computed is what the golden says.
struct StageMark {
  int32_t step = 0;
  int32_t layer = -1;  // as in Fact
  std::string stage;
  bool changed = false;
};

struct Explanation {
  std::string name;                 // of the case
  std::string rows;                 // of the golden file
  std::string cache;                // that the explained run was on
  std::vector<FactChange> changes;  // empty: the golden holds, and the rest is empty too

  // The first change.
  Fact place;                           // what differs first; no value
  std::string operation;                // its text
  std::vector<int32_t> positions = {};  // of the rows there
  std::string what;                     // "stage", "decision", "header"
  std::string side = {};                // of rows behind a hash: "K of layer 1"

  OldSide old_side = OldSide::kNone;
  std::string old_from;  // what gave the old values, one sentence
  std::vector<TriedWay> tried;
  ValueDifference values;
  std::vector<ElementPair> elements;  // the first of each row that differs
  CauseVerdict cause;

  std::vector<TopChange> downstream;
  int32_t steps = 0;                         // of the golden
  std::vector<StageMark> marks;              // of all steps, in order of computation
  std::vector<std::string> step_names = {};  // "op 1, sequence 0, positions 3..5"
};

// Of one golden file of the case. REQUIRES: the golden belongs to one of the scenario's groups.
// `cache`: a cache of the group; empty: the one whose run differs first.
// Throws what Record throws.
Explanation Explain(const Scenario& scenario, const GoldenFile& golden, const std::string& cache,
                    const ExplainOptions& options);

// For people.
std::string ExplanationText(const Explanation& explanation);

// "step 3 (decode n=2, sequence 0, position 6), layer 1, key_rope"
std::string PlaceText(const Explanation& explanation);

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_EXPLAIN_H_
