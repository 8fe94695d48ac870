// Exhaustive small scope: every script of a stated length over a tiny geometry, against the model.
// What random scripts miss by luck this cannot miss, as far as it reaches.
//   Jackson, Damon, "Elements of Style: Analyzing a Software Design Feature with a Counterexample
//   Detector", IEEE TSE 22(7), 1996: most faults show in a small scope.
//
// The alphabet has, at each layer, Update, TryReserveSlot and CommitSlot with every list of up to
// two positions over [-1, max_length], and a write into the slot; Rollback to every length over
// [-1, max_length + 1]. Around a border B, the end of a block, a window or a ring, that is too
// much, and max_length is B + 1: then positions are -1, 0, B - 1, B and B + 1, lengths those, 1 and
// B + 2; layers behind the first have no lists of two but runs; and all have the runs of B and of B
// + 1 rows from 0. So rows are forgotten, blocks begun and rings wrapped. Then Clear, Fork, End,
// Switch, Save, Restore, Read. A pool of limited blocks has one sequence, so there the operations
// on sequences and files are left out. Row values are canonical: each write of a script has a seed
// of its own, by its place, and no other is tried, since caches never look at values.
//
// Nothing is pruned by state: a script is left out only when it is a prefix of another one, which
// compares it on the way. Scripts come in lexicographic order, and what a script shares with the
// one before it was compared there and is run again without comparing: the caches are
// deterministic, so it cannot differ.
#ifndef LOCKSTEP_PROPERTIES_EXHAUSTIVE_H_
#define LOCKSTEP_PROPERTIES_EXHAUSTIVE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "properties/script.h"
#include "properties/script_runner.h"

namespace lockstep {

struct ExhaustiveScope {
  CacheScript script;  // cache, geometry, blocks; its operations are not used
  int32_t border = 0;  // positions; 0: every position
};

struct ExhaustiveOptions {
  ExhaustiveScope scope;
  int32_t operations = 2;  // of a script
  // Only the scripts that begin with these letters, by index in the alphabet: how the work is cut.
  // What is covered then counts no shorter script than these letters.
  std::vector<int32_t> prefix = {};
};

// The scope that suits the cache: 2 layers of one head, as few dimensions as its rows can have, and
// as many positions as it takes to leave its blocks, windows or rings, 2 at the least. Rings with
// the windows of the model have one at the first layer. Throws Error for an unknown cache.
ExhaustiveScope TinyScope(const std::string& cache);

struct ExhaustiveCounts {
  int64_t letters = 0;  // of the alphabet
  int64_t scripts = 0;  // that ran: letters to the power of operations, unless something was found
  int64_t covered = 0;  // these and their prefixes: every script of up to so many operations
  ScriptCounts run;
  CacheScript script;  // of the finding
  std::optional<ScriptFinding> finding;
};

// REQUIRES: max_length is the border and 1, if there is one (LS_CHECK).
std::vector<ScriptOp> ExhaustiveAlphabet(const ExhaustiveScope& scope);

// Stops at the first finding. `on_progress` is called with the scripts that ran, now and then; it
// may be empty. REQUIRES: operations > 0, and at least as many as the prefix has letters, each of
// them of the alphabet (LS_CHECK).
ExhaustiveCounts RunExhaustive(const ExhaustiveOptions& options, const ScriptSubject& subject,
                               const std::function<void(int64_t scripts)>& on_progress = nullptr);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_EXHAUSTIVE_H_
