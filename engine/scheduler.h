// Continuous batching: requests come and go at any step, and all that run share each step's pass
// over the weights.
//
//   iteration-level scheduling   Yu et al., "Orca: A Distributed Serving System for
//                                Transformer-Based Generative Models", OSDI 2022, section 3
//   blocks, preemption by        Kwon et al., "Efficient Memory Management for Large Language Model
//   recomputation                Serving with PagedAttention", SOSP 2023, section 4.5
//   chunks of prompts beside     Agrawal et al., "Taming Throughput-Latency Tradeoff in LLM
//   decode rows                  Inference with Sarathi-Serve", OSDI 2024, section 4
//
// None of it shows in a result [F5]: every request has the tokens, drawn ones included, and the
// logits that it has alone, bit for bit.
#ifndef LOCKSTEP_ENGINE_SCHEDULER_H_
#define LOCKSTEP_ENGINE_SCHEDULER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "caches/block_pool.h"
#include "caches/kv_cache.h"
#include "engine/adapter.h"
#include "engine/generate.h"
#include "engine/sampler.h"
#include "engine/transformer.h"

namespace lockstep {

class PrefixCache;  // engine/prefix_cache.h
class Tokenizer;    // engine/tokenizer.h

struct ServeRequest {
  std::vector<int32_t> prompt = {};       // at least one token
  int32_t max_new_tokens = 1;             // at least one
  SamplerOptions sampler = {};            // unless set, greedy
  uint64_t seed = 1;                      // of this request's draws
  std::vector<int32_t> stop_tokens = {};  // it ends after producing one of these
  // It ends after the token with which its new text holds one of these, as StopText finds them in
  // the pieces of the tokenizer; not owned, null where there is none.
  std::vector<std::string> stops = {};
  const Tokenizer* tokenizer = nullptr;
  int32_t log_probabilities = -1;  // GenerateOptions
  std::vector<AppliedAdapter> adapters = {};
};

struct SchedulerOptions {
  int32_t max_running = 8;     // requests that have rows at a time; never more than step_tokens
  int32_t step_tokens = 256;   // rows of a step, of all requests together
  int32_t chunk_tokens = 256;  // of them of one prompt, at most
  // Where a request finds rows of texts that began the same, and leaves its own; over the pool of
  // the caches; not owned, or none.
  PrefixCache* prefixes = nullptr;
};

enum class RequestState : uint8_t {
  kWaiting,     // without rows: not admitted yet, or preempted
  kPrefilling,  // more tokens than one have no rows
  kDecoding,    // its last token alone has none
};

// Where a request stands between two steps.
struct RequestStatus {
  int64_t id = 0;
  RequestState state = RequestState::kWaiting;
  int32_t prompt_tokens = 0;
  int32_t new_tokens = 0;
  int32_t rows = 0;
  int32_t attached = 0;            // of the rows, those that its last admission found
  int32_t preemptions = 0;         // so far
  const KvCache* cache = nullptr;  // of its rows; null while it waits
};

// A token that a step gave.
struct ServedToken {
  int64_t id = 0;  // of its request
  int32_t token = 0;
  bool last = false;     // the request has ended with it
  int32_t attached = 0;  // RequestStatus
  int32_t preemptions = 0;
  bool stopped = false;  // by one of its stops
  // [vocab_size], that it was chosen from; valid until the next Step.
  std::span<const float> logits = {};
  std::optional<TokenLogProbability> log_probability = {};  // if it was asked for
};

struct SchedulerCounters {
  int64_t steps = 0;
  int64_t rows = 0;           // computed
  int64_t recomputed = 0;     // of them, those that a preemption had dropped
  int64_t tokens = 0;         // given
  int64_t most_together = 0;  // requests that one step had rows of
  int64_t admitted = 0;       // anew after each preemption and each failed step
  int64_t preempted = 0;
  int64_t prefix_hits = 0;    // admissions that found rows
  int64_t rows_attached = 0;  // by them

