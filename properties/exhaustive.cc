#include "properties/exhaustive.h"

#include <algorithm>
#include <numeric>

#include "caches/check.h"
#include "caches/registry.h"
#include "properties/runner/run.h"

namespace lockstep {
namespace {

constexpr int64_t kProgressEvery = 1 << 14;  // scripts

using Positions = std::vector<int32_t>;

Positions Range(int32_t first, int32_t last) {
  Positions range(static_cast<size_t>(last - first + 1));
  std::iota(range.begin(), range.end(), first);
  return range;
}

// In order, each once.
Positions Distinct(Positions numbers) {
  std::ranges::sort(numbers);
  const auto rest = std::ranges::unique(numbers);
  numbers.erase(rest.begin(), rest.end());
  return numbers;
}

Positions PositionsOf(const ExhaustiveScope& scope) {
  const int32_t border = scope.border;
  if (border == 0) return Range(-1, scope.script.geometry.max_length);
  return Distinct({-1, 0, border - 1, border, border + 1});
}

Positions LengthsOf(const ExhaustiveScope& scope) {
  const int32_t border = scope.border;
  if (border == 0) return Range(-1, scope.script.geometry.max_length + 1);
  return Distinct({-1, 0, 1, border - 1, border, border + 1, border + 2});
}

std::vector<Positions> PositionLists(const ExhaustiveScope& scope, int32_t layer) {
  const Positions positions = PositionsOf(scope);
  const bool runs_alone = scope.border > 0 && layer > 0;
  std::vector<Positions> lists = {{}};
  for (const int32_t p : positions) lists.push_back({p});
  for (const int32_t p : positions) {
    for (const int32_t q : positions) {
      if (!runs_alone || q == p + 1) lists.push_back({p, q});
    }
  }
  for (const int32_t rows : {scope.border, scope.border + 1}) {
    if (rows > 2) lists.push_back(Range(0, rows - 1));
  }
  return lists;
}

// The last position of what the cache keeps in one piece; 0: there is nothing to leave.
int32_t BorderOf(const CacheSpec& spec, const KvGeometry& geometry) {
  int32_t rows = std::max(spec.block_size, spec.window);
  for (const int32_t window : WindowsOf(spec, geometry)) {
    if (window > 0) rows = std::max(rows, window + 2 * spec.undo_rows);  // RingRows
  }
  return rows > 1 ? rows : 0;
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

ExhaustiveScope TinyScope(const std::string& cache) {
  const CacheSpec spec = ParseCacheSpec(cache);
  const int32_t dim = spec.head_dim_multiple == 1 ? 2 : spec.head_dim_multiple;
  KvGeometry geometry = {2, 1, dim, 2};
  if (spec.undo_rows > 0 && spec.windows.empty()) geometry.window = geometry.full_interval = 2;
  const int32_t border = BorderOf(spec, geometry);
  if (border > 0) geometry.max_length = border + 1;
  return {{.cache = cache, .geometry = geometry, .blocks = 0, .ops = {}}, border};
}

std::vector<ScriptOp> ExhaustiveAlphabet(const ExhaustiveScope& scope) {
  const KvGeometry& g = scope.script.geometry;
  LS_CHECK(scope.border == 0 || g.max_length == scope.border + 1, "{} positions around {}",
           g.max_length, scope.border);
  std::vector<ScriptOp> letters;
  for (int32_t layer = 0; layer < g.num_layers; ++layer) {
    for (const ScriptOpKind kind :
         {ScriptOpKind::kUpdate, ScriptOpKind::kReserve, ScriptOpKind::kCommit}) {
      for (const std::vector<int32_t>& positions : PositionLists(scope, layer)) {
        letters.push_back({.kind = kind, .layer = layer, .positions = positions});
      }
    }
    letters.push_back({.kind = ScriptOpKind::kWrite, .layer = layer});
  }
  for (const int32_t length : LengthsOf(scope)) {
    letters.push_back({.kind = ScriptOpKind::kRollback, .target = length});
  }
  letters.push_back({.kind = ScriptOpKind::kClear});
  letters.push_back({.kind = ScriptOpKind::kRead});
  if (scope.script.blocks > 0) return letters;
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
  CacheScript script = options.scope.script;
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
