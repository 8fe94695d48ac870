#include <algorithm>
#include <utility>

#include "caches/check.h"
#include "caches/registry.h"
#include "engine/synthetic.h"
#include "properties/ddmin.h"
#include "properties/engine_script_runner.h"

namespace lockstep {
namespace {

class Shrinker {
 public:
  Shrinker(const EngineScript& script, const EngineJudge& judge) : judge_(judge), best_(script) {
    const std::optional<EngineFinding> finding = judge_(best_);
    LS_CHECK(finding, "nothing to shrink: {} operations find nothing", script.ops.size());
    clause_ = finding->clause;
    best_.ops.resize(static_cast<size_t>(finding->op) + 1);
  }

  EngineScript Shrink() {
    size_t before;
    do {
      before = Size();
      RemoveOperations();
      for (size_t i = 0; i < best_.ops.size(); ++i) Lessen(i);
    } while (Size() < before);
    PlainHeader();
    return std::move(best_);
  }

 private:
  size_t Size() const {
    size_t size = best_.ops.size();
    for (const EngineOp& op : best_.ops) {
      size += op.sequences.size() + static_cast<size_t>(op.count + op.accept);
      for (const int32_t cut : op.cuts) size += static_cast<size_t>(cut);
    }
    return size;
  }

  // How many of the script's operations the same finding needs, at most; nullopt when it is gone.
  std::optional<size_t> Needed(const EngineScript& candidate) const {
    const std::optional<EngineFinding> finding = judge_(candidate);
    if (!finding || finding->clause != clause_) return std::nullopt;
    return static_cast<size_t>(finding->op) + 1;
  }

  bool Try(EngineScript candidate) {
    const std::optional<size_t> needed = Needed(candidate);
    if (!needed) return false;
    best_ = std::move(candidate);
    best_.ops.resize(*needed);
    return true;
  }

  void RemoveOperations() {
    EngineScript candidate = best_;
    RemoveNeedless(&best_.ops, [&](const std::vector<EngineOp>& ops) {
      candidate.ops = ops;
      return Needed(candidate);
    });
  }

  // One operation with fewer sequences, cuts, tokens, or steps.
  void Lessen(size_t i) {
    const auto change = [&](auto&& edit) {
      while (i < best_.ops.size()) {
        EngineScript candidate = best_;
        if (!edit(&candidate.ops[i]) || !Try(std::move(candidate))) return;
      }
    };
    for (size_t at = 0; i < best_.ops.size() && at < best_.ops[i].cuts.size(); ++at) {
      change([&](EngineOp* op) { return Leave(op, at); });
      change([&](EngineOp* op) { return Halve(&op->cuts, at, 2); });
      change([&](EngineOp* op) { return Halve(&op->cuts, at, 1); });
    }
    change([](EngineOp* op) { return op->accept > 0 && (--op->accept, --op->count, true); });
    change([](EngineOp* op) { return op->count > op->accept && (--op->count, true); });
  }

  static bool Leave(EngineOp* op, size_t at) {
    if (op->cuts.size() < 2 || at >= op->cuts.size()) return false;
    const auto offset = static_cast<std::ptrdiff_t>(at);
    op->cuts.erase(op->cuts.begin() + offset);
    if (op->sequences.size() > 1) op->sequences.erase(op->sequences.begin() + offset);
    return true;
  }

  static bool Halve(std::vector<int32_t>* cuts, size_t at, int32_t divisor) {
    if (at >= cuts->size() || (*cuts)[at] < 2) return false;
    int32_t& cut = (*cuts)[at];
    cut -= divisor == 1 ? 1 : cut / divisor;
    return true;
  }

  void PlainHeader() {
    const auto change = [&](auto&& edit) {
      EngineScript candidate = best_;
      edit(&candidate);
      if (!(candidate == best_)) Try(std::move(candidate));
    };
    change([](EngineScript* script) { script->threads = 1; });
    change([](EngineScript* script) { script->device = {}; });
    change([](EngineScript* script) {
      if (!script->device.empty()) script->device = "host-executor";
    });
    change([](EngineScript* script) { script->isa = "scalar"; });
    change([](EngineScript* script) { script->step = 512; });
    change([](EngineScript* script) { script->blocks = 0; });
    change([](EngineScript* script) { script->caches.resize(1); });
    change([](EngineScript* script) { script->seed = 1; });
    for (const char* model : {"tiny-mha-4x4-f32", "tiny-untied-4x2-q8_0"}) {
      if (Suits(best_, model)) change([&](EngineScript* script) { script->model = model; });
    }
  }

  static bool Suits(const EngineScript& script, std::string_view model) {
    const SyntheticSpec& spec = SyntheticPreset(model);
    return script.max_length <= spec.context_length &&
           std::ranges::all_of(script.caches, [&](const std::string& cache) {
             return Misfit(ParseCacheSpec(cache), SyntheticGeometry(spec, 1)).empty();
           });
  }

  const EngineJudge& judge_;
  EngineScript best_;
  std::string clause_;
};

}  // namespace

EngineScript ShrinkEngineScript(const EngineScript& script, const EngineJudge& judge) {
  return Shrinker(script, judge).Shrink();
}

EngineScript ShrinkEngineScript(const EngineScript& script, const EngineSubject& subject) {
  return ShrinkEngineScript(script, [&](const EngineScript& candidate) {
    return RunEngineScript(candidate, subject).finding;
  });
}

}  // namespace lockstep
