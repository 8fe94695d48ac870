// lockstep verify: the main job. Every cache on its direct write path against its legacy path
// against the model cache, over a model and a prompt; over two models when none is given. The table
// goes to standard output, progress to standard error; with --json everything is one object on
// standard output.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "caches/digest.h"
#include "caches/error.h"
#include "caches/registry.h"
#include "ci/lockstep/commands.h"
#include "ci/lockstep/decoding_flags.h"
#include "ci/lockstep/matrix_command.h"
#include "ci/lockstep/model_source.h"
#include "ci/lockstep/progress_line.h"
#include "ci/lockstep/shell_word.h"
#include "engine/kernels.h"
#include "engine/math.h"
#include "oracle/faulty_cache.h"
#include "oracle/verify.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

// What a call without arguments proves it on: trained weights with all that is done to a row in its
// slot, and the shape of a model that people run.
constexpr std::string_view kDefaultStory = "q8_0";
constexpr std::string_view kDefaultPreset = "smollm-135m";
constexpr std::string_view kDefaultPrompt = "Once upon a time";

struct VerifyFlags {
  ModelSource source;
  std::string prompt{kDefaultPrompt};
  int32_t decode_steps = MatrixFlags::kDefaultDecodeSteps;
  std::vector<std::string> caches;
  std::string isa;
  std::string device;
  int32_t gpu_layers = INT32_MAX;
  std::string plant;
  AdapterFlags adapters;
  bool json = false;
  MatrixFlags matrix;  // what only --matrix has

  // The command that repeats this run.
  std::string CommandLine() const {
    std::string line = fmt::format("lockstep verify {} --prompt {} -n {}", source.CommandLine(),
                                   ShellWord(prompt), decode_steps);
    for (const std::string& cache : caches) line += " --cache " + ShellWord(cache);
    if (!isa.empty()) line += " --isa " + ShellWord(isa);
    if (!device.empty()) line += " --device " + ShellWord(device);
    if (gpu_layers != INT32_MAX) line += fmt::format(" --gpu-layers {}", gpu_layers);
    line += adapters.CommandLine();
    if (!plant.empty()) line += " --plant " + ShellWord(plant);
    return line;
  }
};

std::string_view VerdictName(VerifyCell::Verdict verdict) {
  switch (verdict) {
    case VerifyCell::Verdict::kHolds:
      return "holds";
    case VerifyCell::Verdict::kDiffers:
      return "DIFFERS";
    case VerifyCell::Verdict::kNotApplicable:
      return "not applicable";
  }
  return "?";
}

std::string_view OutcomeName(VerifyOutcome outcome) {
  switch (outcome) {
    case VerifyOutcome::kHolds:
      return "holds";
    case VerifyOutcome::kDiffers:
      return "differs";
    case VerifyOutcome::kInconclusive:
      return "inconclusive";
  }
  return "?";
}

std::string_view KindName(Difference::Kind kind) {
  switch (kind) {
    case Difference::Kind::kBetweenSteps:
      return "between steps";
    case Difference::Kind::kStage:
      return "stage";
    case Difference::Kind::kCacheRow:
      return "cache row";
    case Difference::Kind::kLength:
      return "length";
    case Difference::Kind::kLogits:
      return "logits";
    case Difference::Kind::kStorage:
      return "storage";
    case Difference::Kind::kPath:
      return "path";
    case Difference::Kind::kException:
      return "exception";
  }
  return "?";
}

ExitCode CodeOf(VerifyOutcome outcome) {
  switch (outcome) {
    case VerifyOutcome::kHolds:
      return ExitCode::kHolds;
    case VerifyOutcome::kDiffers:
      return ExitCode::kDifference;
    case VerifyOutcome::kInconclusive:
      return ExitCode::kInconclusive;
  }
  return ExitCode::kInternal;
}

// A JSON number cannot say NaN or infinity, and should not round: the bits say everything.
ordered_json ValueJson(float value) {
  return {{"hex", fmt::format("{:08x}", CanonicalBits(value))},
          {"decimal", fmt::format("{}", value)}};
}

ordered_json DifferenceJson(const Difference& difference) {
  ordered_json json = {{"kind", KindName(difference.kind)}, {"step", difference.step}};
  if (difference.layer >= 0) json["layer"] = difference.layer;
  json["place"] = difference.place;
  if (difference.position >= 0) json["position"] = difference.position;
  if (difference.element >= 0) {
    json["element"] = difference.element;
    json["subject"] = ValueJson(difference.subject);
    json["oracle"] = ValueJson(difference.oracle);
    const auto ulps = UlpDistance(difference.subject, difference.oracle);
    json["ulps"] = ulps ? ordered_json(*ulps) : ordered_json();
  }
  json["sentence"] = difference.Sentence();
  return json;
}

