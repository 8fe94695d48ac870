#include "properties/exhaustive.h"

#include <algorithm>

#include "caches/check.h"
#include "caches/registry.h"
#include "properties/runner/run.h"

namespace lockstep {
namespace {

constexpr int64_t kProgressEvery = 1 << 14;  // scripts

// Every list of up to two positions over [-1, max_length].
std::vector<std::vector<int32_t>> PositionLists(int32_t max_length) {
  std::vector<std::vector<int32_t>> lists = {{}};
  for (int32_t p = -1; p <= max_length; ++p) lists.push_back({p});
  for (int32_t p = -1; p <= max_length; ++p) {
    for (int32_t q = -1; q <= max_length; ++q) lists.push_back({p, q});
  }
  return lists;
}

// The next script in lexicographic order: counts up `at`, last place first, down to `fixed`.
// Returns the place that changed, or -1 after the last one.
int32_t Next(std::vector<size_t>* at, size_t letters, size_t fixed) {
  for (size_t place = at->size(); place-- > fixed;) {
    if (++(*at)[place] < letters) return static_cast<int32_t>(place);
    (*at)[place] = 0;
  }
  return -1;
}

}  // namespace

CacheScript TinyScope(const std::string& cache) {
  const CacheSpec spec = ParseCacheSpec(cache);
  const int32_t dim = spec.head_dim_multiple == 1 ? 2 : spec.head_dim_multiple;
  return {.cache = cache, .geometry = {2, 1, dim, 2}, .blocks = 0, .ops = {}};
}

std::vector<ScriptOp> ExhaustiveAlphabet(const CacheScript& scope) {
  const KvGeometry& g = scope.geometry;
  std::vector<ScriptOp> letters;
  for (int32_t layer = 0; layer < g.num_layers; ++layer) {
    for (const ScriptOpKind kind :
         {ScriptOpKind::kUpdate, ScriptOpKind::kReserve, ScriptOpKind::kCommit}) {
      for (const std::vector<int32_t>& positions : PositionLists(g.max_length)) {
        letters.push_back({.kind = kind, .layer = layer, .positions = positions});
      }
    }
    letters.push_back({.kind = ScriptOpKind::kWrite, .layer = layer});
  }
  for (int32_t length = -1; length <= g.max_length + 1; ++length) {
    letters.push_back({.kind = ScriptOpKind::kRollback, .target = length});
  }
  letters.push_back({.kind = ScriptOpKind::kClear});
  letters.push_back({.kind = ScriptOpKind::kRead});
  if (scope.blocks > 0) return letters;
  for (const ScriptOpKind kind :
       {ScriptOpKind::kFork, ScriptOpKind::kEnd, ScriptOpKind::kSave, ScriptOpKind::kRestore}) {
    letters.push_back({.kind = kind});
  }
  letters.push_back({.kind = ScriptOpKind::kSwitch, .target = 1});
  return letters;
}

ExhaustiveCounts RunExhaustive(const ExhaustiveOptions& options, const ScriptSubject& subject,
                               const std::function<void(int64_t scripts)>& on_progress) {
  const std::vector<ScriptOp> letters = ExhaustiveAlphabet(options.scope);
  const size_t fixed = options.prefix.size();
  LS_CHECK(options.operations > 0 && fixed <= static_cast<size_t>(options.operations),
           "{} operations, a prefix of {}", options.operations, fixed);
  ExhaustiveCounts counts;
  counts.letters = static_cast<int64_t>(letters.size());
  CacheScript script = options.scope;
  script.ops.resize(static_cast<size_t>(options.operations));
  std::vector<size_t> at(script.ops.size());
  for (size_t i = 0; i < fixed; ++i) {
    at[i] = static_cast<size_t>(options.prefix[i]);
    LS_CHECK(at[i] < letters.size(), "letter {} of {}", options.prefix[i], letters.size());
  }
  for (int32_t changed = 0; changed >= 0; changed = Next(&at, letters.size(), fixed)) {
    for (size_t i = static_cast<size_t>(changed); i < at.size(); ++i) {
      script.ops[i] = letters[at[i]];
      const ScriptOpKind kind = script.ops[i].kind;
      const bool writes = kind == ScriptOpKind::kUpdate || kind == ScriptOpKind::kWrite;
      if (writes) script.ops[i].rows = static_cast<uint32_t>(i + 1);
    }
    ScriptRun run = runner::RunComparingFrom(script, subject, changed);
    counts.run += run.counts;
    ++counts.scripts;
    counts.covered += options.operations - std::max(changed, static_cast<int32_t>(fixed) - 1);
    if (on_progress && counts.scripts % kProgressEvery == 0) on_progress(counts.scripts);
    if (!run.finding) continue;
    counts.script = script;
    counts.finding = std::move(run.finding);
    break;
  }
  return counts;
}

}  // namespace lockstep
