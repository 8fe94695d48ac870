// lockstep bench: speed beside the machine's limits, and beside another engine on the same file.
// Comparing two builds: compare_command.cc.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "ci/lockstep/bench_commands.h"
#include "ci/lockstep/commands.h"
#include "ci/lockstep/model_source.h"
#include "ci/lockstep/number_list.h"
#include "ci/lockstep/shell_word.h"
#include "engine/kernels.h"
#include "engine/math.h"
#include "engine/story.h"
#include "engine/synthetic.h"
#include "engine/thread_team.h"
#include "reports/engine_bench.h"
#include "reports/engine_report.h"
#include "reports/kernel_bench.h"
#include "reports/peer_bench.h"
#include "reports/script_bench.h"
#include "reports/serve_bench.h"
#include "reports/write_bench.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kDefaultPreset = "smollm-135m";
constexpr int32_t kLongest = 1 << 24;  // positions, more than any model has
constexpr std::string_view kSmokePreset = "tiny-segments-6x2-q8_0";

struct BenchOptions {
  std::string what;
  ModelSource source;
  std::string isas;
  std::string threads = "1,2";
  std::string prefills = "128,512";
  std::string depths = "0,1024";
  std::string caches = "simple,quantized/f16+f16/w0";
  int32_t decode_tokens = 32;
  int32_t rounds = 0;  // 0: RoundsOf
  bool smoke = false;
  bool json = false;
  std::string markdown;
  std::string peer = LOCKSTEP_PEER_DEFAULT;
};

int32_t RoundsOf(const BenchOptions& options) {
  if (options.rounds > 0) return options.rounds;
  if (options.smoke) return 2;
  if (options.what == "kernels") return 5;
  return options.what == "peer" ? 7 : 11;
}

// LOCKSTEP_BENCH_MODEL, or the usual synthetic model, when nobody says which.
ModelSource SourceOf(const BenchOptions& options) {
  ModelSource source = options.source;
  if (source.given()) return source;
  const char* path = std::getenv("LOCKSTEP_BENCH_MODEL");
  if (options.smoke) {
    source.synthetic = kSmokePreset;
  } else if (path != nullptr && *path != '\0') {
    source.path = path;
  } else {
    source.synthetic = kDefaultPreset;
  }
  return source;
}

EngineBenchOptions EngineOptions(const BenchOptions& options) {
  EngineBenchOptions bench;
  bench.isas = SplitList(options.isas);
  bench.threads = NumberList("--threads", options.threads, 1, ThreadTeam::kMaxSize);
  bench.prefills = NumberList("--prefill", options.prefills, 1, kLongest);
  bench.depths = NumberList("--depth", options.depths, 0, kLongest);
  bench.caches = SplitList(options.caches);
  if (bench.threads.empty() || bench.caches.empty() ||
      (bench.prefills.empty() && bench.depths.empty())) {
    throw Error({"bench", "nothing is left to measure",
                 "give threads, a cache, and a length of --prefill or --depth"});
  }
  bench.decode_tokens = options.decode_tokens;
  bench.rounds = RoundsOf(options);
  bench.seed = options.source.seed;
  if (options.smoke) {
    if (bench.isas.empty()) {
      for (const KernelTable* table : AvailableKernels()) bench.isas.emplace_back(table->name);
    }
    bench.prefills = {16};
    bench.depths = {0, 20};
    bench.decode_tokens = 3;
    bench.limits = {.read_bytes = int64_t{4} << 20, .seconds = 1e-4, .attempts = 1};
  }
  if (isatty(STDERR_FILENO) != 0) {
    bench.on_sample = [](int32_t done, int32_t total) {
      fmt::print(stderr, "\r{} of {} samples{}", done, total, done == total ? "\n" : "");
    };
  }
  return bench;
}

// The kernel tables that were asked for, if any were.
std::string IsaArgument(const BenchOptions& options) {
  return options.isas.empty() ? "" : " --isa " + options.isas;
}

