// What an engine script drives: the arithmetic between a list of operations and the engine's calls.
// Behind virtual functions, so that wrong ones can be put in its place: the checks have to find
// them.
#ifndef LOCKSTEP_PROPERTIES_ENGINE_DRIVER_H_
#define LOCKSTEP_PROPERTIES_ENGINE_DRIVER_H_

#include <cstdint>
#include <memory>
#include <span>

#include "caches/kv_cache.h"
#include "engine/shift.h"
#include "engine/transformer.h"

namespace lockstep {

class EngineDriver {
 public:
  explicit EngineDriver(Transformer& engine) : engine_(engine) {}
  virtual ~EngineDriver() = default;
  EngineDriver(const EngineDriver&) = delete;
  EngineDriver& operator=(const EngineDriver&) = delete;

  // Transformer::ForwardBatch. Logits [sequences, vocab_size], valid until the next call.
  virtual std::span<const float> Step(std::span<const BatchSequence> batch) {
    return engine_.ForwardBatch(batch);
  }

  // The pending token and drafts behind it in one step, of which `accepted` are kept: the cache
  // ends with accepted + 1 rows more. Logits of the last draft.
  //   Leviathan, Kalman, Matias, "Fast Inference from Transformers via Speculative Decoding",
  //   ICML 2023, algorithm 1.
  virtual std::span<const float> Speculate(const BatchSequence& sequence, int32_t accepted) {
    const std::span<const float> logits = Step({&sequence, 1});
    sequence.cache->Rollback(sequence.positions.front() + accepted + 1);
    return logits;
  }

  virtual void Rollback(KvCache& cache, int32_t length) { cache.Rollback(length); }
  virtual void Shift(KvCache& cache, const DeletedSpan& deleted) {
    ShiftContext(engine_.model().config(), engine_.kernels(), deleted, &cache);
  }
  virtual std::unique_ptr<KvCache> Fork(KvCache& cache) { return cache.Fork(); }

 protected:
  Transformer& engine() { return engine_; }

 private:
  Transformer& engine_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_ENGINE_DRIVER_H_
