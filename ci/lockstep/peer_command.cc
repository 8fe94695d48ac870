// lockstep peer: whole engines. Another one's opinion of what models compute, what another one is
// invariant under, and lockstep's own engine as a subject of the same.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>

#include "caches/error.h"
#include "caches/temporary_folder.h"
#include "ci/lockstep/commands.h"
#include "ci/lockstep/number_list.h"
#include "ci/lockstep/progress_line.h"
#include "ci/lockstep/shell_word.h"
#include "ci/lockstep/terminal.h"
#include "engine/math.h"
#include "engine/synthetic.h"
#include "engine/thread_team.h"
#include "oracle/matrix_controls.h"
#include "reports/peer_check.h"
#include "reports/peer_matrix.h"
#include "reports/peer_serve.h"

namespace lockstep::cli {
namespace {

struct PeerFlags {
  std::vector<std::string> files;
  std::vector<std::string> presets;
  uint64_t seed = 1;
  std::string engine;
  std::string peer = LOCKSTEP_PEER_DEFAULT;
  std::vector<std::string> options;
  int32_t timeout_seconds = 120;
  int32_t random_tokens = 24;
  int32_t greedy_tokens = 24;
  int32_t tokens = 48;
  std::vector<std::string> axes;
  std::string threads = "2";
  std::string plant;
  bool json = false;
  std::string markdown;
};

// The engine's command line as words.
std::vector<std::string> EngineCommandOf(const PeerFlags& flags) {
  if (!flags.engine.empty()) return {"sh", "-c", "exec " + flags.engine};
  const std::filesystem::path folder = flags.peer;
  if (!std::filesystem::exists(folder / "node_modules")) {
    throw Error({flags.peer, "llama.cpp is not installed there",
                 "run reports/peer/install, name its directory with --peer, or give another "
                 "--engine"});
  }
  return {"node", (folder / "engine.mjs").string()};
}

std::vector<EngineOption> EngineOptionsOf(const PeerFlags& flags) {
  std::vector<EngineOption> options;
  for (const std::string& text : flags.options) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw Error({"--option", fmt::format("'{}' is not NAME=VALUE", text), "see the engine's"});
    }
    options.push_back({text.substr(0, equals), text.substr(equals + 1)});
  }
  return options;
}

// The command without where its output goes.
std::string CommandLine(const char* what, const PeerFlags& flags) {
  std::string line = fmt::format("lockstep peer {}", what);
  const auto add = [&](const char* name, const std::string& value) {
    line += fmt::format("{} {}", name, ShellWord(value));
  };
  for (const std::string& file : flags.files) add("", file);
  for (const std::string& preset : flags.presets) add(" --synthetic", preset);
  if (flags.seed != 1) line += fmt::format(" --seed {}", flags.seed);
  if (!flags.engine.empty()) add(" --engine", flags.engine);
  for (const std::string& option : flags.options) add(" --option", option);
  if (!flags.plant.empty()) add(" --plant", flags.plant);
  for (const std::string& axis : flags.axes) add(" --axis", axis);
  if (flags.threads != PeerFlags().threads) add(" --threads", flags.threads);
  if (flags.tokens != PeerFlags().tokens) line += fmt::format(" --tokens {}", flags.tokens);
  if (flags.random_tokens != PeerFlags().random_tokens) {
    line += fmt::format(" --random {}", flags.random_tokens);
  }
  if (flags.greedy_tokens != PeerFlags().greedy_tokens) {
    line += fmt::format(" --greedy {}", flags.greedy_tokens);
  }
  return line;
}

std::vector<PeerCheckModel> ModelsOf(const PeerFlags& flags, const std::string& folder) {
  std::vector<PeerCheckModel> models;
  for (const std::string& preset : flags.presets) {
    models.push_back(SyntheticPeerModel(SyntheticPreset(preset), flags.seed, folder));
  }
  if (models.empty() && flags.files.empty()) {
    for (const SyntheticSpec& spec : SyntheticPresets()) {
      models.push_back(SyntheticPeerModel(spec, flags.seed, folder));
    }
  }
  for (const std::string& file : flags.files) {
    models.push_back({.name = std::filesystem::path(file).filename().string(),
                      .path = file,
                      .file = GgufFile::Open(file)});
  }
  return models;
}

