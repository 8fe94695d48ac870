#include "engine/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "caches/check.h"
#include "caches/error.h"
#include "engine/prefix_cache.h"
#include "engine/shift.h"

namespace lockstep {
namespace {

// Positions of the text.
int32_t LimitOf(const Transformer& transformer, const KvCache& cache) {
  return std::min(transformer.model().config().context_length, cache.max_length());
}

void CheckKeep(int32_t keep, int32_t limit, const KvCache& cache) {
  if (!MayShift(cache)) {
    throw Error({"shift_keep", fmt::format("{} forgets rows, which could not move", cache.name()),
                 "choose a cache that keeps all rows"});
  }
  if (keep <= limit - 2) return;
  throw Error({"shift_keep",
               fmt::format("of {} positions {} are kept, which leaves none to delete", limit, keep),
               "keep fewer, or give more positions"});
}

void CheckFits(const Transformer& transformer, const KvCache& cache, size_t prompt_tokens,
               const GenerateOptions& options) {
  if (options.shift_keep >= 0) CheckKeep(options.shift_keep, LimitOf(transformer, cache), cache);
  const int32_t max_new_tokens = options.max_new_tokens;
  if (prompt_tokens == 0) {
    throw Error({"prompt", "it has no token to predict from", "give a prompt or add a BOS token"});
  }
  if (max_new_tokens < 0) {
    throw Error(
        {"max_new_tokens", fmt::format("{} is negative", max_new_tokens), "give 0 or more"});
  }
  // The last new token is never fed back, so it needs no row.
  const int64_t held = cache.current_length();
  const int64_t fed_back =
      options.shift_keep >= 0 ? 0 : std::max<int64_t>(0, int64_t{max_new_tokens} - 1);
  const int64_t rows = held + static_cast<int64_t>(prompt_tokens) + fed_back;
  const int32_t context = transformer.model().config().context_length;
  const bool model_is_limit = context <= cache.max_length();
  const int32_t limit = model_is_limit ? context : cache.max_length();
  if (rows > limit) {
    throw Error({"prompt",
                 fmt::format("{} rows in the cache, {} prompt tokens and {} new ones need {} "
                             "positions, {} has {}",
                             held, prompt_tokens, max_new_tokens, rows,
                             model_is_limit ? "the model's context" : "the cache", limit),
                 "shorten the prompt or ask for fewer tokens"});
  }
}

// One generation: the text so far, and a cache with the rows of all but its last token.
class Generation {
 public:
  Generation(Transformer& transformer, KvCache& cache, const GenerateOptions& options,
             std::span<const int32_t> prompt)
      : transformer_(transformer),
        cache_(cache),
        options_(options),
        sampler_(options.sampler),
        random_(options.seed),
        prompt_rows_(static_cast<int32_t>(prompt.size())),
        limit_(LimitOf(transformer, cache)),
        text_(options.before.begin(), options.before.end()) {
    text_.insert(text_.end(), prompt.begin(), prompt.end());
    only_tokens_ =
        options.sampler.plain() && !options.logits_digest && options.log_probabilities < 0;
    result_.tokens.reserve(static_cast<size_t>(options.max_new_tokens));
  }

  GenerateResult Run() {
    // What the rows of others were computed from, nobody knows.
    knows_all_ =
        options_.prefixes != nullptr && cache_.current_length() == 0 && options_.before.empty();
    if (knows_all_) result_.attached = options_.prefixes->Attach(text_, adapters(), &cache_);
    int32_t position = cache_.current_length();
    for (bool first = true; first || Wanted() > 0; first = false) {
      const int32_t rows = first ? prompt_rows_ - result_.attached : 1;
      if (position == limit_ && options_.shift_keep >= 0) position -= Shift();
      Drafts drafts;
      if (!first && options_.drafts != nullptr) drafts = Propose(limit_ - position - 1);
      const int32_t kept =
          Step(std::span(text_).last(static_cast<size_t>(rows)), position, std::move(drafts));
      if (!first && options_.on_decode) options_.on_decode(position);
      if (first) Register();
      if (kept == 0) break;
      position += rows + kept - 1;
    }
    Register();
    result_.logits_digest = digest_.Finish();
    return std::move(result_);
  }

 private:
  int32_t Wanted() const {
    return options_.max_new_tokens - static_cast<int32_t>(result_.tokens.size());
  }

  std::span<const AppliedAdapter> adapters() const { return transformer_.adapters(); }

  void Register() {
    if (!knows_all_) return;
    const auto rows = static_cast<size_t>(cache_.current_length());
    options_.prefixes->Register(std::span(text_).first(rows), adapters(), cache_);
  }

  // Returns by how many positions the text moved. Its rows are no longer what its tokens alone
  // give.
  int32_t Shift() {
    knows_all_ = false;
    const int32_t keep = options_.shift_keep;
    const DeletedSpan deleted = {keep, keep + (limit_ - keep) / 2};
    ShiftContext(transformer_.model().config(), transformer_.kernels(), deleted, &cache_);
    ++result_.shifts;
    result_.deleted += deleted.count();
    return deleted.count();
  }

