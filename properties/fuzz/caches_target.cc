// Cache scripts: the first byte names the cache, the others make the script (DecodeScript).
#include <fmt/format.h>

#include <algorithm>

#include "caches/digest.h"
#include "caches/registry.h"
#include "oracle/faulty_cache.h"
#include "properties/fuzz/script_judge.h"
#include "properties/fuzz/targets.h"
#include "properties/script.h"
#include "properties/script_runner.h"

namespace lockstep::fuzz {
namespace {

// Every layer's length by its place in a block or in the window.
void AddPhases(const KvCache& cache, int32_t period, DigestBuilder* state) {
  for (int32_t layer = 0; layer < cache.geometry().num_layers; ++layer) {
    const int32_t length = cache.length(layer);
    state->AddU32(static_cast<uint32_t>(length % period));
    state->AddU32(length >= period ? 1 : 0);
  }
}

// How many blocks have each number of references, and in which order free and used ones lie.
void AddBlocks(const BlockCounts& blocks, DigestBuilder* state) {
  constexpr size_t kShape = 8;
  for (size_t i = 0; i < blocks.references.size() && i < kShape; ++i) {
    state->AddU32(static_cast<uint32_t>(blocks.references[i]));
  }
  state->AddU32(static_cast<uint32_t>(blocks.free_blocks));
}

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
    const auto finding = RunScript(script, Subject(script.cache)).finding;
    if (!finding) return std::nullopt;
    const ScriptOp& op = script.ops.at(static_cast<size_t>(finding->op));
    return FuzzFinding{
        fmt::format("[{}] after {}", finding->clause, ScriptOpName(op.kind)),
        fmt::format("{}, operation {}: {}", script.cache, finding->op + 1, finding->what)};
  }

  CacheScript ShrinkInput(CacheScript script, const InputJudge& judge) const override {
    return ShrinkScript(script, ScriptJudgeOf(judge));
  }

  ScriptSubject Subject(const std::string& name) const {
    ScriptSubject subject = RegisteredSubject(name);
    if (plant_) {
      subject.make = [make = subject.make, plant = *plant_](const CacheScript& script) {
        return std::make_unique<FaultyCache>(make(script), plant);
      };
    }
    if (!options_.feature) return subject;
    const int32_t period = std::max({subject.model.block_size, subject.model.window, 1});
    subject.observe = [this, period](const KvCache& cache, int32_t open) {
      DigestBuilder state;
      state.AddU32(static_cast<uint32_t>(period));
      state.AddU32(static_cast<uint32_t>(open));
      AddPhases(cache, period, &state);
      if (const auto blocks = BlockCountsOf(cache)) AddBlocks(*blocks, &state);
      options_.feature(state.Finish().low);
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