ordered_json CellJson(const VerifyCell& cell) {
  ordered_json json = {{"cache", cell.cache},
                       {"write_path", cell.write_path},
                       {"against", cell.against},
                       {"verdict", VerdictName(cell.verdict)}};
  if (cell.verdict == VerifyCell::Verdict::kNotApplicable) {
    json["reason"] = cell.reason;
    return json;
  }
  const PathCounts& counts = cell.result.counts;
  json["logits_digest"] = cell.result.logits.Hex();
  json["cache_digest"] = cell.result.cache.Hex();
  json["tokens"] = cell.result.tokens;
  json["counts"] = {{"reserves_granted", counts.granted},
                    {"reserves_refused", counts.refused},
                    {"commits", counts.commits},
                    {"updates", counts.updates},
                    {"on_device", counts.on_device}};
  json["seconds"] = cell.result.seconds;
  if (cell.difference) json["difference"] = DifferenceJson(*cell.difference);
  return json;
}

ordered_json ResultJson(const VerifyFlags& flags, const VerifyOptions& options,
                        const VerifyResult& result) {
  ordered_json json = {{"model", flags.source.Description()},
                       {"prompt_tokens", options.prompt},
                       {"decode_steps", options.decode_steps},
                       {"kernels", options.kernels->name},
                       {"steps", result.steps},
                       {"outcome", OutcomeName(result.outcome)},
                       {"verdict", result.verdict},
                       {"command", flags.CommandLine()}};
  for (const VerifyCell& cell : result.cells) json["cells"].push_back(CellJson(cell));
  return json;
}

void PrintJson(const ordered_json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

void PrintHeading(const VerifyFlags& flags, const VerifyOptions& options) {
  fmt::print("lockstep verify: {}, kernels {}, {} prompt tokens, {} decode steps\n\n",
             flags.source.Description(), options.kernels->name, options.prompt.size(),
             options.decode_steps);
  std::fflush(stdout);
}

// Digests are cut to their first 16 digits here: --json has all 32.
void PrintCell(const VerifyCell& cell) {
  if (cell.verdict == VerifyCell::Verdict::kNotApplicable) {
    fmt::print("{:<27} {:<15} {}: {}\n", cell.cache, cell.write_path, VerdictName(cell.verdict),
               cell.reason);
    return;
  }
  const PathCounts& counts = cell.result.counts;
  fmt::print("{:<27} {:<15} {:>8} {:>8} {:>8} {:>8} {:>8.2f}  {:.16} {:.16}  {}\n", cell.cache,
             cell.write_path, counts.granted, counts.refused, counts.commits, counts.updates,
             cell.result.seconds, cell.result.logits.Hex(), cell.result.cache.Hex(),
             VerdictName(cell.verdict));
}

void PrintTable(const VerifyFlags& flags, const VerifyResult& result) {
  fmt::print("{:<27} {:<15} {:>8} {:>8} {:>8} {:>8} {:>8}  {:<16} {:<16}\n", "cache", "write path",
             "reserved", "refused", "commits", "updates", "seconds", "logits", "cache rows");
  for (const VerifyCell& cell : result.cells) PrintCell(cell);
  for (const VerifyCell& cell : result.cells) {
    if (!cell.difference) continue;
    fmt::print("\n{}, {}, against {}, first differs at\n  {}\n", cell.cache, cell.write_path,
               cell.against, cell.difference->Sentence());
  }
  fmt::print("\n{}\n", result.verdict);
  if (result.outcome != VerifyOutcome::kHolds) fmt::print("repeat: {}\n", flags.CommandLine());
}

// The names that --cache and --plant take.
std::string Details() {
  std::string text = "Caches (and the same with other block sizes, row types and windows):";
  for (const CacheSpec& spec : AllCaches()) text += fmt::format("\n  {}", spec.name);
  text += "\n\nFaults to plant (fields in brackets may be left out):\n";
  for (const PlantInfo& plant : KnownPlants()) {
    text += fmt::format("  {}\n      {}\n", plant.Usage(), plant.what);
  }
  return text + MatrixDetails();
}

ExitCode RunMatrixOf(const VerifyFlags& flags) {
  if (!flags.plant.empty()) {
    throw Error({"--plant", "the matrix has controls instead", "give --control"});
  }
  MatrixFlags matrix = flags.matrix;
  matrix.source = flags.source;
  matrix.adapters = flags.adapters;
  if (flags.prompt != kDefaultPrompt) matrix.prompt = flags.prompt;  // else tokens of its own
  matrix.decode_steps = flags.decode_steps;
  matrix.caches = flags.caches;
  matrix.isa = flags.isa;
  matrix.json = flags.json;
  return RunMatrixCommand(matrix);
}

// One model. With --json what was found is appended to `runs`, else printed.
VerifyOutcome VerifyOne(const VerifyFlags& flags, ordered_json* runs) {
  const KernelTable& kernels = SelectKernels(flags.isa);
  const LoadedModel loaded = flags.source.Load();
  VerifyOptions options;
  options.model = loaded.model;
  options.kernels = &kernels;
  options.prompt = flags.source.EncodePrompt(loaded, flags.prompt, flags.decode_steps);
  options.decode_steps = flags.decode_steps;
  options.caches = flags.caches;
  options.device = flags.device;
  options.device_layers = flags.gpu_layers;
  options.plant = flags.plant;
  options.adapters = flags.adapters.Load(loaded.model->config());
  // The first step says that everything given could be used: the heading comes then, so that a
  // refusal leaves standard output empty.
  ProgressLine line;
  bool headed = flags.json;
  options.on_progress = [&](const std::string& text) {
    if (!std::exchange(headed, true)) PrintHeading(flags, options);
    line.Show(text);
  };
  const VerifyResult result = Verify(options);
  line.Clear();

  if (flags.json) {
    runs->push_back(ResultJson(flags, options, result));
  } else {
    PrintTable(flags, result);
  }
  return result.outcome;
}

// The given model, or the default ones. An adapter fits one shape and a fault may name a layer:
// both mean the larger one.
std::vector<ModelSource> SourcesOf(const VerifyFlags& flags) {
  if (flags.source.given()) return {flags.source};
  ModelSource story = flags.source, preset = flags.source;
  story.story = kDefaultStory;
  preset.synthetic = kDefaultPreset;
  if (!flags.plant.empty() || !flags.adapters.files.empty()) return {preset};
  return {story, preset};
}

// A difference is worse than no proof, and no proof worse than one.
VerifyOutcome Worse(VerifyOutcome a, VerifyOutcome b) {
  for (const VerifyOutcome outcome : {VerifyOutcome::kDiffers, VerifyOutcome::kInconclusive}) {
    if (a == outcome || b == outcome) return outcome;
  }
  return VerifyOutcome::kHolds;
}

// Several models in the form of one: whoever reads cells and outcome need not know. What belongs to
// a model alone is in `runs`, and each cell names its model.
ordered_json JoinedJson(const ordered_json& runs, VerifyOutcome outcome) {
  std::vector<std::string> models, verdicts, commands;
  ordered_json cells = ordered_json::array(), rest = ordered_json::array();
  for (ordered_json run : runs) {
    models.push_back(run["model"].get<std::string>());
    verdicts.push_back(run["verdict"].get<std::string>());
    commands.push_back(run["command"].get<std::string>());
    for (ordered_json cell : run["cells"]) {
      cell["model"] = run["model"];
      cells.push_back(std::move(cell));
    }
    run.erase("cells");
    rest.push_back(std::move(run));
  }
  return {{"model", fmt::format("{}", fmt::join(models, "; "))},
          {"kernels", runs.front()["kernels"]},
          {"outcome", OutcomeName(outcome)},
          {"verdict", fmt::format("{}", fmt::join(verdicts, "; "))},
          {"command", fmt::format("{}", fmt::join(commands, " && "))},
          {"runs", std::move(rest)},
          {"cells", std::move(cells)}};
}

ExitCode RunVerify(VerifyFlags flags) {
  if (flags.matrix.matrix) return RunMatrixOf(flags);
  if (const std::string flag = flags.matrix.NeedsMatrix(); !flag.empty()) {
    throw Error({flag, "is a flag of the determinism matrix", "give --matrix too"});
  }
  CheckFloatingPointEnvironment();
  if (flags.device.empty() && flags.gpu_layers != VerifyFlags().gpu_layers) {
    throw Error({"--gpu-layers", "there is no device for them", "give --device too"});
  }
  if (!flags.device.empty()) MakeDevice(flags.device);  // there is none: said before any work
  const std::vector<ModelSource> sources = SourcesOf(flags);
  VerifyOutcome outcome = VerifyOutcome::kHolds;
  ordered_json runs = ordered_json::array();
  for (const ModelSource& source : sources) {
    flags.source = source;
    if (!flags.json && &source != &sources.front()) fmt::print("\n");
    outcome = Worse(outcome, VerifyOne(flags, &runs));
  }
  if (flags.json) PrintJson(sources.size() == 1 ? runs.front() : JoinedJson(runs, outcome));
  return CodeOf(outcome);
}

}  // namespace