  Drafts Propose(int32_t room) {
    // One token comes from the step itself. No more than can be undone [W2].
    const int32_t most = std::min({options_.draft_tokens, Wanted() - 1, cache_.max_step_rows()});
    const int32_t count = std::min(most, room);
    return count > 0 ? options_.drafts->Propose(text_, count, &random_) : Drafts();
  }

  // `step` and the drafts at positions from `position` on. Returns how many tokens it gave, or 0
  // when the text has ended.
  int32_t Step(std::span<const int32_t> step, int32_t position, Drafts drafts) {
    std::vector<int32_t> tokens(step.begin(), step.end());
    tokens.insert(tokens.end(), drafts.tokens.begin(), drafts.tokens.end());
    std::vector<int32_t> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), position);
    const auto behind = static_cast<int32_t>(position + std::ssize(step));
    if (only_tokens_ && drafts.tokens.empty()) {
      const int32_t token = transformer_.ForwardGreedy(tokens, positions, cache_);
      return Emit(token) ? 1 : 0;
    }
    const auto rows = static_cast<int32_t>(drafts.tokens.size()) + 1;
    const BatchSequence sequence = {.tokens = tokens,
                                    .positions = positions,
                                    .cache = &cache_,
                                    .adapters = adapters(),
                                    .logits = rows};
    const std::span<const float> logits = transformer_.ForwardBatch({&sequence, 1});
    const Verdict verdict = Judge(logits, drafts);
    result_.drafted += rows - 1;
    result_.accepted += verdict.accepted;
    const size_t width = logits.size() / static_cast<size_t>(rows);
    int32_t given = 0;
    for (int32_t row = 0; row <= verdict.accepted; ++row) {
      const auto i = static_cast<size_t>(row);
      const int32_t token = row < verdict.accepted ? drafts.tokens[i] : verdict.token;
      Note(logits.subspan(i * width, width), token);
      ++given;
      if (Emit(token)) continue;
      if (row < rows - 1) cache_.Rollback(behind + row);
      return 0;
    }
    if (verdict.accepted < rows - 1) cache_.Rollback(behind + verdict.accepted);
    return given;
  }

  // What stands of the drafts, and the token behind it.
  Verdict Judge(std::span<const float> logits, const Drafts& drafts) {
    std::vector<Distribution> target;
    const size_t width = logits.size() / (drafts.tokens.size() + 1);
    const size_t known = text_.size();
    text_.insert(text_.end(), drafts.tokens.begin(), drafts.tokens.end());
    for (size_t row = 0; row <= drafts.tokens.size(); ++row) {
      target.push_back(
          sampler_.Of(logits.subspan(row * width, width), std::span(text_).first(known + row)));
    }
    text_.resize(known);
    return JudgeDrafts(target, drafts.proposal, drafts.tokens, &random_);
  }

  void Note(std::span<const float> logits, int32_t token) {
    if (options_.logits_digest) digest_.AddFloats(logits);
    if (options_.log_probabilities < 0 || Wanted() == 0) return;
    const LogProbabilities all(logits);
    result_.log_probabilities.push_back({all.Of(token), all.Top(options_.log_probabilities)});
  }

  // False when nothing is to follow.
  bool Emit(int32_t token) {
    if (Wanted() == 0) return false;  // a prefill alone
    text_.push_back(token);
    result_.tokens.push_back(token);
    if (options_.on_token) options_.on_token(token);
    if (std::ranges::find(options_.stop_tokens, token) != options_.stop_tokens.end()) return false;
    if (options_.ended && options_.ended()) return false;
    return Wanted() > 0;
  }

  Transformer& transformer_;
  KvCache& cache_;
  const GenerateOptions& options_;
  Sampler sampler_;
  Random random_;
  const int32_t prompt_rows_;
  const int32_t limit_;     // positions
  bool knows_all_ = false;  // what each row was computed from: it may be registered
  std::vector<int32_t> text_;
  bool only_tokens_ = false;
  DigestBuilder digest_;
  GenerateResult result_;
};

}  // namespace

int32_t KeepCommonPrefix(KvCache& cache, std::span<const int32_t> held,
                         std::span<const int32_t> text) {
  LS_CHECK(!text.empty(), "a text without tokens");
  const auto same = std::ranges::mismatch(held, text).in1 - held.begin();
  const auto common = static_cast<int32_t>(std::min<std::ptrdiff_t>(same, std::ssize(text) - 1));
  if (common == std::ssize(held)) return common;
  if (!CanRollback(cache, common)) return cache.Clear(), 0;
  cache.Rollback(common);
  return common;
}

GenerateResult Generate(Transformer& transformer, KvCache& cache, std::span<const int32_t> prompt,
                        const GenerateOptions& options) {
  CheckFits(transformer, cache, prompt.size(), options);
  CheckSamplerOptions(options.sampler, transformer.model().config().vocab_size);
  return Generation(transformer, cache, options, prompt).Run();
}

}  // namespace lockstep
