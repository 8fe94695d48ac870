// Engine scripts: prefill, decode, speculation, batches, cancelled steps, beside the plain
// reference.
#include <fmt/format.h>

#include "properties/ddmin.h"
#include "properties/engine_script.h"
#include "properties/engine_script_runner.h"
#include "properties/fuzz/targets.h"

namespace lockstep::fuzz {
namespace {

class EngineTarget final : public TypedTarget<EngineScript> {
 public:
  explicit EngineTarget(const FuzzTargetOptions& options) : options_(options) {
    if (!options.plant.empty()) subject_ = PlantedEngine(options.plant);
  }

 private:
  EngineScript Decode(std::span<const std::byte> bytes) const override {
    return DecodeEngineScript(bytes);
  }

  std::string Print(const EngineScript& script) const override { return EngineScriptText(script); }

  EngineScript Parse(std::string_view text, std::string_view where) const override {
    return ParseEngineScript(text, where);
  }

  std::optional<FuzzFinding> Judge(const EngineScript& script) const override {
    const EngineRun run = RunEngineScript(script, subject_);
    if (options_.feature) {
      for (size_t i = 0; i < kEngineClasses; ++i) {
        if (run.counts.classes[i] > 0) options_.feature(i);
      }
    }
    if (!run.finding) return std::nullopt;
    const EngineOp& op = script.ops.at(static_cast<size_t>(run.finding->op));
    return FuzzFinding{fmt::format("[{}] after {}", run.finding->clause, EngineOpName(op.kind)),
                       fmt::format("operation {}: {}", run.finding->op + 1, run.finding->what)};
  }

  EngineScript ShrinkInput(EngineScript script, const InputJudge& judge) const override {
    const auto finding = judge(script);
    RemoveNeedless(&script.ops, [&](const std::vector<EngineOp>& ops) -> std::optional<size_t> {
      EngineScript candidate = script;
      candidate.ops = ops;
      const auto found = judge(candidate);
      const bool same = found && finding && found->place == finding->place;
      return same ? std::optional(ops.size()) : std::nullopt;
    });
    return script;
  }

  FuzzTargetOptions options_;
  EngineSubject subject_;
};

}  // namespace

std::unique_ptr<FuzzTarget> MakeEngineTarget(const FuzzTargetOptions& options) {
  return std::make_unique<EngineTarget>(options);
}

}  // namespace lockstep::fuzz
