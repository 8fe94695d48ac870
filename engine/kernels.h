// The kernel table: every floating-point operation between tokens and logits, behind one seam.
//
// One table per instruction set, chosen once; its name is printed. All tables give the same bits
// (engine/ARITHMETIC.md is the definition). A kernel may be partitioned over *outputs* freely, so
// the range arguments below are how threads share the work; no argument cuts a reduction.
#ifndef LOCKSTEP_ENGINE_KERNELS_H_
#define LOCKSTEP_ENGINE_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "caches/aligned_buffer.h"
#include "caches/kv_cache.h"
#include "engine/gguf.h"

namespace lockstep {

// A weight matrix [rows, cols] (rows = outputs, cols = the reduction), repacked so that 16 output
// rows are interleaved and a vector lane is an output row. The tail group is padded with zero rows
// that are computed and never stored. Movable, not copyable.
class PackedMatrix {
 public:
  static constexpr int32_t kGroupRows = 16;
  static constexpr int32_t kPackGroups = 2;  // groups that are packed together

  PackedMatrix() = default;
  // `data`: rows * cols elements of `type` as GGUF stores them. Throws Error when cols is no
  // multiple of the type's block.
  PackedMatrix(GgmlType type, int32_t rows, int32_t cols, std::span<const std::byte> data);

  // Bytes of the packed form, a multiple of 64. Throws Error as the constructor does.
  static int64_t PackedBytes(GgmlType type, int32_t rows, int32_t cols);

  // A matrix in the caller's memory, 64-byte aligned, PackedBytes long, which outlives it.
  // Unspecified until Pack has run over all groups.
  static PackedMatrix Over(std::span<std::byte> memory, GgmlType type, int32_t rows, int32_t cols);

  // Packs groups [group_begin, group_end) of `data`, which is the whole matrix. Ranges that do not
  // overlap may be packed at the same time. REQUIRES: group_begin is a multiple of kPackGroups, and
  // so is group_end unless it is groups().
  void Pack(std::span<const std::byte> data, int32_t group_begin, int32_t group_end);

  GgmlType type() const { return type_; }
  int32_t rows() const { return rows_; }
  int32_t cols() const { return cols_; }
  int32_t groups() const { return (rows_ + kGroupRows - 1) / kGroupRows; }
  bool quantized() const { return IsQuantized(type_); }
  // The packed bytes, 64-byte aligned (engine/kernels/packed_layout.h), and how many belong to each
  // group of 16 rows.
  const std::byte* data() const { return data_; }
  int64_t group_bytes() const { return group_bytes_; }

 private:
  GgmlType type_ = GgmlType::kF32;
  int32_t rows_ = 0;
  int32_t cols_ = 0;
  int64_t group_bytes_ = 0;
  std::byte* data_ = nullptr;         // groups * group_bytes, padding groups too
  AlignedBuffer<std::byte> storage_;  // what data_ points to, when it is the matrix's own
};

// 32 activations quantized (engine/ARITHMETIC.md 4.1). What a dot product needs lies together: a
// kernel follows one pointer a token.
struct ActivationBlock {
  int8_t quants[32];
  float scale;
  int32_t offset;  // -128 * the sum of quants: turns a sum with weights + 128 into one with weights
};

// The inputs of a matmul: n rows of F32 and, for quantized weights, the same rows quantized.
struct Activations {
  int32_t tokens = 0;
  int32_t cols = 0;
  const float* values = nullptr;            // [tokens, cols]
  const ActivationBlock* blocks = nullptr;  // [tokens, cols / 32]
};

struct AttentionShape {
  int32_t num_heads = 0;     // query heads
  int32_t num_kv_heads = 0;  // query head h reads KV head h / (num_heads / num_kv_heads)
  int32_t head_dim = 0;
  float scale = 0;     // of the dot products; 0: 1 / sqrt(head_dim)
  int32_t window = 0;  // rows that a query sees at most, the last ones; 0: all
  float cap = 0;       // of the scores, cap * tanh(score / cap); 0: none
};

// Queries of one sequence that read one view. Query i sees rows [0, visible[i]), of which a window
// leaves the last ones; other rows are not read.
struct AttentionQueries {
  int32_t count = 0;
  const float* q = nullptr;          // [count, num_heads * head_dim]
  float* out = nullptr;              // the same shape
  const int32_t* visible = nullptr;  // [count], increasing, each in [1, view.length]
};

// Floats of scratch that the attention of queries seeing at most `visible` rows needs.
int64_t AttentionScratch(const AttentionShape& shape, int32_t visible);

struct KernelTable {
  std::string_view name;  // "scalar"

  // y[t][r] = sum over k of w[r, k] * x[t, k] for output groups [group_begin, group_end).
  // y: one pointer a token, so that the rows of several sequences land in their own cache slots;
  // exactly w.rows() elements of a row are ever written.
  void (*matmul)(const PackedMatrix& w, const Activations& x, int32_t group_begin,
                 int32_t group_end, float* const* y);

  // Blocks of 32 of one row. REQUIRES: cols % 32 == 0.
  void (*quantize_activations)(const float* x, int32_t cols, ActivationBlock* blocks);

  // y = (x * r) * weight, r = 1 / sqrt(tree16(x * x) / n + eps). x and y may be the same row.
  void (*rms_norm)(const float* x, const float* weight, int32_t n, float eps, float* y);

  // Rotates pairs (2i, 2i + 1), i < rope_dim / 2, of each of num_heads heads in place.
  // cos and sin: [rope_dim / 2], RopeTable's row of the position.
  void (*rope_interleaved)(float* x, int32_t num_heads, int32_t head_dim, int32_t rope_dim,
                           const float* cos, const float* sin);

  // The same for pairs (i, i + rope_dim / 2).
  void (*rope_halves)(float* x, int32_t num_heads, int32_t head_dim, int32_t rope_dim,
                      const float* cos, const float* sin);

  // Heads [head_begin, head_end) of each query against the view.
  // scratch: AttentionScratch(shape, largest visible) floats, 64-byte aligned, one for each thread.
  // REQUIRES: rows in block formats have head_dim % 32 == 0.
  void (*attention)(const AttentionShape& shape, const AttentionQueries& queries,
                    const KvView& view, int32_t head_begin, int32_t head_end, float* scratch);

  // out = (gate / (1 + exp(-gate))) * up. out may be gate.
  void (*silu_gate)(const float* gate, const float* up, int32_t n, float* out);

  // The same with GELU (its tanh approximation) in place of SiLU.
  void (*gelu_gate)(const float* gate, const float* up, int32_t n, float* out);

  // y += x.
  void (*add)(const float* x, int32_t n, float* y);

  // y *= factor.
  void (*scale)(float factor, int32_t n, float* y);

  // y = tanh(y / cap) * cap.
  void (*soft_cap)(float cap, int32_t n, float* y);
};

// Tables that this machine can run, best last; the first is always "scalar".
std::span<const KernelTable* const> AvailableKernels();

// The table of that name, or of LOCKSTEP_ISA, or the best, in this order.
// Throws Error naming the available ones when the wanted one is not among them.
const KernelTable& SelectKernels(std::string_view name = {});

// One row of a weight matrix as GGUF stores it, decoded exactly to F32 (token embeddings).
void DecodeWeights(GgmlType type, std::span<const std::byte> data, std::span<float> out);

// Lowest index of the largest value; NaN never wins. REQUIRES: not empty.
int32_t ArgMax(std::span<const float> values);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_KERNELS_H_
