#include <algorithm>

#include "caches/check.h"
#include "properties/script_runner.h"

namespace lockstep {
namespace {

class Shrinker {
 public:
  Shrinker(const CacheScript& script, const ScriptJudge& judge) : judge_(judge), best_(script) {
    const std::optional<ScriptFinding> finding = judge_(best_);
    LS_CHECK(finding, "nothing to shrink: {} operations find nothing", script.ops.size());
    clause_ = finding->clause;
    CutAfter(finding->op);
  }

  CacheScript Shrink() {
    size_t before;
    do {
      before = Size();
      RemoveOperations();
      ShortenPositions();
    } while (Size() < before);
    return std::move(best_);
  }

 private:
  size_t Size() const {
    size_t size = best_.ops.size();
    for (const ScriptOp& op : best_.ops) size += op.positions.size();
    return size;
  }

  // What comes after the finding plays no part.
  void CutAfter(int32_t op) { best_.ops.resize(static_cast<size_t>(op) + 1); }

  bool Try(CacheScript candidate) {
    const std::optional<ScriptFinding> finding = judge_(candidate);
    if (!finding || finding->clause != clause_) return false;
    best_ = std::move(candidate);
    CutAfter(finding->op);
    return true;
  }

  // Chunks of falling size, from the end: later operations are the likeliest to be needless.
  void RemoveOperations() {
    for (size_t chunk = std::max<size_t>(best_.ops.size() / 2, 1); chunk > 0; chunk /= 2) {
      for (size_t end = best_.ops.size(); end > 0;) {
        const size_t begin = end > chunk ? end - chunk : 0;
        CacheScript candidate = best_;
        candidate.ops.erase(candidate.ops.begin() + static_cast<std::ptrdiff_t>(begin),
                            candidate.ops.begin() + static_cast<std::ptrdiff_t>(end));
        const bool removed = !candidate.ops.empty() && Try(std::move(candidate));
        end = std::min(removed ? best_.ops.size() : begin, begin);
      }
    }
  }

  void ShortenPositions() {
    for (size_t i = 0; i < best_.ops.size(); ++i) {
      while (i < best_.ops.size() && best_.ops[i].positions.size() > 1) {
        CacheScript candidate = best_;
        candidate.ops[i].positions.pop_back();
        if (!Try(std::move(candidate))) break;
      }
      while (i < best_.ops.size() && best_.ops[i].positions.size() > 1) {
        CacheScript candidate = best_;
        candidate.ops[i].positions.erase(candidate.ops[i].positions.begin());
        if (!Try(std::move(candidate))) break;
      }
    }
  }

  const ScriptJudge& judge_;
  CacheScript best_;
  std::string clause_;
};

}  // namespace

CacheScript ShrinkScript(const CacheScript& script, const ScriptJudge& judge) {
  return Shrinker(script, judge).Shrink();
}

CacheScript ShrinkScript(const CacheScript& script, const ScriptSubject& subject) {
  return ShrinkScript(
      script, [&](const CacheScript& candidate) { return RunScript(candidate, subject).finding; });
}

}  // namespace lockstep
