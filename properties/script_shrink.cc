#include <algorithm>
#include <stdexcept>

#include "caches/check.h"
#include "caches/error.h"
#include "properties/ddmin.h"
#include "properties/script_runner.h"
#include "properties/simpler_scripts.h"

namespace lockstep {
namespace {

constexpr int64_t kTriesHere = 20000;  // of a subject in this process

class Shrinker {
 public:
  Shrinker(const CacheScript& script, const ScriptJudge& judge, int64_t tries_max)
      : judge_(judge), best_(script), tries_max_(tries_max) {
    const std::optional<ScriptFinding> finding = judge_(best_);
    LS_CHECK(finding, "nothing to shrink: {} operations find nothing", script.ops.size());
    clause_ = finding->clause;
    CutAfter(finding->op);
  }

  CacheScript Shrink() {
    RemoveOperations();
    // A script that hangs costs its time limit at every try: fewer operations have to do.
    if (clause_ == "hang") return std::move(best_);
    while (tries_ < tries_max_ && TakeSimpler()) {
    }
    return std::move(best_);
  }

 private:
  // What comes after the finding plays no part.
  void CutAfter(int32_t op) { best_.ops.resize(static_cast<size_t>(op) + 1); }

  // Nothing for a geometry that the subject cannot have.
  std::optional<ScriptFinding> Judge(const CacheScript& candidate) {
    try {
      return judge_(candidate);
    } catch (const Error&) {
      return std::nullopt;
    } catch (const std::invalid_argument&) {
      return std::nullopt;
    }
  }

  bool Try(const CacheScript& candidate) {
    ++tries_;
    const std::optional<ScriptFinding> finding = Judge(candidate);
    if (!finding || finding->clause != clause_) return false;
    best_ = candidate;
    CutAfter(finding->op);
    return true;
  }

  bool TakeSimpler() {
    const std::vector<CacheScript> simpler = SimplerScripts(best_);
    return std::ranges::any_of(
        simpler, [this](const CacheScript& s) { return tries_ < tries_max_ && Try(s); });
  }

  void RemoveOperations() {
    std::vector<ScriptOp> ops = best_.ops;
    RemoveNeedless(&ops, [this](const std::vector<ScriptOp>& left) -> std::optional<size_t> {
      CacheScript candidate = best_;
      candidate.ops = left;
      if (!Try(candidate)) return std::nullopt;
      return best_.ops.size();
    });
  }

  const ScriptJudge& judge_;
  CacheScript best_;
  std::string clause_;
  int64_t tries_ = 0;
  int64_t tries_max_;
};

}  // namespace

CacheScript ShrinkScript(const CacheScript& script, const ScriptJudge& judge, int64_t tries_max) {
  return Shrinker(script, judge, tries_max).Shrink();
}

CacheScript ShrinkScript(const CacheScript& script, const ScriptSubject& subject) {
  return ShrinkScript(
      script, [&](const CacheScript& candidate) { return RunScript(candidate, subject).finding; },
      kTriesHere);
}

}  // namespace lockstep
