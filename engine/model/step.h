// One internal step of the forward pass: the rows of one or several sequences through every layer.
#ifndef LOCKSTEP_ENGINE_MODEL_STEP_H_
#define LOCKSTEP_ENGINE_MODEL_STEP_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "caches/kv_cache.h"
#include "engine/model/batch.h"
#include "engine/model/expert_ffn.h"
#include "engine/model/team_kernels.h"
#include "engine/model/workspace.h"
#include "engine/thread_team.h"
#include "engine/transformer.h"

namespace lockstep {

// Caches, traces and the hook are called by the caller's thread alone, sequences in order. The team
// works between these calls.
class StepRunner {
 public:
  StepRunner(const Model& model, const KernelTable& kernels, const ProjectionHook* hook,
             ThreadTeam* team, Workspace* workspace)
      : model_(model),
        config_(model.config()),
        shape_{.num_heads = config_.num_heads,
               .num_kv_heads = config_.num_kv_heads,
               .head_dim = config_.head_dim,
               .scale = config_.attention_scale,
               .cap = config_.attention_cap},
        hook_(hook),
        kernels_(kernels, team),
        ws_(*workspace) {
    if (config_.num_experts > 0) experts_.emplace(config_, &kernels_);
  }

  // Room for queries that see at most `visible` rows.
  void ReserveVisible(int32_t visible) { kernels_.ReserveScratch(shape_, visible); }

  // Room for steps of `rows` rows, beside the workspace's.
  void ReserveExperts(int32_t rows) {
    if (experts_) experts_->Reserve(rows);
  }

  // REQUIRES of all: room in the workspace, valid input.
  void Run(std::span<const StepPiece> pieces);

  // The same in two halves, between which something else runs layers [0, first_layer): it finds the
  // embedded tokens in the rows that Embedded gives, [rows of the step, dim], and leaves the
  // residual stream there.
  std::span<float> Embedded(std::span<const StepPiece> pieces);
  void RunFrom(int32_t first_layer);

  // The logits of rows [0, outputs), into the workspace. REQUIRES: the pieces that want them have
  // run.
  void Logits(int32_t outputs);

 private:
  // One sequence's rows of the step.
  struct Piece {
    StepPiece in;
    int32_t first = 0;  // row in the workspace
    int32_t count = 0;
    std::span<float> keys;  // of the layer in progress: a slot of the cache, or scratch
    std::span<float> values;
    bool in_cache = false;
  };

  // The token that a row of logits is of.
  struct End {
    TraceSink* trace = nullptr;
    int32_t position = 0;
  };

  void Begin(std::span<const StepPiece> pieces);
  void Embed();
  void AttentionBlock(int32_t layer);
  void FfnBlock(int32_t layer);
  void ExpertBlock(int32_t layer);
  void KeepWantedRows();

  // step_kv.cc: all that touches a cache.
  void ReserveRows(int32_t layer);
  void ReserveRows(int32_t layer, Piece* piece);
  void StoreRows(int32_t layer);
  void Attend(int32_t layer, bool quantize);
  void AttendTiles(bool quantize);
  void AddTiles(int32_t layer, const Piece& piece, bool quantize);
  KvView* NextView(bool quantize);
  void ReadView(int32_t layer, const Piece& piece, int32_t position, KvView* view) const;
  void TraceCacheRows(int32_t layer, const Piece& piece);

  void Project(int32_t layer);
  void ApplyHook(int32_t layer);

  // step_adapters.cc: what LoRA adds.
  bool Adapts(int32_t layer, AdapterTarget target) const;
  // y[t] += what each sequence's adapters make of its rows of x, [n, inputs] of the matrix.
  void AddAdapters(int32_t layer, AdapterTarget target, const float* x, float* const* y);
  void AddPair(const LoraPair& pair, float scale, const Activations& x, float* const* y);
  // residual += norm(scale * (w x with the adapters of w)), without the norm where it is empty.
  void AddToResidual(int32_t layer, AdapterTarget target, const PackedMatrix& w,
                     const std::vector<float>& norm, const Activations& x);
  // The gate's rows, and the blocks of them unless these are not wanted.
  void Gate(int32_t layer, const Activations& x, ActivationBlock* blocks);

  void FinishRows(int32_t layer);
  void FinishHeads(int32_t layer, float* row, int32_t heads, const std::vector<float>& norm,
                   int32_t position);
  void Scale(float factor, int32_t n, float* row) const;
  // The normed residual rows, quantized when a matrix that reads them is.
  Activations NormRows(const std::vector<float>& weight, bool quantize);

  void Trace(int32_t layer, Stage stage, RowBuffer* buffer) const;
  static void TraceRows(const Piece& piece, int32_t layer, Stage stage, std::span<const float> rows,
                        int64_t width) {
    if (piece.in.trace != nullptr) [[unlikely]] {
      piece.in.trace->OnStage({layer, stage, piece.in.positions, rows, width});
    }
  }

  const Model& model_;
  const ModelConfig& config_;
  AttentionShape shape_;  // its window is that of the layer in progress
  const ProjectionHook* hook_;
  TeamKernels kernels_;
  Workspace& ws_;
  std::optional<ExpertFfn> experts_;  // of a model with experts

  // All reused, so that a step allocates nothing once they have grown.
  std::vector<Piece> pieces_;
  std::vector<End> ends_;  // of each row of logits
  int32_t n_ = 0;          // rows of the step in progress
  std::vector<KvView> views_;
  size_t views_used_ = 0;
  std::vector<AttentionTile> tiles_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_MODEL_STEP_H_
