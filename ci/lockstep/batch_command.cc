// lockstep batch: continues each line of a file, one after another or many at a time
// (engine/scheduler.h). Texts that begin the same have the rows of that beginning computed once
// (engine/prefix_cache.h). Standard output carries one JSON object a line, in the order of the
// file; everything else goes to standard error.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/paged_kv_cache.h"
#include "caches/random.h"
#include "caches/simple_kv_cache.h"
#include "ci/lockstep/commands.h"
#include "ci/lockstep/decoding_flags.h"
#include "ci/lockstep/model_source.h"
#include "ci/lockstep/progress_line.h"
#include "engine/generate.h"
#include "engine/kernels.h"
#include "engine/math.h"
#include "engine/prefix_cache.h"
#include "engine/scheduler.h"
#include "engine/stopwatch.h"
#include "engine/thread_team.h"
#include "engine/transformer.h"

namespace lockstep::cli {
namespace {

struct BatchOptions {
  ModelSource source;
  AdapterFlags adapters;
  DecodingFlags decoding;
  std::string prompts;  // a path
  std::string isa;
  int32_t max_new_tokens = 16;
  int32_t block_size = 16;
  int32_t blocks = 0;     // 0: kTexts of the longest text, or as many as run
  int32_t parallel = 0;   // texts at a time; 0: one after another
  int32_t budget = 0;     // rows of a step; 0: those of the scheduler
  uint64_t arrivals = 0;  // 0: all at once
  int32_t threads = DefaultThreads();
  bool check = false;

  // Of one text's draws, whatever the others are.
  uint64_t SeedOf(int32_t line) const {
    return Random(decoding.seed).Split(static_cast<uint64_t>(line)).Next();
  }
};

constexpr int64_t kTexts = 8;

struct Prompt {
  int32_t line = 0;
  std::vector<int32_t> ids;
};

// The lines that are not empty. Throws Error for a file without one, and for a line that does not
// fit the context.
std::vector<Prompt> ReadPrompts(const BatchOptions& options, const LoadedModel& loaded) {
  std::istringstream file(ReadWholeTextFile(options.prompts));
  std::vector<Prompt> prompts;
  const int32_t context = loaded.model->config().context_length;
  std::string text;
  for (int32_t line = 1; std::getline(file, text); ++line) {
    if (text.ends_with('\r')) text.pop_back();
    if (text.empty()) continue;
    prompts.push_back({line, loaded.tokenizer->EncodePrompt(text)});
    const int64_t needed = std::ssize(prompts.back().ids) + options.max_new_tokens - 1;
    if (needed <= context) continue;
    throw Error({fmt::format("{}:{}", options.prompts, line),
                 fmt::format("the text and {} new tokens need {} positions, the model has {}",
                             options.max_new_tokens, needed, context),
                 "shorten the text or lower -n"});
  }
  if (prompts.empty()) {
    throw Error({options.prompts, "it has no text", "give one text a line"});
  }
  return prompts;
}

// The engine and the caches of all texts.
class Batch {
 public:
  Batch(const BatchOptions& options, const LoadedModel& loaded, int32_t positions)
      : options_(options),
        tokenizer_(*loaded.tokenizer),
        geometry_(loaded.model->config().geometry(positions)),
        transformer_(loaded.model,
                     {.kernels = &SelectKernels(options.isa), .threads = options.threads}),
        root_({.geometry = geometry_, .block_size = options.block_size, .pool = Pool(options)}),
        index_(root_),
        prefixes_(transformer_, index_) {
    generate_.max_new_tokens = options.max_new_tokens;
    generate_.sampler = options.decoding.Sampler(loaded.model->config().vocab_size);
    generate_.log_probabilities = options.decoding.log_probabilities;
    if (tokenizer_.eos()) generate_.stop_tokens.push_back(*tokenizer_.eos());
    transformer_.SetAdapters(options.adapters.Load(loaded.model->config()));
  }

  GenerateResult Run(const Prompt& prompt) {
    const std::unique_ptr<KvCache> cache = root_.Fork();
    generate_.prefixes = &prefixes_;
    return RunOn(*cache, prompt);
  }

