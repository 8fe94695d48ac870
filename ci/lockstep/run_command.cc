// lockstep run: text in, text out. Standard output carries the generated text alone, as it is
// decoded; what it took goes to standard error. With --json everything is one object on standard
// output.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "caches/error.h"
#include "caches/registry.h"
#include "caches/simple_kv_cache.h"
#include "ci/lockstep/commands.h"
#include "ci/lockstep/run_options.h"
#include "ci/lockstep/shell_word.h"
#include "engine/generate.h"
#include "engine/kernels.h"
#include "engine/math.h"
#include "engine/row_watch.h"
#include "engine/stopwatch.h"
#include "engine/thread_team.h"
#include "engine/transformer.h"

namespace lockstep::cli {
namespace {

// The digest of the rows that a decode step wrote, or of the whole cache after it.
struct WatchEntry {
  int32_t position = 0;
  Digest digest;
  bool whole_cache = false;
};

// What a run used and what came out of it.
struct RunReport {
  std::vector<int32_t> prompt_tokens;
  GenerateResult generated;
  std::string text;
  std::string stop;  // "eos", "stop" or "length"
  std::string kernels;
  std::string cache;
  std::string device;  // empty: none
  DeviceUse device_use;
  std::vector<WatchEntry> watch;
  double load_ms = 0;
  double prefill_ms = 0;
  double decode_ms = 0;  // all tokens but the first, which the prefill gives