ExitCode Check(const PeerFlags& flags) {
  if (!flags.json) fmt::print("seed {}\n", flags.seed);
  const TemporaryFolder folder;
  PeerCheckOptions options;
  options.command = EngineCommandOf(flags);
  options.timeout_seconds = flags.timeout_seconds;
  for (const EngineOption& option : EngineOptionsOf(flags)) options.options.push_back(option);
  options.random_tokens = flags.random_tokens;
  options.greedy_tokens = flags.greedy_tokens;
  options.seed = flags.seed;
  if (!flags.plant.empty()) options.plant = ParsePeerPlant(flags.plant).kind;
  ProgressLine progress;
  options.on_progress = [&](const std::string& text) { progress.Show(text); };
  const PeerCheckResult result = RunPeerCheck(ModelsOf(flags, folder.path().string()), options);
  progress.Clear();
  const std::string command = CommandLine("check", flags);
  if (!flags.markdown.empty()) {
    ReplaceSectionOfFile(flags.markdown,
                         flags.files.empty() ? "lockstep peer check" : "lockstep peer check FILE",
                         PeerCheckMarkdown(result, command));
  }
  if (flags.json) {
    fmt::print("{}\n", PeerCheckJson(result, command));
  } else {
    fmt::print("{}\n\n{}", result.engine, TableText(PeerCheckTable(result)));
    for (const PeerCheckRow& row : result.rows) {
      if (!row.detail.empty()) fmt::print("\n{}: {}\n", row.model, row.detail);
    }
    fmt::print("\n{}\nrepeat: {}\n", PeerCheckVerdict(result), command);
  }
  if (result.differs()) return ExitCode::kDifference;
  return result.compared() ? ExitCode::kHolds : ExitCode::kInconclusive;
}

// Kinds of weights whose kernels differ.
constexpr std::string_view kMatrixPresets[] = {"tiny-gqa-9x3-q8_0", "tiny-mha-4x4-f32",
                                               "tiny-mqa-4x1-f16", "tiny-llama3-4x2-bf16",
                                               "tiny-untied-4x2-q4_k+q6_k"};

ExitCode Matrix(PeerFlags flags) {
  if (!flags.json) fmt::print("seed {}\n", flags.seed);
  const TemporaryFolder folder;
  EngineMatrixOptions options;
  options.command = EngineCommandOf(flags);
  options.timeout_seconds = flags.timeout_seconds;
  options.options = EngineOptionsOf(flags);
  options.tokens = flags.tokens;
  options.axes = flags.axes;
  options.threads = NumberList("--threads", flags.threads, 1, ThreadTeam::kMaxSize);
  options.seed = flags.seed;
  ProgressLine progress;
  options.on_progress = [&](const std::string& text) { progress.Show(text); };
  const std::string command = CommandLine("matrix", flags);
  if (flags.presets.empty() && flags.files.empty()) {
    flags.presets.assign(std::begin(kMatrixPresets), std::end(kMatrixPresets));
  }
  std::vector<EngineMatrixModel> models;
  for (const PeerCheckModel& model : ModelsOf(flags, folder.path().string())) {
    models.push_back({model.name, model.path});
  }
  const EngineMatrix matrix = RunEngineMatrix(models, options);
  progress.Clear();
  if (!flags.markdown.empty()) {
    ReplaceSectionOfFile(flags.markdown, "lockstep peer matrix",
                         EngineMatrixMarkdown(matrix, command));
  }
  if (flags.json) {
    fmt::print("{}\n", EngineMatrixJson(matrix, command));
  } else {
    fmt::print("{}\n\n{}", matrix.engine, TableText(EngineMatrixTable(matrix)));
    for (const EngineCell& cell : matrix.cells) {
      if (!cell.detail.empty()) fmt::print("\n{} {}: {}\n", cell.axis, cell.value, cell.detail);
    }
    fmt::print("\n{}\nrepeat: {}\n", EngineMatrixVerdict(matrix), command);
  }
  if (!matrix.holds()) return ExitCode::kDifference;
  return matrix.compared() ? ExitCode::kHolds : ExitCode::kInconclusive;
}