// The command without where its output goes.
std::string CommandLine(const BenchOptions& options, const ModelSource& source) {
  std::string line = fmt::format("lockstep bench {} {}", options.what, source.CommandLine());
  if (options.smoke) return line + " --smoke";
  return line + IsaArgument(options) +
         fmt::format(" --threads {} --prefill {} --depth {} --cache {} --decode {} --rounds {}",
                     options.threads, ShellWord(options.prefills), ShellWord(options.depths),
                     options.caches, options.decode_tokens, RoundsOf(options));
}

// What is measured, and how much of it the system put into huge pages: worth a third in decode.
std::string ModelLine(const ModelSource& source, const Model& model) {
  constexpr int64_t kMib = int64_t{1} << 20;
  return fmt::format("{}, {} MiB of weights, {} MiB of them in huge pages", source.Description(),
                     (model.weight_bytes() + kMib - 1) / kMib,
                     (model.HugePageBytes() + kMib - 1) / kMib);
}

ExitCode BenchEngine(const BenchOptions& options) {
  const ModelSource source = SourceOf(options);
  if (!options.json) fmt::print("seed {}\n", source.seed);
  const LoadedModel loaded = source.Load();
  const EngineBenchResult result = RunEngineBench(loaded.model, EngineOptions(options));
  const std::string command = CommandLine(options, source);
  const std::string model = ModelLine(source, *loaded.model);
  if (!options.markdown.empty()) {
    ReplaceSectionOfFile(options.markdown, "lockstep bench engine",
                         EngineMarkdown(result, command, model));
  }
  const std::vector<std::string> mismatches = DigestMismatches(result.points);
  if (options.json) {
    fmt::print("{}\n", EngineJson(result, command, model));
  } else {
    fmt::print("{}\n{}\n{}\n\n{}\n{}", command, model, MachineLine(),
               TableText(EngineTable(result)), TableText(LimitTable(result)));
    const Table regimes = RegimeTable(result);
    if (!regimes.rows.empty()) fmt::print("\n{}", TableText(regimes));
    fmt::print("\n{}\n", LoadLine(result));
    for (const std::string& line : mismatches) fmt::print("BITS CHANGED: {}\n", line);
    fmt::print("digest {}\n", DigestOfPoints(result.points).Hex());
  }
  return mismatches.empty() ? ExitCode::kHolds : ExitCode::kDifference;
}

PeerBenchOptions PeerOptions(const BenchOptions& options) {
  const EngineBenchOptions engine = EngineOptions(options);
  const std::filesystem::path folder = options.peer;
  if (!std::filesystem::exists(folder / "node_modules")) {
    throw Error({options.peer, "the other engine is not installed there",
                 "run reports/peer/install, or name its directory with --peer"});
  }
  PeerBenchOptions peer;
  peer.command = {"node", (folder / "llama.mjs").string()};
  peer.isa = options.isas;
  peer.cache = options.caches;
  peer.threads = engine.threads;
  peer.prefills = engine.prefills;
  peer.depths = engine.depths;
  peer.decode_tokens = engine.decode_tokens;
  peer.rounds = engine.rounds;
  peer.seed = engine.seed;
  peer.on_sample = engine.on_sample;
  return peer;
}

ExitCode BenchPeer(BenchOptions options) {
  if (options.caches == BenchOptions().caches) options.caches = PeerBenchOptions().cache;
  const ModelSource source = SourceOf(options);
  if (!options.json) fmt::print("seed {}\n", source.seed);
  // Refuses before any work what cannot be measured.
  PeerBenchOptions peer = PeerOptions(options);
  const TemporaryFolder written;
  ModelSource file = source;
  if (!source.story.empty()) {
    file.story.clear();
    file.path = StoryModelPath(StoryModelOf(source.story));
  } else if (source.path.empty()) {
    file.synthetic.clear();
    file.path = written.File("model.gguf");
    WriteWholeFile(file.path, MakeSyntheticImage(SyntheticPreset(source.synthetic), source.seed));
  }
  peer.model_path = file.path;
  const PeerBenchResult result = RunPeerBench(file.Load().model, peer);
  const std::string command = CommandLine(options, source);
  if (!options.markdown.empty()) {
    ReplaceSectionOfFile(options.markdown, "lockstep bench peer",
                         PeerMarkdown(result, command, source.Description()));
  }
  if (options.json) {
    fmt::print("{}\n", PeerJson(result, command, source.Description()));
  } else {
    fmt::print("{}\n{}\n{}\n\n{}\n{}\n{}\n", command, MachineLine(), result.peer,
               TableText(PeerTable(result)), TableText(ChangedBitsTable(result)),
               PeerLoadLine(result));
  }
  return result.ours_is_invariant() ? ExitCode::kHolds : ExitCode::kDifference;
}