  // The same from nothing, on a cache that shares nothing.
  GenerateResult RunAlone(const Prompt& prompt) {
    SimpleKvCache cache(geometry_);
    generate_.prefixes = nullptr;
    return RunOn(cache, prompt);
  }

  void Print(const Prompt& prompt, const GenerateResult& result) const {
    StopText stops(options_.decoding.stops);
    std::string text;
    for (const int32_t token : result.tokens) text += stops.Push(tokenizer_.Piece(token));
    const char* stop = stops.stopped()                            ? "stop"
                       : result.tokens.back() == tokenizer_.eos() ? "eos"
                                                                  : "length";
    text += stops.Flush();
    nlohmann::ordered_json json = {{"line", prompt.line},
                                   {"prompt_tokens", prompt.ids.size()},
                                   {"attached", result.attached},
                                   {"tokens", result.tokens},
                                   {"text", text},
                                   {"stop", stop},
                                   {"sample_seed", fmt::to_string(options_.SeedOf(prompt.line))},
                                   {"digest", result.logits_digest.Hex()}};
    for (const TokenLogProbability& token : result.log_probabilities) {
      json["logprobs"].push_back({{"chosen", token.chosen}, {"top", token.top}});
    }
    fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    std::fflush(stdout);
  }

  const PrefixCounters& counters() const { return index_.counters(); }

  Scheduler MakeScheduler() {
    SchedulerOptions options = {.max_running = options_.parallel, .prefixes = &prefixes_};
    if (options_.budget > 0) options.step_tokens = options.chunk_tokens = options_.budget;
    return Scheduler(transformer_, root_, options);
  }

  ServeRequest RequestOf(const Prompt& prompt) const {
    const auto adapters = transformer_.adapters();
    return {.prompt = prompt.ids,
            .max_new_tokens = generate_.max_new_tokens,
            .sampler = generate_.sampler,
            .seed = options_.SeedOf(prompt.line),
            .stop_tokens = generate_.stop_tokens,
            .stops = options_.decoding.stops,
            .tokenizer = &tokenizer_,
            .log_probabilities = generate_.log_probabilities,
            .adapters = {adapters.begin(), adapters.end()}};
  }

 private:
  GenerateResult RunOn(KvCache& cache, const Prompt& prompt) {
    StopText stops(options_.decoding.stops);
    GenerateOptions generate = generate_;
    generate.seed = options_.SeedOf(prompt.line);
    generate.on_token = [&](int32_t token) { stops.Push(tokenizer_.Piece(token)); };
    generate.ended = [&] { return stops.stopped(); };
    return Generate(transformer_, cache, prompt.ids, generate);
  }

  // One text always fits: whatever blocks others left are given up for it.
  std::shared_ptr<BlockPool> Pool(const BatchOptions& options) const {
    const int32_t needed = BlocksForRows(geometry_.max_length, options.block_size);
    const int64_t texts = std::max<int64_t>(kTexts, options.parallel);
    const int64_t wanted = options.blocks == 0 ? needed * texts : options.blocks;
    if (wanted < needed || wanted > INT32_MAX) {
      throw Error({"--blocks",
                   fmt::format("{} blocks of {} positions, the longest text needs {}", wanted,
                               options.block_size, needed),
                   "give as many at least"});
    }
    return std::make_shared<BlockPool>(BlockPoolOptions{.geometry = geometry_,
                                                        .block_size = options.block_size,
                                                        .num_blocks = static_cast<int32_t>(wanted),
                                                        .shuffle_seed = 0x5eed});
  }

