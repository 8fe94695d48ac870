#include "golden/scenario.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "caches/check.h"
#include "caches/error.h"
#include "engine/story.h"
#include "engine/synthetic.h"
#include "engine/tokenizer.h"
#include "properties/engine_script_runner.h"
#include "properties/engine_state.h"

namespace lockstep {
namespace {

// nullptr when the file is not one that lockstep comes with.
const StoryModel* FindStory(const Scenario& scenario) {
  const auto found = std::ranges::find(StoryModels(), scenario.model.file, &StoryModel::file);
  return found == StoryModels().end() ? nullptr : &*found;
}

std::string FilePath(const Scenario& scenario, const std::string& models) {
  if (const StoryModel* story = FindStory(scenario)) return StoryModelPath(*story);
  return (std::filesystem::path(models) / scenario.model.file).string();
}

// What a model of a file needs to be run: kept, because several caches run on it.
struct LoadedFile {
  std::shared_ptr<const GgufFile> file;
  std::shared_ptr<const Model> model;
  Digest digest;
};

LoadedFile LoadPreset(const ScenarioModelName& name) {
  const auto model = EngineModelOf(name.preset, name.seed)->model;
  return {nullptr, model, DigestOfBytes(model->file().bytes())};
}

LoadedFile LoadFile(const std::string& path) {
  static std::map<std::string, LoadedFile> kept;
  const auto found = kept.find(path);
  if (found != kept.end()) return found->second;
  LoadedFile loaded;
  loaded.file = GgufFile::Open(path);
  loaded.digest = DigestOfBytes(loaded.file->bytes());
  loaded.model = Model::Load(loaded.file);
  return kept.emplace(path, std::move(loaded)).first->second;
}

void CheckDigest(const Scenario& scenario, const std::string& path, const Digest& digest) {
  if (digest.Hex() == scenario.model.digest) return;
  throw Error({path,
               fmt::format("has the digest {}, case {} is of {}", digest.Hex(), scenario.name,
                           scenario.model.digest),
               "give the file that the case was made of"});
}

// The first prefill's cuts and the prompt have to be of one length: nothing is dropped or made up.
std::vector<int32_t> PromptOf(const Scenario& scenario, const GgufFile& file) {
  if (scenario.prompt.empty()) return {};
  std::vector<int32_t> ids = Tokenizer::Load(file)->EncodePrompt(scenario.prompt);
  const auto first = std::ranges::find(scenario.ops, EngineOpKind::kPrefill, &EngineOp::kind);
  int64_t taken = 0;
  if (first != scenario.ops.end()) {
    for (const int32_t cut : first->cuts) taken += cut;
  }
  if (taken != static_cast<int64_t>(ids.size())) {
    throw Error(
        {fmt::format("case {}", scenario.name),
         fmt::format("the prompt has {} tokens, the first prefill takes {}", ids.size(), taken),
         "correct the prefill's cuts"});
  }
  return ids;
}

void CheckSuits(const Scenario& scenario, const ModelConfig& config) {
  const std::string where = fmt::format("case {}", scenario.name);
  if (scenario.max_length > config.context_length) {
    throw Error({where,
                 fmt::format("max_length {} exceeds the context of {}, {}", scenario.max_length,
                             scenario.model.Description(), config.context_length),
                 "lower max_length"});
  }
  for (const std::string& cache : scenario.caches) {
    const std::string misfit = Misfit(ParseCacheSpec(cache), config.geometry(1));
    if (misfit.empty()) continue;
    throw Error({where, fmt::format("{} ({})", misfit, scenario.model.Description()),
                 "choose another cache or another model"});
  }
}

std::vector<std::string> MakeTags() {
  std::vector<std::string> tags;
  for (size_t c = 0; c < kEngineClasses; ++c) {
    const auto engine_class = static_cast<EngineClass>(c);
    // Threads change nothing: every case has to hold on any number.
    if (engine_class >= EngineClass::kThreads1 && engine_class <= EngineClass::kThreads7) continue;
    // Nor does a device: `golden check --device` is over every case.
    if (engine_class >= EngineClass::kOnDevice) continue;
    // A recording has one kind of cache at a time.
    if (engine_class == EngineClass::kBatchOfKinds) continue;
    tags.emplace_back(EngineClassName(engine_class));
  }
  for (const std::string_view tag :
       {"granted", "refused_by_gap", "refused_by_block", "refused_by_length", "refused_by_rows",
        "refused_by_window", "ends_before_block", "ends_at_block", "ends_behind_block",
        "fills_length", "whole_prefill", "chunked_prefill", "prompt", "model_file",
        "same_batch_reordered"}) {
    tags.emplace_back(tag);
  }
  return tags;
}

}  // namespace

std::string ScenarioModelName::Description() const {
  return preset.empty() ? file : fmt::format("{}, seed {}", preset, seed);
}

Digest ScenarioDigest(const Scenario& scenario) {
  DigestBuilder digest;
  digest.AddText(scenario.model.preset);
  digest.AddU32(static_cast<uint32_t>(scenario.model.seed));
  digest.AddText(scenario.model.digest);
  for (const int32_t number : {scenario.max_length, scenario.step, scenario.blocks}) {
    digest.AddU32(static_cast<uint32_t>(number));
  }
  digest.AddText(scenario.prompt);
  for (const ScenarioGap& gap : scenario.gaps) {
    digest.AddText(fmt::format("gap {} {} {}", gap.op, gap.after, gap.rows));
  }
  for (const EngineOp& op : scenario.ops) digest.AddText(EngineOpText(op));
  return digest.Finish();
}

EngineScript ScriptOf(const Scenario& scenario, const std::string& cache) {
  LS_CHECK(!scenario.model.preset.empty(), "case {}: a script has a preset", scenario.name);
  return {.model = scenario.model.preset,
          .seed = scenario.model.seed,
          .caches = {cache},
          .max_length = scenario.max_length,
          .step = scenario.step,
          .blocks = scenario.blocks,
          .ops = scenario.ops};
}

std::string RowsName(const CacheSpec& spec) {
  std::string name(RowTypeName(spec.key_type));
  if (spec.value_type != spec.key_type) name += fmt::format("+{}", RowTypeName(spec.value_type));
  if (spec.undo_rows > 0) {  // what it forgets shows in what it hashes and refuses
    name += "-" + spec.name;
    std::ranges::replace(name, '/', '-');
  }
  if (spec.window == 0) return name;
  name += fmt::format("-w{}", spec.window);
  return spec.window_type == RowType::kF16 ? name + "-f16" : name;
}

std::vector<std::string> DeviceCachesLike(const CacheSpec& spec) {
  if (spec.undo_rows > 0) return {};
  if (spec.window > 0 && spec.window_type != RowType::kF16) return {};
  if (RowsName(spec) == "f16") return {"cuda", "hybrid/1"};
  return {fmt::format("cuda-quantized/{}+{}/w{}", RowTypeName(spec.key_type),
                      RowTypeName(spec.value_type), spec.window)};
}

std::vector<RowsGroup> GroupsOf(const Scenario& scenario) {
  std::map<std::string, RowsGroup> groups;
  for (const std::string& cache : scenario.caches) {
    RowsGroup& group = groups[RowsName(ParseCacheSpec(cache))];
    group.caches.push_back(cache);
  }
  std::vector<RowsGroup> sorted;
  for (auto& [rows, group] : groups) {
    group.rows = rows;
    sorted.push_back(std::move(group));
  }
  return sorted;
}

ScenarioModel LoadScenarioModel(const Scenario& scenario, const std::string& models) {
  const bool preset = !scenario.model.preset.empty();
  const std::string path = preset ? "" : FilePath(scenario, models);
  const LoadedFile loaded = preset ? LoadPreset(scenario.model) : LoadFile(path);
  if (!preset) CheckDigest(scenario, path, loaded.digest);
  CheckSuits(scenario, loaded.model->config());
  return {loaded.model, loaded.digest, PromptOf(scenario, loaded.model->file())};
}

std::optional<std::string> WhyNotHere(const Scenario& scenario, const std::string& models) {
  // What lockstep comes with is here, or it is an error.
  if (!scenario.model.preset.empty() || FindStory(scenario) != nullptr) return std::nullopt;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(FilePath(scenario, models), ignored)) return std::nullopt;
  return fmt::format("there is no model file '{}' in '{}': set LOCKSTEP_MODELS to its folder",
                     scenario.model.file, models);
}

std::span<const std::string> CoverTags() {
  static const std::vector<std::string> tags = MakeTags();
  return tags;
}

}  // namespace lockstep
