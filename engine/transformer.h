// The forward pass of a decoder-only transformer over any KvCache.
//
//   x = embed(token)
//   for each layer:  x += Wo * attention(rope(Wq * norm(x)), cache);  x += FFN(norm(x))
//   logits = Wout * norm(x of the last token)
//
// K and V are computed in the cache's own memory where the cache grants a slot, else in scratch
// that Update copies. Both ways are the same bits: that is what lockstep proves.
#ifndef LOCKSTEP_ENGINE_TRANSFORMER_H_
#define LOCKSTEP_ENGINE_TRANSFORMER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "caches/device.h"
#include "caches/error.h"
#include "caches/kv_cache.h"
#include "engine/adapter.h"
#include "engine/kernels.h"
#include "engine/model.h"
#include "engine/trace.h"

namespace lockstep {

enum class Projection : uint8_t { kQuery, kKey, kValue };

// Changes a projection's output in place, after bias and adapters and before QK-norm and RoPE: a
// seam for what the engine does not know. The same call runs on a cache slot and on scratch.
class ProjectionHook {
 public:
  virtual ~ProjectionHook() = default;
  // input [n, dim] (the normed rows), output [n, width] to change in place.
  virtual void Apply(int32_t layer, Projection projection, std::span<const float> input,
                     std::span<float> output, int32_t n) const = 0;
};

struct TransformerOptions {
  const KernelTable* kernels = nullptr;  // nullptr: SelectKernels()
  const ProjectionHook* hook = nullptr;  // not owned
  int32_t max_step_tokens = 512;         // longer inputs run as several steps; changes no bit
  int32_t threads = 1;                   // the caller's is one of them; changes no bit
  // Where the first layers run, in steps whose caches all have these layers on that device; the
  // rest, and every other step, runs on the host. What a step applies of an adapter is uploaded
  // with the first step that does, and stays as long as the adapter does. Changes no bit.
  std::shared_ptr<Device> device = nullptr;  // nullptr: the host
  int32_t device_layers = INT32_MAX;         // at most; all: embedding and logits as well
};

// How much of a Transformer's work ran on its device.
struct DeviceUse {
  int64_t layer_steps = 0;  // layers, summed over internal steps
  int64_t graph_steps = 0;  // internal steps that replayed a recorded graph
  int64_t graphs_recorded = 0;
};

// One sequence of a batch: what a step appends to its cache.
struct BatchSequence {
  std::span<const int32_t> tokens;     // [n], n >= 1
  std::span<const int32_t> positions;  // [n], strictly increasing
  KvCache* cache = nullptr;            // not owned; no other sequence of the batch has it
  TraceSink* trace = nullptr;          // sees this sequence alone
  // Of this sequence alone, added in this order; the adapters' matrices and this list stay as they
  // are during the call.
  std::span<const AppliedAdapter> adapters = {};
  // Of how many of the last tokens logits are returned, in [0, n]. A verifier of drafts wants more
  // than one, a chunk of a prompt that is not its last none.
  int32_t logits = 1;
};

// Thrown inside a step when the cache does not hold what its contract promises and going on would
// touch memory that is not there: a slot of the wrong size, a view without the rows just written.
class BrokenCache : public std::logic_error {
 public:
  BrokenCache(int32_t layer, const std::string& what);
  int32_t layer() const { return layer_; }

 private:
  int32_t layer_;
};

// What is thrown for a model that is larger, in some way, than the kernels of a device take.
class UnsupportedOnDevice : public Error {
 public:
  using Error::Error;
};

// One forward workspace over a shared model. Not for several threads at once; make one for each.
class Transformer {
 public:
  // Throws std::invalid_argument unless max_step_tokens and threads are at least 1 and
  // device_layers is not negative, and for a hook together with a device (hooks run on the host);
  // what ThreadTeam throws; with a device UnsupportedOnDevice, for heads or experts beyond what its
  // kernels take, std::bad_alloc and DeviceError.
  explicit Transformer(std::shared_ptr<const Model> model, TransformerOptions options = {});
  ~Transformer();
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  // What Forward, ForwardGreedy and ForwardUncached add from now on, in this order; at first
  // nothing. ForwardBatch is told for each sequence. The rows that caches hold stay as they are:
  // each is what the adapters of its own step made of it.
  //
  // Throws std::invalid_argument, and changes nothing, when an adapter is null or does not fit the
  // model, or a scale is not finite; ForwardBatch throws the same [F2].
  void SetAdapters(std::vector<AppliedAdapter> adapters);
  std::span<const AppliedAdapter> adapters() const;  // valid until the next SetAdapters

  // One step: writes the rows of `positions` into the cache, returns the last token's logits
  // ([vocab_size], valid until the next call).
  //
  // Before any write [F2]: std::invalid_argument when tokens and positions differ in number or are
  // empty, when positions are not strictly increasing, when the cache's geometry is not the
  // model's, or when a layer is shorter than both another layer and positions[0] (no rollback could
  // undo the step); std::out_of_range for a token outside the vocabulary or a position outside the
  // model's context or the cache. Each query is masked by its own position.
  //
  // When anything throws after that, no row of the step is visible [F1]: every layer's length is
  // the smaller of its old length and positions[0]. Longer inputs than max_step_tokens or
  // cache.max_step_rows() run as several internal steps, each traced by itself; the call fails as
  // a whole. It is ForwardBatch of one.
  std::span<const float> Forward(std::span<const int32_t> tokens,
                                 std::span<const int32_t> positions, KvCache& cache,
                                 TraceSink* trace = nullptr);

  // Forward, of which only the greedy token is wanted: the lowest index of the largest logit. Where
  // all layers run on a device the logits stay there, and this one number comes to the host.
  int32_t ForwardGreedy(std::span<const int32_t> tokens, std::span<const int32_t> positions,
                        KvCache& cache, TraceSink* trace = nullptr);

  // One step of several sequences: of any lengths, prefill beside decode, caches of any kinds,
  // caches that share a BlockPool included. Returns the logits of each sequence's last tokens, as
  // many as it asks for ([their sum, vocab_size], in the batch's order, valid until the next call).
  // Each weight is read once for all rows of an internal step; max_step_tokens counts the rows of
  // all sequences.
  //
  // Every bit that a sequence leaves, logits, rows and trace, is what Forward would have left with
  // this sequence alone, whatever the others are and in whatever order they stand [F3].
  //
  // All sequences are checked as Forward says before the first write [F2]; std::invalid_argument
  // also for an empty batch, a sequence without a cache, two with the same one, and a number of
  // logits outside [0, n]. When anything
  // throws after that, no row of the step is visible in any cache of the batch [F1].
  std::span<const float> ForwardBatch(std::span<const BatchSequence> batch);

  // The same without a cache: positions 0..n-1, K and V live in scratch and are forgotten.
  std::span<const float> ForwardUncached(std::span<const int32_t> tokens,
                                         TraceSink* trace = nullptr);

  const Model& model() const;
  const KernelTable& kernels() const;
  int32_t threads() const;
  bool has_hook() const;
  DeviceUse device_use() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_TRANSFORMER_H_
