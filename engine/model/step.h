// One internal step of the forward pass: at most max_step_tokens tokens through every layer.
#ifndef LOCKSTEP_ENGINE_MODEL_STEP_H_
#define LOCKSTEP_ENGINE_MODEL_STEP_H_

#include <cstdint>
#include <span>
#include <vector>

#include "caches/kv_cache.h"
#include "engine/model/batch.h"
#include "engine/model/workspace.h"
#include "engine/transformer.h"

namespace lockstep {

class StepRunner {
 public:
  StepRunner(const Model& model, const KernelTable& kernels, const ProjectionHook* hook,
             Workspace* workspace)
      : model_(model), config_(model.config()), kernels_(kernels), hook_(hook), ws_(*workspace) {}

  // REQUIRES: room in the workspace, valid input. Logits land in the workspace.
  void Run(std::span<const StepPiece> pieces);

 private:
  // Where a layer's new K and V rows are computed: a slot of the cache, or scratch.
  struct KvRowsInPlace {
    std::span<float> keys;    // [n, kv_dim]
    std::span<float> values;  // [n, kv_dim]
    bool in_cache = false;
  };

  void Embed();
  void AttentionBlock(int32_t layer);
  void FfnBlock(int32_t layer);
  void Logits();

  KvRowsInPlace ReserveRows(int32_t layer);
  void ProjectAndRotate(int32_t layer, const KvRowsInPlace& kv);
  void StoreRows(int32_t layer, const KvRowsInPlace& kv);
  void Attend(int32_t layer);

  void Project(int32_t layer, Projection projection, const PackedMatrix& w,
               const std::vector<float>& bias, const Activations& input, std::span<float> out);
  void NormHeads(std::span<float> rows, int32_t heads, const std::vector<float>& weight);
  void Rotate(std::span<float> rows, int32_t heads);
  void ReadView(int32_t layer, int32_t position, KvView* view) const;
  void TraceCacheRows(int32_t layer);

  // rows [n, cols]; the Q8 form is made only when a consumer is quantized.
  Activations Prepare(std::span<const float> rows, int32_t n, int32_t cols, bool quantize);
  void Matmul(const PackedMatrix& w, const Activations& x, std::span<float> out);
  void NormRows(std::span<const float> rows, const std::vector<float>& weight,
                std::span<float> out) const;
  void AddToResidual(std::span<const float> rows);

  void Trace(int32_t layer, Stage stage, std::span<const float> rows, int64_t width) const {
    if (in_.trace != nullptr) [[unlikely]] {
      in_.trace->OnStage({layer, stage, in_.positions, rows, width});
    }
  }

  // The first n rows of a workspace buffer.
  std::span<float> Rows(AlignedBuffer<float>& buffer, int64_t width) const {
    return buffer.span().first(static_cast<size_t>(n_ * width));
  }

  const Model& model_;
  const ModelConfig& config_;
  const KernelTable& kernels_;
  const ProjectionHook* hook_;
  Workspace& ws_;

  StepPiece in_;
  int32_t n_ = 0;             // tokens of the step in progress
  std::vector<float*> rows_;  // of a matmul's output
  KvView view_;               // reused, so that reading does not allocate once it has grown
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_MODEL_STEP_H_
