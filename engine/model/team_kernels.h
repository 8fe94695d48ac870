// The kernels of a step, shared out among a team of threads over outputs: each function here gives
// the bits of the kernel alone, whatever the size of the team.
//
// One job each, and few of them: a job costs a decode step a microsecond. What is tiny stays on the
// caller's thread.
#ifndef LOCKSTEP_ENGINE_MODEL_TEAM_KERNELS_H_
#define LOCKSTEP_ENGINE_MODEL_TEAM_KERNELS_H_

#include <cstdint>
#include <span>

#include "caches/aligned_buffer.h"
#include "engine/kernels.h"
#include "engine/model.h"
#include "engine/thread_team.h"

namespace lockstep {

// y[t] = w x[t], and in the same pass over the outputs, by the thread that computed them:
struct Product {
  const PackedMatrix* w = nullptr;
  float* const* y = nullptr;         // one row [w.rows] a token
  const float* bias = nullptr;       // y[t] += bias [w.rows], or none
  float* const* residual = nullptr;  // then residual[t] += y[t], or none
  float scale = 1;                   // of y[t] before that
};

// out[t] = activation(gate x[t]) * (up x[t]), and the same rows quantized.
struct GatedProduct {
  const PackedMatrix* gate = nullptr;
  const PackedMatrix* up = nullptr;   // the same shape
  float* const* gate_rows = nullptr;  // out: one row [gate.rows] a token
  float* const* up_rows = nullptr;    // scratch of the same shape
  ActivationBlock* blocks = nullptr;  // [tokens, gate.rows / 32], or not wanted
  Activation activation = Activation::kSilu;
};

// Queries [first, first + count) of a step, of one sequence, that read one view.
struct AttentionTile {
  const KvView* view = nullptr;
  int32_t first = 0;
  int32_t count = 0;
};

struct AttentionJob {
  AttentionShape shape;
  std::span<const AttentionTile> tiles;
  const float* q = nullptr;           // [rows of the step, num_heads * head_dim]
  float* out = nullptr;               // the same shape
  const int32_t* visible = nullptr;   // [rows of the step], as AttentionQueries has it
  ActivationBlock* blocks = nullptr;  // out, quantized: [rows, q_dim / 32], or not wanted
};

class TeamKernels {
 public:
  TeamKernels(const KernelTable& kernels, ThreadTeam* team) : kernels_(kernels), team_(*team) {}

  const KernelTable& table() const { return kernels_; }

  // Room for the attention of queries that see at most `visible` rows, in each thread.
  void ReserveScratch(const AttentionShape& shape, int32_t visible);

  // fn(begin, end) for ranges that make up [0, rows); on the caller's thread alone when rows of
  // `width` elements are too little to share.
  template <typename Fn>
  void ForRows(int64_t rows, int64_t width, Fn&& fn) {
    if (rows * width < kSharedElements) {
      fn(int64_t{0}, rows);
      return;
    }
    team_.Run([&](int32_t part) {
      const PartRange range = PartOf(rows, part, team_.size());
      if (!range.empty()) fn(range.begin, range.end);
    });
  }

  // All products of one input: the groups of all matrices in one row, cut once, so that a thread
  // reads one stretch of memory when the matrices lie one after another.
  void Multiply(const Activations& x, std::span<const Product> products);

  // A thread computes the same rows of both matrices, so that the gate needs no other's outputs.
  void Gate(const Activations& x, const GatedProduct& product);

  // Pairs of query tile and head, shared out by the rows that they read.
  void Attend(const AttentionJob& job);

 private:
  static constexpr int64_t kSharedElements = 8192;

  void MultiplyPart(const Activations& x, std::span<const Product> products, int32_t part);
  void GatePart(const Activations& x, const GatedProduct& product, int32_t part);
  void AttendPart(const AttentionJob& job, int64_t cost, int32_t part);
  void AttendHeads(const AttentionJob& job, const AttentionTile& tile, int32_t head_begin,
                   int32_t head_end, float* scratch);

  const KernelTable& kernels_;
  ThreadTeam& team_;
  int64_t scratch_floats_ = 0;  // of one thread
  AlignedBuffer<float> scratch_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_MODEL_TEAM_KERNELS_H_
