// A golden file as data: what a scenario computed, one fact a line, in order of computation.
//
//   golden 1
//   scenario 0f3c...            what was run (golden/scenario.h)
//   model 77ab...               the bytes of the model file
//   rows q8_0+q4_0-w4           how the caches store rows
//   arithmetic 1                kArithmeticVersion (engine/math.h)
//   recorded-by lockstep 0.1.0  not compared
//
//   op0 run prefill cuts=3 tokens=7
//   op0 step0 seq0 input at=0..2 ids=17,4,250
//   op0 step0 seq0 layer1 cache_key 3b7f...          XXH3-128 of the stage's rows
//   op0 step0 seq0 layer1 cache_key@2:12 0xbd4c1fe2 -0.049834144   position:element
//   op0 step0 seq0 layer1 sum c01d...                of the lines of this step and layer
//   op0 step0 seq0 top5 432 17 9 301 5               the first is the argmax
//   op0 outcome done
//   op0 seq0 length 3
//   op0 seq0 rows 9921...                            the cache hash [X1]
//   op0 seq0 gate[paged/4] granted=3 refused=0 commits=3 updates=0
//   ...
//   end 412 8ac0...             facts, and a digest of their lines
//
// A step is one internal forward step of one sequence, numbered through the file. Every line but
// those of `gate` is the same for all caches that store rows in this way. The sums make a file that
// was merged or edited by hand unreadable, and lead a reader down to what differs.
#ifndef LOCKSTEP_GOLDEN_FACTS_H_
#define LOCKSTEP_GOLDEN_FACTS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caches/digest.h"

namespace lockstep {

inline constexpr int32_t kGoldenFormat = 1;

struct Fact {
  int32_t op = 0;
  int32_t step = -1;      // -1: of the whole operation
  int32_t sequence = -1;  // -1: of no sequence
  int32_t layer = -1;     // -1: of no layer
  std::string name = {};  // "cache_key", "cache_key@2:12", "length", "gate[simple]"
  std::string value = {};

  // The name without what stands behind '@' or '['.
  std::string_view base_name() const;
  // "op0 step0 seq0 layer1 cache_key": the line without its value.
  std::string Place() const;

  friend bool operator==(const Fact&, const Fact&) = default;
};

// The order of computation: operation, step, layer, stage; what an operation left comes after its
// steps. Facts of one place are equal here, whatever their values. REQUIRES: known names.
bool FactBefore(const Fact& a, const Fact& b);

// Whether a fact may have that name: a stage of engine/trace.h, or one of run, input, top5, sum,
// outcome, length, rows, stored and gate.
bool IsFactName(std::string_view name);

struct GoldenHeader {
  Digest scenario;
  Digest model;
  std::string rows;  // RowsName of golden/scenario.h
  int32_t arithmetic = 0;
  std::string recorded_by;

  friend bool operator==(const GoldenHeader&, const GoldenHeader&) = default;
};

struct GoldenFile {
  GoldenHeader header;
  std::vector<Fact> facts;  // in order of FactBefore, no two of one place

  // ParseGoldenFile(Text(), "") == *this.
  std::string Text() const;

  // Of all that is compared: everything but `recorded-by`. (A ledger has the digest of the text.)
  Digest Identity() const;

  friend bool operator==(const GoldenFile&, const GoldenFile&) = default;
};

// Throws Error naming `where` and the line: merge-conflict markers as such, lines of no known form,
// facts out of order or twice, sums that do not fit, a file that is cut off, another format.
GoldenFile ParseGoldenFile(std::string_view text, std::string_view where);

// Without the facts that belong to other caches. An empty name: without all that depend on a cache.
GoldenFile FactsOfCache(const GoldenFile& golden, std::string_view cache);

struct FactChange {
  enum class Kind : uint8_t { kChanged, kMissing, kAdded };  // kMissing: only the old file has it
  Kind kind = Kind::kChanged;
  // Where; `name` is "scenario", "model", "rows" or "arithmetic" and op -1 for a line of the
  // header.
  Fact place = {};
  std::string old_value = {};  // empty where added
  std::string new_value = {};  // empty where missing

  std::string Sentence() const;
};

// All changes, in order of computation, the header first. Sums are left out: what they are of is
// there. Empty: the files are equal, but for who recorded them.
std::vector<FactChange> CompareGoldens(const GoldenFile& before, const GoldenFile& after);

// "0xbd4c1fe2 -0.049834144" of the canonical bits, as chosen elements are written.
std::string ElementText(float value);

// Facts of one step, or of one step and layer, without its sum: the value of that.
std::string SumOfFacts(std::span<const Fact> facts);

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_FACTS_H_