Command VerifyCommand() {
  const auto values = std::make_shared<VerifyFlags>();
  std::vector<Flag> flags = values->source.Flags();
  flags.insert(
      flags.end(),
      {
          {"--prompt", "TEXT", "text of the prefill", &values->prompt},
          {"-n,--decode", "N", "decode steps after the prefill",
           IntTarget{&values->decode_steps, 1}},
          {"--cache", "NAME", "a cache to verify, once for each (default: all)", &values->caches},
          {"--isa", "NAME", "kernels, instead of LOCKSTEP_ISA or the best", &values->isa},
          {"--device", "NAME",
           "host-executor or cuda: run the engine there, for caches with rows on it",
           &values->device},
          {"--gpu-layers", "N", "layers on the device, at most (default: all)",
           IntTarget{&values->gpu_layers, 1}},
          {"--plant", "FAULT", "a fault to plant into the direct side, to see it found",
           &values->plant},
          {"--json", "", "one JSON object on standard output", &values->json},
          values->adapters.AsFlag(),
      });
  const std::vector<Flag> matrix = values->matrix.Flags();
  flags.insert(flags.end(), matrix.begin(), matrix.end());
  return {"verify",
          "Prove the direct write path of every cache, bit for bit (default models: "
          "the story model and synthetic smollm-135m)",
          std::move(flags), [values] { return RunVerify(*values); }, Details()};
}

}  // namespace lockstep::cli