ExitCode BenchKernels(const BenchOptions& options) {
  const EngineBenchOptions engine = EngineOptions(options);
  KernelBenchOptions bench;
  bench.isas = engine.isas;
  bench.rounds = engine.rounds;
  bench.seed = engine.seed;
  bench.limits = engine.limits;
  bench.on_sample = engine.on_sample;
  if (options.smoke) {
    bench.array_bytes = 1 << 16;
    bench.seconds = 0;
  }
  if (!options.json) fmt::print("seed {}\n", bench.seed);
  const std::vector<KernelResult> results = RunKernelBench(bench);
  const std::string command = fmt::format("lockstep bench kernels{} --seed {} --rounds {}",
                                          IsaArgument(options), bench.seed, bench.rounds);
  if (!options.markdown.empty()) {
    ReplaceSectionOfFile(options.markdown, "lockstep bench kernels",
                         KernelMarkdown(results, command));
  }
  const std::vector<std::string> mismatches = KernelMismatches(results);
  if (options.json) {
    fmt::print("{}\n", KernelJson(results, command));
  } else {
    fmt::print("{}\n{}\n\n{}", command, MachineLine(), TableText(KernelTableOf(results)));
    for (const std::string& line : mismatches) fmt::print("BITS CHANGED: {}\n", line);
  }
  return mismatches.empty() ? ExitCode::kHolds : ExitCode::kDifference;
}

// Of every registered cache.
ExitCode BenchScripts(const BenchOptions& options) {
  ScriptBenchOptions bench;
  if (options.rounds > 0) bench.rounds = options.rounds;
  if (options.smoke) bench.scripts = 20;
  fmt::print("seed {}, {} scripts a cache, the fastest of {} rounds in processor time\n",
             bench.seed, bench.scripts, bench.rounds);
  const std::vector<ScriptBenchResult> results = RunScriptBench(bench);
  fmt::print("{}\n\n{}digest {}\n", MachineLine(), TableText(ScriptTableOf(results)),
             ScriptBenchDigest(results).Hex());
  const bool holds = std::ranges::all_of(results, &ScriptBenchResult::holds);
  return holds ? ExitCode::kHolds : ExitCode::kDifference;
}

ExitCode BenchWrites(const BenchOptions& options) {
  WriteBenchOptions bench;
  if (options.caches != BenchOptions().caches) bench.caches = SplitList(options.caches);
  if (options.rounds > 0) bench.rounds = options.rounds;
  if (options.smoke) bench = {.caches = bench.caches, .tokens = 2, .rounds = 2};
  const std::vector<WriteBenchResult> results = RunWriteBench(bench);
  const std::string command = fmt::format("lockstep bench writes --rounds {}", bench.rounds);
  if (!options.markdown.empty()) {
    ReplaceSectionOfFile(options.markdown, "lockstep bench writes",
                         WriteMarkdown(results, command));
  }
  fmt::print("{}\n{}\n\n{}", command, MachineLine(), TableText(WriteTableOf(results)));
  return WriteBenchHolds(results) ? ExitCode::kHolds : ExitCode::kDifference;
}

