#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "caches/check.h"
#include "caches/error.h"
#include "caches/paged_kv_cache.h"
#include "caches/random.h"
#include "engine/model/batch.h"
#include "engine/prefix_cache.h"
#include "engine/tokenizer.h"

namespace lockstep {

struct Scheduler::Sequence {
  Sequence(int64_t request_id, ServeRequest served)
      : id(request_id),
        request(std::move(served)),
        sampler(request.sampler),
        random(request.seed),
        text(request.prompt) {
    if (!request.stops.empty()) stops.emplace(request.stops);
    text.reserve(text.size() + static_cast<size_t>(request.max_new_tokens));
  }

  int32_t size() const { return static_cast<int32_t>(text.size()); }
  int32_t rows() const { return cache == nullptr ? 0 : cache->current_length(); }
  int32_t lacking() const { return size() - rows(); }  // rows, at least one between steps
  int32_t new_tokens() const { return size() - static_cast<int32_t>(request.prompt.size()); }

  const int64_t id;
  const ServeRequest request;
  Sampler sampler;
  Random random;
  std::optional<StopText> stops;
  std::vector<int32_t> text;  // the prompt and the new tokens; has room for all of them
  std::unique_ptr<KvCache> cache;
  int32_t reached = 0;  // the most rows that it ever had
  int32_t attached = 0;
  int32_t preemptions = 0;
  int32_t planned = 0;  // rows, in the step in progress
};

// What a step is going to give. Nothing of it shows until the whole step is done.
struct Scheduler::Drawn {
  Sequence* sequence = nullptr;
  int32_t token = 0;
  Random random;                  // after the draw
  std::optional<StopText> stops;  // after the token
  std::span<const float> logits = {};
  std::optional<TokenLogProbability> log_probability = {};
};

Scheduler::Scheduler(Transformer& transformer, KvCache& root, const SchedulerOptions& options)
    : transformer_(transformer), root_(root), pool_(PoolOf(root)), options_(options) {
  if (options.max_running < 1 || options.step_tokens < 1 || options.chunk_tokens < 1) {
    throw std::invalid_argument(
        fmt::format("scheduler: {} requests, {} tokens a step and {} a chunk: 1 is the least",
                    options.max_running, options.step_tokens, options.chunk_tokens));
  }
  if (root.current_length() > 0) throw std::invalid_argument("scheduler: the root has rows");
  const ModelConfig& config = transformer.model().config();
  constexpr int32_t kFirst = 0;  // any token, at the first position
  const BatchSequence probe = {.tokens = {&kFirst, 1}, .positions = {&kFirst, 1}, .cache = &root};
  CheckBatch(config, {&probe, 1});
  positions_.resize(static_cast<size_t>(std::min(config.context_length, root.max_length())));
  std::iota(positions_.begin(), positions_.end(), 0);
}

Scheduler::~Scheduler() = default;

// ---- Requests ----------------------------------------------------------------------------

int32_t Scheduler::BlocksFor(int32_t rows) const {
  return BlocksForRows(rows, pool_->block_size());
}

void Scheduler::Check(const ServeRequest& request) const {
  const auto refuse = [](std::string what, std::string remedy) {
    throw Error({"request", std::move(what), std::move(remedy)});
  };
  if (request.prompt.empty()) refuse("it has no token to predict from", "give it a prompt");
  if (request.max_new_tokens < 1) {
    refuse(fmt::format("{} new tokens are none", request.max_new_tokens), "ask for one at least");
  }
  const ModelConfig& config = transformer_.model().config();
  for (const int32_t token : request.prompt) {
    if (token >= 0 && token < config.vocab_size) continue;
    refuse(fmt::format("token {} is outside [0, {})", token, config.vocab_size),
           "encode the prompt with the model's own tokenizer");
  }
  // The last new token is never fed back, so it needs no row.
  const int64_t rows = std::ssize(request.prompt) + int64_t{request.max_new_tokens} - 1;
  if (rows > std::ssize(positions_)) {
    refuse(fmt::format("{} prompt tokens and {} new ones need {} positions, there are {}",
                       request.prompt.size(), request.max_new_tokens, rows, positions_.size()),
           "shorten the prompt or ask for fewer tokens");
  }
  if (pool_ != nullptr && BlocksFor(static_cast<int32_t>(rows)) > pool_->num_blocks()) {
    refuse(fmt::format("{} rows need {} blocks of {}, the whole pool has {}", rows,
                       BlocksFor(static_cast<int32_t>(rows)), pool_->block_size(),
                       pool_->num_blocks()),
           "give the pool more blocks, or shorten the request");
  }
  CheckSamplerOptions(request.sampler, config.vocab_size);
  CheckAdapters(config, request.adapters);
  if (request.stops.empty()) return;
  if (request.tokenizer == nullptr) {
    refuse("it has stops and no tokenizer", "give it the one that the stops' text is of");
  }
  if (request.tokenizer->vocab_size() != config.vocab_size) {
    refuse(fmt::format("its tokenizer has {} tokens, the model has {}",
                       request.tokenizer->vocab_size(), config.vocab_size),
           "give it the model's own tokenizer");
  }
}

int64_t Scheduler::Submit(ServeRequest request) {
  Check(request);
  live_.push_back(std::make_unique<Sequence>(next_id_, std::move(request)));
  return next_id_++;
}

bool Scheduler::Cancel(int64_t id) {
  const auto found = std::ranges::find_if(live_, [&](const auto& s) { return s->id == id; });
  if (found == live_.end()) return false;
  if ((*found)->cache != nullptr) --running_;
  live_.erase(found);
  return true;
}

std::vector<RequestStatus> Scheduler::requests() const {
  std::vector<RequestStatus> all;
  for (const auto& s : live_) {
    all.push_back({.id = s->id,
                   .state = s->cache == nullptr ? RequestState::kWaiting
                            : s->lacking() > 1  ? RequestState::kPrefilling
                                                : RequestState::kDecoding,
                   .prompt_tokens = static_cast<int32_t>(s->request.prompt.size()),
                   .new_tokens = s->new_tokens(),
                   .rows = s->rows(),
                   .attached = s->attached,
                   .preemptions = s->preemptions,
                   .cache = s->cache.get()});
  }
  return all;
}

// ---- What a step computes ----------------------------------------------------------------

std::span<const std::unique_ptr<Scheduler::Sequence>> Scheduler::running() const {
  return std::span(live_).first(running_);
}

int32_t Scheduler::AvailableBlocks() const {
  return pool_->free_blocks() + pool_->reclaimable_blocks();
}

// What the planned rows need: rows are only ever appended, and what is shared are whole blocks, so
// none is copied.
int32_t Scheduler::BlocksOfStep() const {
  int32_t blocks = 0;
  for (const auto& s : running())
    blocks += BlocksFor(s->rows() + s->planned) - BlocksFor(s->rows());
  return blocks;
}

// What the texts of all that run still need.
int32_t Scheduler::BlocksOfTexts() const {
  int32_t blocks = 0;
  for (const auto& s : running()) blocks += BlocksFor(s->size()) - BlocksFor(s->rows());
  return blocks;
}

// What admitted texts leave of the blocks. Falls as texts grow, and rises when one gives back what
// it has.
int32_t Scheduler::RoomForTexts() const {
  return pool_ == nullptr ? 0 : AvailableBlocks() - BlocksOfTexts();
}

// Grows whenever other rows are found.
int64_t Scheduler::IndexChanges() const {
  if (options_.prefixes == nullptr) return 0;
  const PrefixCounters& counters = options_.prefixes->index().counters();
  return counters.registered + counters.evicted;
}

// Plans the rows of those that run, and returns how many of the step's are left. Nobody is admitted
// when none is, and nobody wants more later than at first: so all but the youngest have what they
// want, a row where they decode and a chunk where not, and the youngest has one at least.
int32_t Scheduler::GiveRows() {
  int32_t left = options_.step_tokens;
  for (const auto& s : running()) {
    s->planned = std::min({s->lacking(), options_.chunk_tokens, left});
    left -= s->planned;
  }
  return left;
}

void Scheduler::PreemptYoungest() {
  Sequence& youngest = *live_[--running_];
  youngest.cache.reset();
  ++youngest.preemptions;
  ++counters_.preempted;
}

bool Scheduler::AdmitNext() {
  if (running_ == live_.size() || std::cmp_equal(running_, options_.max_running)) return false;
  Sequence& next = *live_[running_];
  const int32_t room = RoomForTexts();
  // The same answer as last time costs a fork and the hashes of a text. With nobody running it is
  // asked for whatever it costs: nobody could change it.
  if (running_ > 0 && refused_.id == next.id && refused_.index_changes == IndexChanges() &&
      room <= refused_.room) {
    return false;
  }
  std::unique_ptr<KvCache> cache = root_.Fork();
  int32_t attached = 0;
  if (options_.prefixes != nullptr) {
    attached = options_.prefixes->Attach(next.text, next.request.adapters, cache.get());
  }
  if (pool_ != nullptr) {
    const int32_t needed = BlocksFor(next.size()) - BlocksFor(attached);
    if (needed > RoomForTexts()) {
      refused_ = {.id = next.id, .room = room, .index_changes = IndexChanges()};
      return false;
    }
  }
  next.cache = std::move(cache);
  next.attached = attached;
  ++running_;
  ++counters_.admitted;
  counters_.prefix_hits += attached > 0 ? 1 : 0;
  counters_.rows_attached += attached;
  return true;
}

void Scheduler::Plan() {
  int32_t left = GiveRows();
  bool preempted = false;
  while (pool_ != nullptr && running_ > 0 && BlocksOfStep() > AvailableBlocks()) {
    PreemptYoungest();
    preempted = true;
    left = GiveRows();
  }
  // Who has just made room does not take it again at once.
  while (!preempted && left > 0 && AdmitNext()) {
    Sequence& admitted = *live_[running_ - 1];
    admitted.planned = std::min({admitted.lacking(), options_.chunk_tokens, left});
    left -= admitted.planned;
  }
  if (running_ == 0) {
    throw PoolExhausted(
        fmt::format("scheduler: request {} has {} tokens, {} of {} blocks of {} "
                    "are free, and no other request holds one",
                    live_.front()->id, live_.front()->size(), AvailableBlocks(),
                    pool_->num_blocks(), pool_->block_size()));
  }
}

std::span<const float> Scheduler::Compute() {
  planned_.clear();
  batch_.clear();
  for (const auto& s : running()) {
    if (s->planned == 0) continue;
    const auto first = static_cast<size_t>(s->rows()), count = static_cast<size_t>(s->planned);
    planned_.push_back(s.get());
    batch_.push_back({.tokens = std::span(s->text).subspan(first, count),
                      .positions = std::span(positions_).subspan(first, count),
                      .cache = s->cache.get(),
                      .adapters = s->request.adapters});
    // Nobody wants the logits of a chunk that is not the last.
    batch_.back().logits = s->lacking() == s->planned ? 1 : 0;
  }
  return transformer_.ForwardBatch(batch_);
}

// Blocks that this step has filled.
void Scheduler::RegisterRows() {
  if (options_.prefixes == nullptr) return;
  const int32_t size = options_.prefixes->index().block_size();
  for (Sequence* s : planned_) {
    const int32_t rows = s->rows();
    if (rows / size == (rows - s->planned) / size) continue;
    options_.prefixes->Register(std::span(s->text).first(static_cast<size_t>(rows)),
                                s->request.adapters, *s->cache);
  }
}

// ---- What it gives -----------------------------------------------------------------------

void Scheduler::Draw(std::span<const float> logits) {
  drawn_.clear();
  served_.clear();
  drawn_.reserve(planned_.size());
  served_.reserve(planned_.size());
  const auto width = static_cast<size_t>(transformer_.model().config().vocab_size);
  for (size_t i = 0; i < planned_.size(); ++i) {
    Sequence& s = *planned_[i];
    if (s.lacking() > 0) continue;  // a chunk that is not the last, without logits
    const auto row = logits.subspan(drawn_.size() * width, width);
    Random random = s.random;
    const int32_t token = lockstep::Draw(s.sampler.Of(row, s.text), &random);
    Drawn& drawn = drawn_.emplace_back(
        Drawn{.sequence = &s, .token = token, .random = random, .stops = s.stops, .logits = row});
    if (drawn.stops) drawn.stops->Push(s.request.tokenizer->Piece(token));
    if (s.request.log_probabilities < 0) continue;
    const LogProbabilities all(row);
    drawn.log_probability = {all.Of(token), all.Top(s.request.log_probabilities)};
  }
}

void Scheduler::Count() noexcept {
  ++counters_.steps;
  counters_.tokens += std::ssize(drawn_);
  counters_.most_together = std::max<int64_t>(counters_.most_together, std::ssize(planned_));
  for (Sequence* s : planned_) {
    const int32_t rows = s->rows();
    counters_.rows += s->planned;
    counters_.recomputed += std::clamp(s->reached - (rows - s->planned), 0, s->planned);
    s->reached = std::max(s->reached, rows);
  }
}

void Scheduler::Serve() noexcept {
  for (Drawn& drawn : drawn_) {
    Sequence& s = *drawn.sequence;
    s.random = drawn.random;
    s.stops = std::move(drawn.stops);
    s.text.push_back(drawn.token);
    const auto& stops = s.request.stop_tokens;
    const bool ended = std::ranges::find(stops, drawn.token) != stops.end();
    const bool stopped = s.stops && s.stops->stopped();
    served_.push_back({.id = s.id,
                       .token = drawn.token,
                       .last = ended || stopped || s.new_tokens() == s.request.max_new_tokens,
                       .attached = s.attached,
                       .preemptions = s.preemptions,
                       .stopped = stopped,
                       .logits = drawn.logits,
                       .log_probability = std::move(drawn.log_probability)});
  }
  for (const ServedToken& served : served_) {
    if (served.last) Cancel(served.id);
  }
}

std::span<const ServedToken> Scheduler::Step() {
  served_.clear();
  if (live_.empty()) return {};
  try {
    Plan();
    const std::span<const float> logits = Compute();
    RegisterRows();
    Draw(logits);
  } catch (...) {
    // What a failed step did to rows depends on the cache [F1]; tokens and draws are as they were.
    while (running_ > 0) live_[--running_]->cache.reset();
    throw;
  }
  Count();
  Serve();
  return served_;
}

}  // namespace lockstep