  const BatchOptions& options_;
  const Tokenizer& tokenizer_;
  KvGeometry geometry_;
  Transformer transformer_;
  PagedKvCache root_;
  PrefixIndex index_;
  PrefixCache prefixes_;
  GenerateOptions generate_;
};

// Whether the text alone has the same tokens and logits; says so where it has not.
bool IsAsAlone(const BatchOptions& options, Batch* batch, const Prompt& prompt,
               const GenerateResult& result) {
  const GenerateResult alone = batch->RunAlone(prompt);
  if (alone.logits_digest == result.logits_digest && alone.tokens == result.tokens &&
      alone.log_probabilities == result.log_probabilities) {
    return true;
  }
  fmt::print(stderr, "{}:{}: with {} rows attached it is another text: logits {} against {}\n",
             options.prompts, prompt.line, result.attached, result.logits_digest.Hex(),
             alone.logits_digest.Hex());
  return false;
}

// `proved` is whether there was anything that could have differed.
ExitCode Verdict(const BatchOptions& options, int32_t differences, bool proved,
                 std::string_view otherwise) {
  if (!options.check) return ExitCode::kHolds;
  if (differences > 0) return ExitCode::kDifference;
  if (!proved) {
    fmt::print(stderr, "nothing was compared: {}\n", otherwise);
    return ExitCode::kInconclusive;
  }
  fmt::print(stderr, "all as without: tokens and logits of each text, bit for bit\n");
  return ExitCode::kHolds;
}

ExitCode RunInTurn(const BatchOptions& options, const std::vector<Prompt>& prompts, Batch* batch) {
  int32_t differences = 0;
  int64_t fed = 0;
  for (const Prompt& prompt : prompts) {
    fed += std::ssize(prompt.ids);
    const GenerateResult result = batch->Run(prompt);
    batch->Print(prompt, result);
    if (options.check && !IsAsAlone(options, batch, prompt, result)) ++differences;
  }
  const PrefixCounters& counters = batch->counters();
  fmt::print(stderr,
             "{}: {} texts, {} began like one before; {} of {} prompt tokens not computed, {} "
             "blocks registered, {} evicted\n",
             options.source.Description(), counters.lookups, counters.hits, counters.rows_attached,
             fed, counters.registered, counters.evicted);
  return Verdict(options, differences, counters.hits > 0,
                 fmt::format("no two texts share a block of {} tokens", options.block_size));
}

// Texts that arrive, run and end beside each other.
class Together {
 public:
  Together(const BatchOptions& options, const std::vector<Prompt>& prompts, Batch* batch)
      : prompts_(prompts),
        batch_(*batch),
        scheduler_(batch->MakeScheduler()),
        digests_(prompts.size()),
        results_(prompts.size()),
        ended_(prompts.size()) {
    Random random(options.arrivals);
    constexpr int32_t kLongestGap = 4;  // steps
    int64_t step = 0;
    for (size_t i = 0; i < prompts.size(); ++i) {
      if (options.arrivals != 0 && i > 0) step += random.Between(0, kLongestGap);
      arrives_.push_back(step);
    }
  }

  void Run() {
    size_t arrived = 0;
    for (int64_t step = 0; arrived < prompts_.size() || !scheduler_.idle(); ++step) {
      for (; arrived < prompts_.size() && arrives_[arrived] <= step; ++arrived) {
        scheduler_.Submit(batch_.RequestOf(prompts_[arrived]));  // whose id is arrived + 1
      }
      for (const ServedToken& token : scheduler_.Step()) Note(token);
      Show(step + 1);
    }
    progress_.Clear();
    seconds_ = watch_.seconds();
  }

  const std::vector<GenerateResult>& results() const { return results_; }
  const SchedulerCounters& counters() const { return scheduler_.counters(); }
  double seconds() const { return seconds_; }

 private:
  void Note(const ServedToken& token) {
    const auto i = static_cast<size_t>(token.id - 1);
    GenerateResult& result = results_[i];
    result.tokens.push_back(token.token);
    digests_[i].AddFloats(token.logits);
    if (token.log_probability) result.log_probabilities.push_back(*token.log_probability);
    if (!token.last) return;
    result.attached = token.attached;
    result.logits_digest = digests_[i].Finish();
    ended_[i] = true;
    progress_.Clear();
    for (; printed_ < ended_.size() && ended_[printed_]; ++printed_) {
      batch_.Print(prompts_[printed_], results_[printed_]);
    }
  }

  void Show(int64_t step) {
    const auto ended = std::ranges::count(ended_, true);
    const auto tokens = static_cast<double>(counters().tokens);
    progress_.Show(fmt::format("step {}: {} of {} texts ended, {} preemptions, {:.1f} tokens/s",
                               step, ended, prompts_.size(), counters().preempted,
                               tokens / watch_.seconds()));
  }