ExitCode BenchServe(const BenchOptions& options) {
  const ModelSource source = SourceOf(options);
  const EngineBenchOptions engine = EngineOptions(options);
  ServeBenchOptions bench = {.threads = engine.threads,
                             .new_tokens = options.decode_tokens,
                             .seed = options.source.seed,
                             .on_sample = engine.on_sample};
  if (options.rounds > 0) bench.rounds = options.rounds;
  if (options.smoke) {
    bench.requests = {1, 3};
    bench.prompt_tokens = bench.new_tokens = 4;
    bench.rounds = 2;
  }
  const LoadedModel loaded = source.Load();
  const std::vector<ServeBenchResult> results = RunServeBench(loaded.model, bench);
  const std::string command =
      fmt::format("lockstep bench serve {} --threads {} --decode {} --rounds {}",
                  source.CommandLine(), options.threads, bench.new_tokens, bench.rounds);
  const std::string model = ModelLine(source, *loaded.model);
  if (!options.markdown.empty()) {
    ReplaceSectionOfFile(options.markdown, "lockstep bench serve",
                         ServeMarkdown(results, command, model));
  }
  fmt::print("{}\n{}\n{}\n\n{}", command, model, MachineLine(), TableText(ServeTableOf(results)));
  return ServeBenchHolds(results) ? ExitCode::kHolds : ExitCode::kDifference;
}

// A subcommand that measures. They share their flags, each with options of its own.
Command MeasureCommand(std::string_view name, std::string_view summary,
                       ExitCode (*run)(const BenchOptions&)) {
  const auto options = std::make_shared<BenchOptions>();
  options->what = name;
  std::vector<Flag> flags = options->source.Flags();
  flags.insert(
      flags.end(),
      {
          {"--isa", "NAMES", "kernel tables (default: LOCKSTEP_ISA, or the best)", &options->isas},
          {"--threads", "NUMBERS", "numbers of threads", &options->threads},
          {"--prefill", "NUMBERS", "lengths of prompts", &options->prefills},
          {"--depth", "NUMBERS", "rows in the cache when decoding begins", &options->depths},
          {"--cache", "NAMES", "KV caches", &options->caches},
          {"--decode", "N", "tokens of a decode sample",
           IntTarget{&options->decode_tokens, 1, 4096}},
          {"--rounds", "N",
           "rounds; each measures every point and limit once (0: engine 11, kernels 5, peer 7, "
           "scripts 5, serve 7, writes 15)",
           IntTarget{&options->rounds, 0, 10000}},
          {"--smoke", "", "a tiny setting, for tests", &options->smoke},
          {"--json", "", "one JSON object on standard output", &options->json},
          {"--markdown", "FILE", "put the tables into this page, in place of the last ones",
           &options->markdown},
          {"--peer", "DIR", "where the driver of the other engine is installed", &options->peer},
      });
  return {name, summary, std::move(flags),
          [options, run] {
            CheckFloatingPointEnvironment();
            return run(*options);
          },
          "Lists are separated by commas. Without a model: $LOCKSTEP_BENCH_MODEL, else synthetic\n"
          "smollm-135m. Exit code 1 when bits change between kernels, threads or rounds.\n"};
}

}  // namespace

Command BenchCommand() {
  return {
      .name = "bench",
      .summary = "Measure speed: engine, kernels, writes, serve, scripts, peer; compare two builds",
      .flags = {},
      .run = {},
      .subcommands = {
          MeasureCommand("engine", "Tokens a second beside the machine's limits", BenchEngine),
          MeasureCommand("kernels", "Each kernel beside the machine's limits", BenchKernels),
          MeasureCommand("writes", "What the direct write path saves", BenchWrites),
          MeasureCommand("serve", "What sharing steps gains", BenchServe),
          MeasureCommand("scripts", "Cache scripts, fully checked", BenchScripts),
          MeasureCommand("peer", "llama.cpp on the same file",
                         [](const BenchOptions& options) { return BenchPeer(options); }),
          BenchCompareCommand(), BenchHistoryCommand(), BenchSchemaCommand()}};
}

}  // namespace lockstep::cli