std::vector<Flag> SharedFlags(PeerFlags* flags) {
  return {{"files", "FILE", "GGUF models", &flags->files},
          {"--synthetic", "PRESET", "a model made from a seed, once for each", &flags->presets},
          {"--seed", "SEED", "seed of the synthetic models and of the tokens", &flags->seed},
          {"--engine", "COMMAND", "an engine that speaks the protocol (default: llama.cpp)",
           &flags->engine},
          {"--peer", "DIR", "where reports/peer/install put llama.cpp", &flags->peer},
          {"--option", "NAME=VALUE", "an option of the engine, once for each", &flags->options},
          {"--timeout", "SECONDS", "how long an answer may take",
           IntTarget{&flags->timeout_seconds, 1, 86400}},
          {"--json", "", "one JSON object on standard output", &flags->json},
          {"--markdown", "FILE", "put the table into this page, in place of the last one",
           &flags->markdown}};
}

Command CheckCommand() {
  const auto flags = std::make_shared<PeerFlags>();
  std::vector<Flag> list = SharedFlags(flags.get());
  list.push_back(
      {"--random", "N", "random tokens of the text", IntTarget{&flags->random_tokens, 1, 4096}});
  list.push_back({"--greedy", "N", "tokens behind them that lockstep chooses",
                  IntTarget{&flags->greedy_tokens, 0, 4096}});
  list.push_back({"--plant", "NAME", "a fault in lockstep's side, to see it found", &flags->plant});
  return {"check", "Compare distributions, greedy tokens and token ids with another engine's",
          std::move(list), [flags] { return Check(*flags); },
          "Without models: every synthetic preset.\n"};
}

Command EngineMatrixCommand() {
  const auto flags = std::make_shared<PeerFlags>();
  std::vector<Flag> list = SharedFlags(flags.get());
  list.push_back({"--tokens", "N", "tokens of the text", IntTarget{&flags->tokens, 16, 4096}});
  list.push_back({"--threads", "NUMBERS",
                  "of the axis threads; engines that spin are slow on more "
                  "than there are processors",
                  &flags->threads});
  list.push_back({"--axis", "AXIS", "an axis, once for each (default: all)", &flags->axes});
  std::string details = "Axes:\n";
  for (const EngineAxis& axis : EngineAxes()) {
    details += fmt::format("  {:<10} {}\n", axis.name, axis.what);
  }
  return {"matrix", "What an engine is invariant under, bit for bit", std::move(list),
          [flags] { return Matrix(*flags); }, details};
}

void Serve(const std::string& control) {
  EngineServerOptions options;
  if (!control.empty()) options.control = &ParseMatrixControl(control);
  EngineServer server(options);
  while (!server.ended()) {
    const auto line = ReadInputLine();
    if (!line) break;
    const std::string answer = server.Answer(*line);
    std::fwrite(answer.data(), 1, answer.size(), stdout);
    std::fflush(stdout);
  }
}

Command ServeCommand() {
  const auto control = std::make_shared<std::string>();
  return {"serve",
          "Speak the engine protocol on standard input and output",
          {{"--control", "NAME", "a fault: a control of the determinism matrix", control.get()}},
          [control] {
            CheckFloatingPointEnvironment();
            Serve(*control);
            return ExitCode::kHolds;
          },
          "The protocol: docs/engine-protocol.md. Controls: lockstep verify --help.\n"};
}

}  // namespace

Command PeerCommand() {
  return {.name = "peer",
          .summary = "Other engines on the same models: check, matrix; serve lockstep's own",
          .flags = {},
          .run = {},
          .subcommands = {CheckCommand(), EngineMatrixCommand(), ServeCommand()}};
}

}  // namespace lockstep::cli
