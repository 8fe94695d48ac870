// lockstep chat: a conversation, a line of standard input a turn. Answers go to standard output as
// they are decoded; everything else to standard error. The cache keeps what the turns have in
// common: each turn feeds only what is new.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "caches/error.h"
#include "caches/registry.h"
#include "ci/lockstep/commands.h"
#include "ci/lockstep/decoding_flags.h"
#include "ci/lockstep/model_source.h"
#include "ci/lockstep/terminal.h"
#include "engine/chat.h"
#include "engine/generate.h"
#include "engine/kernels.h"
#include "engine/math.h"
#include "engine/stopwatch.h"
#include "engine/thread_team.h"

namespace lockstep::cli {
namespace {

struct ChatOptions {
  ModelSource source;
  DecodingFlags decoding;
  AdapterFlags adapters;
  std::string chat_template;
  std::string system;
  std::string cache = "simple";
  std::string isa;
  int32_t context = 0;
  int32_t max_new_tokens = 512;
  int32_t threads = DefaultThreads();
};

class Conversation {
 public:
  explicit Conversation(const ChatOptions& options)
      : options_(options),
        team_(options.threads),
        loaded_(options.source.Load({.team = &team_})),
        template_(options.chat_template.empty() ? ChatTemplate::Of(loaded_.model->file())
                                                : ChatTemplate::Named(options.chat_template)),
        encoder_(loaded_.model->file(), *loaded_.tokenizer),
        transformer_(loaded_.model,
                     {.kernels = &SelectKernels(options.isa), .threads = options.threads}) {
    const ModelConfig& config = loaded_.model->config();
    const int32_t length = options.context == 0 ? std::min(config.context_length, kDefaultContext)
                                                : std::min(config.context_length, options.context);
    const CacheSpec spec = ParseCacheSpec(options.cache);
    CheckFits(spec, config.geometry(length), "--cache");
    cache_ = spec.make({.geometry = config.geometry(length), .sequences = 1});
    generate_.sampler = options.decoding.Sampler(config.vocab_size);
    generate_.seed = options.decoding.seed;
    generate_.log_probabilities = options.decoding.log_probabilities;
    generate_.logits_digest = false;
    transformer_.SetAdapters(options.adapters.Load(config));
    if (loaded_.tokenizer->eos()) generate_.stop_tokens.push_back(*loaded_.tokenizer->eos());
    if (!template_.end().empty()) {
      generate_.stop_tokens.push_back(encoder_.ControlToken(template_.end()));
    }
    Reset();
  }

  const ChatTemplate& chat_template() const { return template_; }

  void Reset() {
    messages_.clear();
    if (!options_.system.empty()) messages_.push_back({ChatRole::kSystem, options_.system});
  }

  // The answer, also printed. Throws Error, and forgets the turn, when the context has no room.
  void Turn(const std::string& text) {
    std::vector<ChatMessage> messages = messages_;
    messages.push_back({ChatRole::kUser, text});
    const std::vector<int32_t> ids = encoder_.Encode(template_.Render(messages));
    const int32_t room = cache_->max_length() - static_cast<int32_t>(ids.size()) + 1;
    if (room < 1) {
      throw Error(
          {"conversation",
           fmt::format("{} tokens do not fit a context of {}", ids.size(), cache_->max_length()),
           "say /reset to begin anew, or give a larger --context"});
    }
    messages.push_back(
        {ChatRole::kAssistant, Answer(ids, std::min(room, options_.max_new_tokens))});
    messages_ = std::move(messages);
    ++generate_.seed;  // else equal questions have equal answers
  }

 private:
  static constexpr int32_t kDefaultContext = 4096;

  std::string Answer(const std::vector<int32_t>& ids, int32_t room) {
    const auto common = static_cast<size_t>(KeepCommonPrefix(*cache_, held_, ids));
    std::string answer;
    Utf8Stream stream;
    StopText stops(options_.decoding.stops);
    generate_.max_new_tokens = room;
    generate_.before = std::span(ids).first(common);
    generate_.on_token = [&](int32_t token) {
      const std::string shown = stops.Push(loaded_.tokenizer->Piece(token));
      answer += shown;
      Print(stream.Push(shown));
    };
    generate_.ended = [&] { return stops.stopped(); };
    const Stopwatch watch;
    const GenerateResult result =
        Generate(transformer_, *cache_, std::span(ids).subspan(common), generate_);
    const double seconds = watch.seconds();
    const std::string rest = stops.Flush();
    answer += rest;
    Print(stream.Push(rest) + stream.Flush() + "\n");
    held_ = ids;
    held_.insert(held_.end(), result.tokens.begin(), result.tokens.end() - 1);
    fmt::print(stderr, "[{} tokens kept, {} new, {} answered, {:.1f} s, sample seed {}]\n", common,
               ids.size() - common, result.tokens.size(), seconds, generate_.seed);
    PrintLogProbabilities(result);
    return answer;
  }

  static void Print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  const ChatOptions& options_;
  ThreadTeam team_;
  LoadedModel loaded_;
  ChatTemplate template_;
  ChatEncoder encoder_;
  Transformer transformer_;
  std::unique_ptr<KvCache> cache_;
  GenerateOptions generate_;
  std::vector<ChatMessage> messages_;
  std::vector<int32_t> held_;  // the tokens of the cache's rows
};

// nullopt at the end of the input. Asks on a terminal alone.
std::optional<std::string> ReadTurn() {
  if (isatty(STDIN_FILENO) != 0) fmt::print(stderr, "> ");
  return ReadInputLine();
}

ExitCode Chat(const ChatOptions& options) {
  CheckFloatingPointEnvironment();
  Conversation conversation(options);
  fmt::print(stderr, "{}, template {}; /reset begins anew, the end of the input ends\n",
             options.source.Description(), conversation.chat_template().name());
  ExitCode code = ExitCode::kHolds;
  while (const auto turn = ReadTurn()) {
    if (turn->empty()) continue;
    if (*turn == "/reset") {
      conversation.Reset();
      continue;
    }
    try {
      conversation.Turn(*turn);
    } catch (const Error& error) {
      // Nothing is lost: the conversation up to here is still there.
      fmt::print(stderr, "lockstep: error: {}\n", error.what());
      code = ExitCode::kWrongUse;
    }
  }
  return code;
}

}  // namespace

Command ChatCommand() {
  const auto options = std::make_shared<ChatOptions>();
  std::vector<Flag> flags = options->source.Flags();
  flags.insert(
      flags.end(),
      {
          {"--template", "NAME",
           "chatml, gemma, granite, llama2, llama3, mistral, mistral-v3 or phi3; unless given, the "
           "model's own",
           &options->chat_template},
          {"--system", "TEXT", "what the model is told first", &options->system},
          {"-n,--decode", "N", "tokens of an answer, at most",
           IntTarget{&options->max_new_tokens, 1}},
          {"--context", "N", "positions of the cache; 0: the model's, 4096 at most",
           IntTarget{&options->context, 0}},
          {"--cache", "NAME", "KV cache", &options->cache},
          {"--isa", "NAME", "kernels, instead of LOCKSTEP_ISA or the best", &options->isa},
          {"--threads", "N", "threads; unless given, the CPUs that the process may use, 8 at most",
           IntTarget{&options->threads, 1, ThreadTeam::kMaxSize}},
          options->adapters.AsFlag(),
      });
  const std::vector<Flag> decoding = options->decoding.Flags();
  flags.insert(flags.end(), decoding.begin(), decoding.end());
  return {"chat", "Talk with a model, a line a turn", std::move(flags),
          [options] { return Chat(*options); }};
}

}  // namespace lockstep::cli