  double tokens_per_second() const {
    const double steps = static_cast<double>(generated.tokens.size()) - 1;
    return decode_ms > 0 ? steps / decode_ms * 1e3 : 0;
  }
};

// Throws Error for an unknown name, for a cache that cannot hold such heads, and for one with which
// a device that is asked for would have nothing to do.
std::unique_ptr<KvCache> MakeCache(const std::string& name, const KvGeometry& geometry,
                                   const std::shared_ptr<Device>& device) {
  const CacheSpec spec = ParseCacheSpec(name);
  CheckFits(spec, geometry, "--cache");
  if (device != nullptr && spec.device_layers == 0) {
    throw Error({"--device", fmt::format("cache '{}' has no rows on a device", name),
                 "leave out --cache or --device"});
  }
  return spec.make({.geometry = geometry, .sequences = 1, .device = device});
}

std::string CacheNameOf(const RunOptions& options, int32_t num_layers) {
  if (!options.cache.empty()) return options.cache;
  if (options.device.empty()) return "simple";
  return options.gpu_layers >= num_layers ? "cuda" : fmt::format("hybrid/{}", options.gpu_layers);
}

// Prints text as soon as it is whole UTF-8.
void PrintNow(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// A line on a terminal that says how far loading is, for files that take a while.
void PrintProgress(int64_t done, int64_t total) {
  constexpr int64_t kLargeFile = int64_t{256} << 20;
  if (total < kLargeFile || isatty(STDERR_FILENO) == 0) return;
  fmt::print(stderr, "\rloading {:3} % of {} MiB", done * 100 / total, total >> 20);
  if (done == total) fmt::print(stderr, "\r{:40}\r", "");
  std::fflush(stderr);
}

// Digests while decoding; printed as they come, but with --json.
class Watcher {
 public:
  Watcher(const RunOptions& options, const KvCache& cache, std::vector<WatchEntry>* entries)
      : options_(options), cache_(cache), entries_(*entries) {
    entries_.reserve(static_cast<size_t>(options.max_new_tokens) * 2);
  }

  void OnDecode(int32_t position) {
    Add({position, watch_.OfRows(cache_, {&position, 1}), false});
    ++steps_;
    if (options_.watch_full > 0 && steps_ % options_.watch_full == 0) {
      Add({position, DigestOfCache(cache_), true});
    }
  }

 private:
  void Add(const WatchEntry& entry) {
    entries_.push_back(entry);
    if (options_.json) return;
    fmt::print(stderr, "watch {} {} {}\n", entry.whole_cache ? "cache" : "rows ", entry.position,
               entry.digest.Hex());
  }

  const RunOptions& options_;
  const KvCache& cache_;
  std::vector<WatchEntry>& entries_;
  RowWatch watch_;
  int32_t steps_ = 0;
};

// Drafts of a smaller model, or of what the text had before.
class DraftsOfFlags {
 public:
  DraftsOfFlags(const RunOptions& options, const ModelConfig& target, int32_t positions) {
    if (!options.draft_model.empty() && options.draft_lookup > 0) {
      throw Error({"--draft-lookup", "a draft model is given too", "give one of them"});
    }
    if (options.draft_lookup > 0) lookup_.emplace(options.draft_lookup);
    if (options.draft_model.empty()) return;
    const auto model = Model::Load(GgufFile::Open(options.draft_model));
    const ModelConfig& config = model->config();
    if (config.vocab_size != target.vocab_size) {
      throw Error({"--draft",
                   fmt::format("{} has {} tokens, the model has {}", options.draft_model,
                               config.vocab_size, target.vocab_size),
                   "give a model of the same vocabulary"});
    }
    transformer_.emplace(model, TransformerOptions{.kernels = &SelectKernels(options.isa),
                                                   .threads = options.threads});
    cache_.emplace(config.geometry(std::min(positions, config.context_length)));
    model_.emplace(*transformer_, *cache_, options.decoding.Sampler(config.vocab_size));
  }

  // nullptr: none are wanted.
  DraftSource* source() {
    if (model_) return &*model_;
    return lookup_ ? &*lookup_ : nullptr;
  }

 private:
  std::optional<LookupDraftSource> lookup_;
  std::optional<Transformer> transformer_;
  std::optional<SimpleKvCache> cache_;
  std::optional<ModelDraftSource> model_;
};

RunReport Generate(const RunOptions& options) {
  RunReport report;
  Stopwatch load;
  ThreadTeam team(options.threads);
  const LoadedModel loaded = options.source.Load({.team = &team, .progress = PrintProgress});
  const Tokenizer& tokenizer = *loaded.tokenizer;
  const int32_t steps = options.max_new_tokens - 1;  // the prefill gives the first token
  report.prompt_tokens =
      options.source.EncodePrompt(loaded, options.prompt, options.shifts() ? 0 : steps);
  const ModelConfig& config = loaded.model->config();
  const int32_t positions = options.Positions(
      static_cast<int32_t>(report.prompt_tokens.size()) + steps, config.context_length);
  if (options.device.empty() && options.gpu_layers != RunOptions().gpu_layers) {
    throw Error({"--gpu-layers", "there is no device for them", "give --device too"});
  }
  const std::shared_ptr<Device> device =
      options.device.empty() ? nullptr : MakeDevice(options.device);
  const auto cache =
      MakeCache(CacheNameOf(options, config.num_layers), config.geometry(positions), device);
  const KernelTable& kernels = SelectKernels(options.isa);
  Transformer transformer(loaded.model, {.kernels = &kernels,
                                         .threads = options.threads,
                                         .device = device,
                                         .device_layers = options.gpu_layers});
  report.kernels = kernels.name;
  report.cache = cache->name();
  report.load_ms = load.seconds() * 1e3;

  transformer.SetAdapters(options.adapters.Load(config));
  Utf8Stream stream;
  StopText stops(options.decoding.stops);
  Stopwatch generation;
  GenerateOptions generate;
  generate.max_new_tokens = options.max_new_tokens;
  generate.sampler = options.decoding.Sampler(config.vocab_size);
  generate.seed = options.decoding.seed;
  DraftsOfFlags drafts(options, config, positions);
  generate.drafts = drafts.source();
  generate.draft_tokens = options.draft_tokens;
  generate.shift_keep = options.context_shift;
  generate.log_probabilities = options.decoding.log_probabilities;
  generate.logits_digest = !options.no_digest;
  if (tokenizer.eos()) generate.stop_tokens.push_back(*tokenizer.eos());
  generate.on_token = [&](int32_t token) {
    if (report.prefill_ms == 0) report.prefill_ms = generation.seconds() * 1e3;
    const std::string shown = stops.Push(tokenizer.Piece(token));
    report.text += shown;
    if (!options.json) PrintNow(stream.Push(shown));
  };
  generate.ended = [&] { return stops.stopped(); };
  Watcher watcher(options, *cache, &report.watch);
  if (options.watches()) {
    generate.on_decode = [&](int32_t position) { watcher.OnDecode(position); };
  }
  report.generated = Generate(transformer, *cache, report.prompt_tokens, generate);
  report.decode_ms = generation.seconds() * 1e3 - report.prefill_ms;
  if (device != nullptr) report.device = device->Description();
  report.device_use = transformer.device_use();
  report.stop = stops.stopped()                                     ? "stop"
                : tokenizer.eos() == report.generated.tokens.back() ? "eos"
                                                                    : "length";
  const std::string rest = stops.Flush();
  report.text += rest;
  if (!options.json) PrintNow(stream.Push(rest) + stream.Flush() + "\n");
  return report;
}

void PrintJson(const RunOptions& options, const RunReport& report) {
  nlohmann::ordered_json json = {
      {"model", options.source.Description()},
      {"prompt_tokens", report.prompt_tokens},
      {"tokens", report.generated.tokens},
      {"text", report.text},
      {"stop", report.stop},
      {"kernels", report.kernels},
      {"threads", options.threads},
      {"cache", report.cache},
      {"sample_seed", fmt::to_string(options.decoding.seed)},  // 64 bits are no JSON number
      {"command", options.CommandLine()},
      {"timings",
       {{"load_ms", report.load_ms},
        {"prefill_ms", report.prefill_ms},
        {"decode_ms", report.decode_ms},
        {"tokens_per_second", report.tokens_per_second()}}},
  };
  if (report.generated.drafted > 0) {
    json["drafts"] = {{"proposed", report.generated.drafted},
                      {"accepted", report.generated.accepted}};
  }
  if (report.generated.shifts > 0) {
    json["shifts"] = {{"count", report.generated.shifts}, {"deleted", report.generated.deleted}};
  }
  if (!options.no_digest) json["digest"] = report.generated.logits_digest.Hex();
  if (!report.device.empty()) {
    json["device"] = {{"name", report.device},
                      {"layer_steps", report.device_use.layer_steps},
                      {"graph_steps", report.device_use.graph_steps},
                      {"graphs_recorded", report.device_use.graphs_recorded}};
  }
  for (const TokenLogProbability& token : report.generated.log_probabilities) {
    json["logprobs"].push_back({{"chosen", token.chosen}, {"top", token.top}});
  }
  for (const WatchEntry& entry : report.watch) {
    json[entry.whole_cache ? "watch_full" : "watch"].push_back(
        {{"position", entry.position}, {"digest", entry.digest.Hex()}});
  }
  // Text may end inside a UTF-8 sequence: what is not one becomes U+FFFD.
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

void PrintStatistics(const RunOptions& options, const RunReport& report) {
  fmt::print(stderr,
             "{}: {} prompt tokens, {} new ({}), cache {}, kernels {}, threads {}\n"
             "load {:.1f} ms, prefill {:.1f} ms, decode {:.1f} ms, {:.1f} tokens/s\n",
             options.source.Description(), report.prompt_tokens.size(),
             report.generated.tokens.size(),
             report.stop == "eos"    ? "ended by the model"
             : report.stop == "stop" ? "ended by --stop"
                                     : "as many as asked",
             report.cache, report.kernels, options.threads, report.load_ms, report.prefill_ms,
             report.decode_ms, report.tokens_per_second());
  fmt::print(stderr, "sample seed {}\n", options.decoding.seed);
  if (!options.no_digest) {
    fmt::print(stderr, "logits digest {}\n", report.generated.logits_digest.Hex());
  }
  if (report.generated.drafted > 0) {
    fmt::print(stderr, "drafts: {} of {} accepted\n", report.generated.accepted,
               report.generated.drafted);
  }
  if (report.generated.shifts > 0) {
    fmt::print(stderr, "context: shifted {} times, {} positions deleted\n", report.generated.shifts,
               report.generated.deleted);
  }
  fmt::print(stderr, "repeat: {}\n", options.CommandLine());
  PrintLogProbabilities(report.generated);
  if (report.device.empty()) return;
  fmt::print(stderr, "{}: {} layer steps, {} steps replayed a graph, {} graphs recorded\n",
             report.device, report.device_use.layer_steps, report.device_use.graph_steps,
             report.device_use.graphs_recorded);
}

ExitCode Run(const RunOptions& given) {
  CheckFloatingPointEnvironment();
  const RunOptions options = Completed(given);
  const RunReport report = Generate(options);
  if (options.json) {
    PrintJson(options, report);
  } else {
    PrintStatistics(options, report);
  }
  return ExitCode::kHolds;
}

}  // namespace

Command RunCommand() {
  const auto options = std::make_shared<RunOptions>();
  std::vector<Flag> flags = options->source.Flags();
  flags.insert(
      flags.end(),
      {
          {"--prompt", "TEXT", "text to continue; without it and a model, a story begins",
           &options->prompt},
          {"-n,--decode", "N",
           "new tokens, fewer when the model ends its text (default: 64, without a model 240)",
           IntTarget{&options->max_new_tokens, 1}},
          {"--cache", "NAME",
           "KV cache; unless given, simple, or with a device the one with its rows there",
           &options->cache},
          {"--device", "NAME", "host-executor or cuda: where the first layers run",
           &options->device},
          {"--gpu-layers", "N", "layers on the device (default: all)",
           IntTarget{&options->gpu_layers, 1}},
          {"--context", "N", "positions; unless given, as many as the text needs",
           IntTarget{&options->context, 1}},
          {"--context-shift", "KEEP",
           "when they are used up, go on without half of what is behind the first KEEP tokens",
           IntTarget{&options->context_shift, 0}},
          {"--isa", "NAME", "kernels, instead of LOCKSTEP_ISA or the best", &options->isa},
          {"--threads", "N", "threads; unless given, the CPUs that the process may use, 8 at most",
           IntTarget{&options->threads, 1, ThreadTeam::kMaxSize}},
          {"--watch", "", "print a digest of the K and V rows of each decode step",
           &options->watch},
          {"--watch-full", "N", "the same, and one of the whole cache every N steps",
           IntTarget{&options->watch_full, 0}},
          {"--no-digest", "", "ask for tokens alone: on a device the logits stay there",
           &options->no_digest},
          {"--json", "", "one JSON object on standard output", &options->json},
          options->adapters.AsFlag(),
          {"--draft", "FILE", "a smaller model whose drafts are verified several at once",
           &options->draft_model},
          {"--draft-lookup", "N", "drafts are what followed the last N tokens before",
           IntTarget{&options->draft_lookup, 0}},
          {"--draft-tokens", "N", "drafts a step, at most",
           IntTarget{&options->draft_tokens, 1, 256}},
      });
  const std::vector<Flag> decoding = options->decoding.Flags();
  flags.insert(flags.end(), decoding.begin(), decoding.end());
  return {"run", "Continue a text (default: a story, by the model that lockstep comes with)",
          std::move(flags), [options] { return Run(*options); }};
}

}  // namespace lockstep::cli
