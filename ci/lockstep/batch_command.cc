// lockstep batch: continues each line of a file. Texts that begin the same have the rows of that
// beginning computed once (engine/prefix_cache.h). Standard output carries one JSON object a line;
// everything else goes to standard error.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/paged_kv_cache.h"
#include "caches/simple_kv_cache.h"
#include "ci/lockstep/commands.h"
#include "ci/lockstep/decoding_flags.h"
#include "ci/lockstep/model_source.h"
#include "engine/generate.h"
#include "engine/kernels.h"
#include "engine/math.h"
#include "engine/prefix_cache.h"
#include "engine/thread_team.h"
#include "engine/transformer.h"

namespace lockstep::cli {
namespace {

struct BatchOptions {
  ModelSource source;
  AdapterFlags adapters;
  std::string prompts;  // a path
  std::string isa;
  int32_t max_new_tokens = 16;
  int32_t block_size = 16;
  int32_t blocks = 0;  // 0: kTexts of the longest text
  int32_t threads = DefaultThreads();
  bool check = false;
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
      : tokenizer_(*loaded.tokenizer),
        geometry_(loaded.model->config().geometry(positions)),
        transformer_(loaded.model,
                     {.kernels = &SelectKernels(options.isa), .threads = options.threads}),
        root_({.geometry = geometry_, .block_size = options.block_size, .pool = Pool(options)}),
        index_(root_),
        prefixes_(transformer_, index_) {
    generate_.max_new_tokens = options.max_new_tokens;
    if (tokenizer_.eos()) generate_.stop_tokens.push_back(*tokenizer_.eos());
    transformer_.SetAdapters(options.adapters.Load(loaded.model->config()));
  }

  GenerateResult Run(const Prompt& prompt) {
    const std::unique_ptr<KvCache> cache = root_.Fork();
    generate_.prefixes = &prefixes_;
    return Generate(transformer_, *cache, prompt.ids, generate_);
  }

  // The same from nothing, on a cache that shares nothing.
  GenerateResult RunAlone(const Prompt& prompt) {
    SimpleKvCache cache(geometry_);
    generate_.prefixes = nullptr;
    return Generate(transformer_, cache, prompt.ids, generate_);
  }

  void Print(const Prompt& prompt, const GenerateResult& result) const {
    std::string text;
    for (const int32_t token : result.tokens) text += tokenizer_.Piece(token);
    const nlohmann::ordered_json json = {{"line", prompt.line},
                                         {"prompt_tokens", prompt.ids.size()},
                                         {"attached", result.attached},
                                         {"tokens", result.tokens},
                                         {"text", text},
                                         {"digest", result.logits_digest.Hex()}};
    fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    std::fflush(stdout);
  }

  const PrefixCounters& counters() const { return index_.counters(); }

 private:
  // One text always fits: whatever blocks others left are given up for it.
  std::shared_ptr<BlockPool> Pool(const BatchOptions& options) const {
    const int32_t needed = BlocksForRows(geometry_.max_length, options.block_size);
    const int64_t wanted = options.blocks == 0 ? needed * kTexts : options.blocks;
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

  const Tokenizer& tokenizer_;
  KvGeometry geometry_;
  Transformer transformer_;
  PagedKvCache root_;
  PrefixIndex index_;
  PrefixCache prefixes_;
  GenerateOptions generate_;
};

ExitCode RunBatch(const BatchOptions& options) {
  CheckFloatingPointEnvironment();
  ThreadTeam team(options.threads);
  const LoadedModel loaded = options.source.Load({.team = &team});
  const std::vector<Prompt> prompts = ReadPrompts(options, loaded);
  size_t longest = 0;
  int64_t fed = 0;
  for (const Prompt& prompt : prompts) {
    longest = std::max(longest, prompt.ids.size());
    fed += std::ssize(prompt.ids);
  }
  Batch batch(options, loaded, static_cast<int32_t>(longest) + options.max_new_tokens - 1);
  int32_t differences = 0;
  for (const Prompt& prompt : prompts) {
    const GenerateResult result = batch.Run(prompt);
    batch.Print(prompt, result);
    if (!options.check) continue;
    const GenerateResult alone = batch.RunAlone(prompt);
    if (alone.logits_digest == result.logits_digest && alone.tokens == result.tokens) continue;
    ++differences;
    fmt::print(stderr, "{}:{}: with {} rows attached the logits are others: {} against {}\n",
               options.prompts, prompt.line, result.attached, result.logits_digest.Hex(),
               alone.logits_digest.Hex());
  }
  const PrefixCounters& counters = batch.counters();
  fmt::print(stderr,
             "{}: {} texts, {} began like one before; {} of {} prompt tokens not computed, {} "
             "blocks registered, {} evicted\n",
             options.source.Description(), counters.lookups, counters.hits, counters.rows_attached,
             fed, counters.registered, counters.evicted);
  if (!options.check) return ExitCode::kHolds;
  if (differences > 0) return ExitCode::kDifference;
  if (counters.hits == 0) {
    fmt::print(stderr, "nothing was compared: no two texts share a block of {} tokens\n",
               options.block_size);
    return ExitCode::kInconclusive;
  }
  fmt::print(stderr, "all as without: tokens and logits of each text, bit for bit\n");
  return ExitCode::kHolds;
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
          {"--check", "", "compute each text alone as well, and compare every bit",
           &options->check},
          options->adapters.AsFlag(),
          {"--isa", "NAME", "kernels, instead of LOCKSTEP_ISA or the best", &options->isa},
          {"--threads", "N", "threads; unless given, the CPUs that the process may use, 8 at most",
           IntTarget{&options->threads, 1, ThreadTeam::kMaxSize}},
      });
  return {"batch", "Continue each line of a file, what they share computed once", std::move(flags),
          [options] { return RunBatch(*options); }};
}

}  // namespace lockstep::cli
