// A batch of sequences: what is checked before the first write, how it is cut into internal steps,
// and how it is undone.
#ifndef LOCKSTEP_ENGINE_MODEL_BATCH_H_
#define LOCKSTEP_ENGINE_MODEL_BATCH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model.h"
#include "engine/transformer.h"

namespace lockstep {

// The rows that one sequence has in an internal step.
struct StepPiece {
  std::span<const int32_t> tokens;     // [n], n >= 1
  std::span<const int32_t> positions;  // [n], strictly increasing
  KvCache* cache = nullptr;            // nullptr: positions are 0..n-1, K and V stay in scratch
  TraceSink* trace = nullptr;
  int32_t wanted = 0;  // of so many of these rows, the last ones, logits are wanted
  int32_t output = 0;  // the first of them is this row of the logits
  std::span<const AppliedAdapter> adapters = {};
};

// Throws std::invalid_argument without tokens, std::out_of_range for one that does not exist.
void CheckTokens(const ModelConfig& config, std::span<const int32_t> tokens);

// Throws what Transformer::SetAdapters promises; `sequences` as the message names them.
void CheckAdapters(const ModelConfig& config, std::span<const AppliedAdapter> adapters);

// Throws what Transformer::ForwardBatch promises [F2].
void CheckBatch(const ModelConfig& config, std::span<const BatchSequence> batch);

class BatchPlan {
 public:
  // REQUIRES: CheckBatch passed; the batch outlives the plan's use.
  void Start(std::span<const BatchSequence> batch, int32_t max_step_tokens);

  // Rows of the largest step, at most; rows of logits; the largest position.
  int32_t max_rows() const { return max_rows_; }
  int32_t outputs() const { return outputs_; }
  int32_t last_position() const { return last_position_; }

  // The next step: sequences in order, each with as many rows as it and its cache still have, up to
  // max_step_tokens rows together. Empty at the end. Valid until the next call.
  std::span<const StepPiece> Next();

  // Leaves every cache as a step that throws has to [F1], also those that the step did not reach:
  // that cancels reservations. A cache that has forgotten what this needs is cleared. All are
  // tried; throws what the first broken Rollback threw.
  void RollBack();

 private:
  struct Progress {
    size_t done = 0;     // tokens
    int32_t output = 0;  // row of the logits of the first token that has some
    int32_t undo = 0;    // the length that undoes the step: longer layers shrink to it
    int32_t span = 0;    // positions that the rows of an internal step may lie in
  };

  std::span<const BatchSequence> batch_;
  int32_t max_step_tokens_ = 0;
  int32_t max_rows_ = 0;
  int32_t outputs_ = 0;
  int32_t last_position_ = 0;
  std::vector<Progress> progress_;  // of each sequence
  std::vector<StepPiece> pieces_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_MODEL_BATCH_H_
