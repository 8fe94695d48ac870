// The plain reference of one sequence: its tokens, one a step and alone, through the scalar kernels
// on one thread, into a ModelCache by Update.
#ifndef LOCKSTEP_PROPERTIES_ENGINE_REFERENCE_H_
#define LOCKSTEP_PROPERTIES_ENGINE_REFERENCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/shift.h"
#include "engine/transformer.h"
#include "oracle/model_cache.h"

namespace lockstep {

// Writes of a failed step that reached a layer, positions in order.
struct LostRows {
  int32_t layer = 0;
  std::vector<int32_t> positions;
};

class EngineReference {
 public:
  // REQUIRES: a transformer of the scalar kernels and one thread (LS_CHECK), which outlives it.
  EngineReference(Transformer& plain, const ModelCacheOptions& options);
  EngineReference(const EngineReference& other);
  EngineReference& operator=(const EngineReference&) = delete;
  ~EngineReference();

  // REQUIRES: the tokens fit; the adapters outlive this object.
  void Append(std::span<const int32_t> tokens, std::span<const AppliedAdapter> adapters = {});

  // How rows go away must not be what the subject does. Without a window nothing but the rows
  // themselves counts, so a new cache is made of the first `length` rows as they were once
  // computed. With one it counts which rows were pushed out of it, or forgotten, which is what
  // ModelCache::Rollback says [Q2, W2]. REQUIRES: CanRollback(cache(), length).
  void Rollback(int32_t length);

  // A step failed after these writes: they are rolled back, and what they pushed out of a window
  // stays out [Q2], what they made a layer forget is forgotten [W2]. Where that cannot be rolled
  // back, nothing is left [F1].
  void Lose(std::span<const LostRows> writes);

  // By PlainTurnBack. REQUIRES: ShiftContext would not refuse it.
  void Shift(const DeletedSpan& deleted);

  const KvCache& cache() const;
  bool has_window() const;  // of exact rows
  bool forgets() const;     // layers that look back no further than their window
  int32_t length() const { return static_cast<int32_t>(tokens_.size()); }
  std::span<const int32_t> tokens() const { return tokens_; }
  // Of the last token; empty when that is not the last one appended.
  const std::vector<float>& logits() const { return logits_; }

  // The cache hash [X1] and, without a window, the storage hash [X2].
  const Digest& rows() const;
  const Digest& storage() const;

  // All tokens in one step for each run of equal adapters, into a new cache: what differs from the
  // tokens one by one, or nothing.
  // Where rows were pushed out of a window before they had to be, or have moved, there is nothing
  // to compare with.
  std::optional<std::string> CompareWhole() const;

 private:
  class LoggedCache;

  void Changed() { rows_.reset(), storage_.reset(); }

  Transformer& plain_;
  std::unique_ptr<LoggedCache> cache_;
  std::vector<int32_t> tokens_;
  std::vector<std::span<const AppliedAdapter>> adapters_;  // of each token
  std::vector<float> logits_;
  bool pushed_out_ = false;      // rows that a window of the same tokens would hold
  int32_t unmoved_ = INT32_MAX;  // of the rows before it these tokens are all that counts
  mutable std::optional<Digest> rows_;
  mutable std::optional<Digest> storage_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_ENGINE_REFERENCE_H_
