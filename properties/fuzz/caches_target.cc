// Cache scripts: the first byte names the cache, the others make the script (DecodeScript).
#include <fmt/format.h>

#include <bit>

#include "caches/digest.h"
#include "caches/registry.h"
#include "oracle/faulty_cache.h"
#include "properties/fuzz/cache_state.h"
#include "properties/fuzz/script_judge.h"
#include "properties/fuzz/targets.h"
#include "properties/script.h"
#include "properties/script_runner.h"

namespace lockstep::fuzz {
namespace {

class CachesTarget final : public TypedTarget<CacheScript> {
 public:
  explicit CachesTarget(const FuzzTargetOptions& options) : options_(options) {
    if (!options.plant.empty()) plant_ = ParsePlant(options.plant);
  }

 private:
  CacheScript Decode(std::span<const std::byte> bytes) const override {
    const auto first = bytes.empty() ? 0 : std::to_integer<size_t>(bytes.front());
    return DecodeScript(AllCaches()[first % AllCaches().size()].name,
                        bytes.subspan(bytes.empty() ? 0 : 1));
  }

  std::string Print(const CacheScript& script) const override { return ScriptText(script); }

  CacheScript Parse(std::string_view text, std::string_view where) const override {
    return ParseScript(text, where);
  }

  std::optional<FuzzFinding> Judge(const CacheScript& script) const override {
    const ScriptRun run = RunScript(script, Subject(script.cache));
    if (options_.feature) CountStates(script, run.counts);
    const auto& finding = run.finding;
    if (!finding) return std::nullopt;
    const ScriptOp& op = script.ops.at(static_cast<size_t>(finding->op));
    return FuzzFinding{
        fmt::format("[{}] after {}", finding->clause, ScriptOpName(op.kind)),
        fmt::format("{}, operation {}: {}", script.cache, finding->op + 1, finding->what)};
  }

  CacheScript ShrinkInput(CacheScript script, const InputJudge& judge) const override {
    return ShrinkScript(script, ScriptJudgeOf(judge));
  }

  // Which classes of positions and of sequences of operations each cache was in, and how often to
  // the nearest power of two.
  void CountStates(const CacheScript& script, const ScriptCounts& counts) const {
    const auto count = [&](std::span<const int64_t> classes, uint32_t kind) {
      for (size_t i = 0; i < classes.size(); ++i) {
        if (classes[i] == 0) continue;
        DigestBuilder state;
        state.AddText(script.cache);
        state.AddU32(kind);
        state.AddU32(static_cast<uint32_t>(i));
        state.AddU32(static_cast<uint32_t>(std::bit_width(static_cast<uint64_t>(classes[i]))));
        options_.feature(state.Finish().low);
      }
    };
    count(counts.positions, 0);
    count(counts.sequences, 1);
    const int64_t outcomes[] = {counts.exhausted, counts.restored, counts.forked};
    count(outcomes, 2);
  }

  ScriptSubject Subject(const std::string& name) const {
    ScriptSubject subject = RegisteredSubject(name);
    if (plant_) {
      subject.make = [make = subject.make, plant = *plant_](const CacheScript& script) {
        return std::make_unique<FaultyCache>(make(script), plant);
      };
    }
    if (!options_.feature) return subject;
    subject.observe = [this, spec = ParseCacheSpec(name)](const KvCache& cache, int32_t open) {
      options_.feature(CacheStateFeature(spec, cache, open));
    };
    return subject;
  }

  FuzzTargetOptions options_;
  std::optional<Plant> plant_;
};

}  // namespace

std::unique_ptr<FuzzTarget> MakeCachesTarget(const FuzzTargetOptions& options) {
  return std::make_unique<CachesTarget>(options);
}

}  // namespace lockstep::fuzz