  friend bool operator==(const SchedulerCounters&, const SchedulerCounters&) = default;
};

// First come, first served. The requests that run are always the oldest ones: nobody is admitted
// before somebody older, and what is preempted is the youngest. In each step the oldest advances by
// a row at least, so that each ends: no later than after as many steps as it and those older than
// it have rows.
//
// A step has one row of each request that decodes and a chunk of each whose prompt is not done.
// While it has less than `step_tokens` rows, the next request is admitted, if the pool has the
// blocks of its text and of what admitted ones still lack of theirs; who was refused is looked at
// again when blocks were given back, or other rows can be found. When the pool, the prefix
// index's blocks included, lacks what the step needs, the youngest loses its rows. It keeps its
// tokens and the state of its draws, waits before all others, and computes the rows again.
//
// Not for several threads at once.
class Scheduler {
 public:
  // Requests run on forks of `root`, which stays empty: they share its pool, where it has one.
  // Borrows the transformer and the root, which outlive it; the adapters that are set on the
  // transformer play no part.
  // Throws std::invalid_argument for numbers below 1, a root with rows, and caches that
  // Transformer::ForwardBatch would refuse [F2].
  Scheduler(Transformer& transformer, KvCache& root, const SchedulerOptions& options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Returns the request's id: 1, 2, ... Throws Error, and nothing has changed, for a request that
  // could never run: without a prompt or new tokens, too long for the model's context, the cache or
  // the whole pool, with tokens outside the vocabulary, options that CheckSamplerOptions refuses,
  // adapters that do not fit, or stops without the tokenizer of this vocabulary.
  int64_t Submit(ServeRequest request);

  // Ends a request, whose blocks are free then. False when there is none of that id, or it ended.
  bool Cancel(int64_t id);

  // Computes one step, and returns the tokens that it gave: at most one a request, oldest first.
  // Nothing when no request is there. Valid until the next call that is not const.
  //
  // What ForwardBatch, Fork or PrefixIndex throw, comes out. Then no token was given, and every
  // request has the tokens that it had; all of them wait, and their rows are computed again. So
  // PoolExhausted too: it is thrown when others than these requests and the prefix index hold so
  // many blocks that not even the oldest request can go on.
  std::span<const ServedToken> Step();

  bool idle() const { return live_.empty(); }
  std::vector<RequestStatus> requests() const;  // oldest first
  const SchedulerCounters& counters() const { return counters_; }

 private:
  struct Sequence;
  struct Drawn;
  // Who was not admitted last, and when asking again may have another answer.
  struct Refusal {
    int64_t id = 0;             // 0: nobody
    int32_t room = 0;           // blocks, RoomForTexts
    int64_t index_changes = 0;  // IndexChanges
  };

  void Check(const ServeRequest& request) const;
  int32_t BlocksFor(int32_t rows) const;
  int32_t AvailableBlocks() const;
  int32_t RoomForTexts() const;
  int64_t IndexChanges() const;
  std::span<const std::unique_ptr<Sequence>> running() const;

  void Plan();
  int32_t GiveRows();
  int32_t BlocksOfStep() const;
  int32_t BlocksOfTexts() const;
  void PreemptYoungest();
  bool AdmitNext();
  std::span<const float> Compute();
  void RegisterRows();
  void Draw(std::span<const float> logits);
  void Serve() noexcept;
  void Count() noexcept;

  Transformer& transformer_;
  KvCache& root_;
  const BlockPool* pool_;  // null: none
  const SchedulerOptions options_;
  std::vector<int32_t> positions_;               // 0, 1, ... to the end of the longest text
  std::vector<std::unique_ptr<Sequence>> live_;  // by id; the first running_ of them have caches
  size_t running_ = 0;
  int64_t next_id_ = 1;
  Refusal refused_;
  SchedulerCounters counters_;

  // Of the step in progress.
  std::vector<Sequence*> planned_;    // those that have rows in it
  std::vector<BatchSequence> batch_;  // of these
  std::vector<Drawn> drawn_;
  std::vector<ServedToken> served_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_SCHEDULER_H_