  const std::vector<Prompt>& prompts_;
  Batch& batch_;
  Scheduler scheduler_;
  std::vector<int64_t> arrives_;  // before which step
  std::vector<DigestBuilder> digests_;
  std::vector<GenerateResult> results_;
  std::vector<bool> ended_;
  size_t printed_ = 0;
  ProgressLine progress_;
  Stopwatch watch_;
  double seconds_ = 0;
};

ExitCode RunTogether(const BatchOptions& options, const std::vector<Prompt>& prompts,
                     Batch* batch) {
  Together together(options, prompts, batch);
  together.Run();
  const SchedulerCounters& counters = together.counters();
  fmt::print(stderr,
             "{}: {} texts, {} new tokens in {:.2f} s, {:.1f} tokens/s\n"
             "{} steps of {:.1f} rows, {} texts in one at most; {} preemptions, {} rows computed "
             "again; {} times {} rows were there already\n",
             options.source.Description(), prompts.size(), counters.tokens, together.seconds(),
             static_cast<double>(counters.tokens) / together.seconds(), counters.steps,
             static_cast<double>(counters.rows) / static_cast<double>(counters.steps),
             counters.most_together, counters.preempted, counters.recomputed, counters.prefix_hits,
             counters.rows_attached);
  int32_t differences = 0;
  for (size_t i = 0; options.check && i < prompts.size(); ++i) {
    if (!IsAsAlone(options, batch, prompts[i], together.results()[i])) ++differences;
  }
  return Verdict(options, differences, counters.most_together > 1, "no step had rows of two texts");
}

void CheckTogether(const BatchOptions& options) {
  if (options.parallel > 0) return;
  const auto alone = [](const char* flag) {
    throw Error({flag, "texts run one after another", "give --parallel N"});
  };
  if (options.budget > 0) alone("--budget");
  if (options.arrivals > 0) alone("--arrivals");
}

ExitCode RunBatch(const BatchOptions& options) {
  CheckTogether(options);
  CheckFloatingPointEnvironment();
  ThreadTeam team(options.threads);
  const LoadedModel loaded = options.source.Load({.team = &team});
  const std::vector<Prompt> prompts = ReadPrompts(options, loaded);
  size_t longest = 0;
  for (const Prompt& prompt : prompts) longest = std::max(longest, prompt.ids.size());
  fmt::print(stderr, "sample seed {}, from which each text has its own\n", options.decoding.seed);
  Batch batch(options, loaded, static_cast<int32_t>(longest) + options.max_new_tokens - 1);
  return options.parallel > 0 ? RunTogether(options, prompts, &batch)
                              : RunInTurn(options, prompts, &batch);
}

}  // namespace

Command BatchCommand() {
  const auto options = std::make_shared<BatchOptions>();
  std::vector<Flag> flags = options->source.Flags();
  flags.insert(
      flags.end(),
      {
          {"--prompts", "FILE", "a text a line; empty lines are none", &options->prompts, true},
          {"-n,--decode", "N", "new tokens, fewer when the model ends its text",
           IntTarget{&options->max_new_tokens, 1}},
          {"--block-size", "N", "positions of a block, of which rows are shared whole",
           IntTarget{&options->block_size, 1, 1 << 20}},
          {"--blocks", "N", "blocks of the pool; unless given, those of eight longest texts",
           IntTarget{&options->blocks, 1}},
          {"--parallel", "N", "texts at a time that share each step; unless given, one",
           IntTarget{&options->parallel, 1, 4096}},
          {"--budget", "TOKENS", "rows of a step of texts together; unless given, 256",
           IntTarget{&options->budget, 1, 1 << 20}},
          {"--arrivals", "SEED", "texts come at steps drawn from it; unless given, all at once",
           &options->arrivals},
          {"--check", "", "compute each text alone as well, and compare every bit",
           &options->check},
          options->adapters.AsFlag(),
          {"--isa", "NAME", "kernels, instead of LOCKSTEP_ISA or the best", &options->isa},
          {"--threads", "N", "threads; unless given, the CPUs that the process may use, 8 at most",
           IntTarget{&options->threads, 1, ThreadTeam::kMaxSize}},
      });
  const std::vector<Flag> decoding = options->decoding.Flags();
  flags.insert(flags.end(), decoding.begin(), decoding.end());
  return {"batch", "Continue each line of a file, what they share computed once", std::move(flags),
          [options] { return RunBatch(*options); }};
}

}  // namespace lockstep::cli
