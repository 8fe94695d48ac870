// The kernels of the forward pass on a device: each function computes its grid and enqueues one or
// a few launches. The bits are engine/ARITHMETIC.md's, those of KernelTable on the host.
//
// Matrices of activations are [rows, columns], row-major and without gaps, F32. Weights are the
// bytes of a PackedMatrix as they are, uploaded unchanged.
//
// A recorded graph is replayed for other tokens and positions. So everything that changes from step
// to step is read from device memory when the kernel runs: token ids, positions, exact_first, the
// exact rows of a view. What is passed by value is the same for all replays: the number of rows,
// shapes, addresses, and `positions_max`, an upper bound of the positions that are visible.
//
// Where an argument may be empty ({}), "or {}" says so. Input and output may not overlap unless it
// says so. Sizes that disagree fail an LS_CHECK; what lies in device memory is not checked.
#ifndef LOCKSTEP_ENGINE_DEVICE_KERNELS_H_
#define LOCKSTEP_ENGINE_DEVICE_KERNELS_H_

#include <cstdint>

#include "caches/device.h"
#include "caches/device_kv.h"
#include "engine/kernels.h"

namespace lockstep::device {

// Bytes of an ActivationBlock, which is the same struct on a device. Rows of them are passed as
// bytes: [rows, cols / 32, kActivationBytes].
inline constexpr int64_t kActivationBytes = sizeof(ActivationBlock);

// Bytes of `rows` rows of `cols` elements, quantized.
inline int64_t QuantizedBytes(int64_t rows, int32_t cols) {
  return rows * (cols / 32) * kActivationBytes;
}

// A PackedMatrix on the device, or several of one type and shape, one behind the other.
struct DeviceMatrix {
  GgmlType type = GgmlType::kF32;
  int32_t rows = 0;  // outputs
  int32_t cols = 0;  // of the reduction
  // count * PackedMatrix::PackedBytes(type, rows, cols), 16-byte aligned.
  Global<const uint8_t> bytes;
  int32_t count = 1;

  bool quantized() const { return IsQuantized(type); }
};

// out[i] = row tokens[i] of the table, decoded, times `scale`.
// tokens [n], each in [0, table.rows); out [n, table.cols].
void Embed(DeviceStream& stream, const DeviceMatrix& table, Global<const int32_t> tokens, int32_t n,
           float scale, Global<float> out);

struct RmsNormArgs {
  Global<const float> x;       // [rows, n]
  Global<const float> weight;  // [n]
  int32_t rows = 0;
  int32_t n = 0;
  float eps = 0;
  Global<float> y;         // [rows, n]; may be x
  Global<uint8_t> blocks;  // y quantized, or {}
  Global<float> residual;  // [rows, n], += y; or {}
};
void RmsNorm(DeviceStream& stream, const RmsNormArgs& args);

// x [rows, cols], cols % 32 == 0; blocks as above.
void QuantizeActivations(DeviceStream& stream, Global<const float> x, int32_t rows, int32_t cols,
                         Global<uint8_t> blocks);

// y = w x, then in this order, each where it is given: y += bias; y *= scale; y = the soft-cap of
// y; residual += y.
struct MatMulArgs {
  DeviceMatrix w;
  int32_t tokens = 0;
  Global<const float> x;         // [tokens, w.cols]; {} for quantized weights
  Global<const uint8_t> blocks;  // x quantized; {} for float weights
  Global<float> y;               // [tokens, w.rows], or {} with a residual
  Global<const float> bias;      // [w.rows], or {}
  float scale = 1;
  float cap = 0;           // 0: none
  Global<float> residual;  // [tokens, w.rows], or {}
  // Of experts: which of w's matrices each token takes, [tokens], or {} where w is one. Token t
  // reads row t / x_share of x.
  Global<const int32_t> chosen;
  int32_t x_share = 1;
};
void MatMul(DeviceStream& stream, const MatMulArgs& args);

// out = (gate / (1 + exp(-gate))) * up; [rows, n] each. out may be gate. `blocks`: out quantized
// (n % 32 == 0), or {}.
void SiluGate(DeviceStream& stream, Global<const float> gate, Global<const float> up, int32_t rows,
              int32_t n, Global<float> out, Global<uint8_t> blocks = {});
// The same with GELU (its tanh approximation) in place of SiLU.
void GeluGate(DeviceStream& stream, Global<const float> gate, Global<const float> up, int32_t rows,
              int32_t n, Global<float> out, Global<uint8_t> blocks = {});

// x *= scale, and then residual += x where there is one. [count] each.
void ScaleAndAdd(DeviceStream& stream, Global<float> x, int64_t count, float scale,
                 Global<float> residual);

// The experts that each row uses, in increasing order, and their weights
// (engine/ARITHMETIC.md 4.8).
struct RouteArgs {
  int32_t rows = 0;
  int32_t experts = 0;  // <= 1024
  int32_t used = 0;     // in [1, experts]
  bool normalize = false;
  Global<const float> logits;  // [rows, experts]
  Global<int32_t> chosen;      // [rows, used]
  Global<float> weights;       // [rows, used]
};
void Route(DeviceStream& stream, const RouteArgs& args);

// residual += the sum of each row's experts, and of its shared one where there is one.
struct AddExpertsArgs {
  int32_t rows = 0;
  int32_t dim = 0;
  int32_t used = 0;
  Global<const float> weights;       // [rows, used]
  Global<const float> outputs;       // [rows, used, dim]
  Global<const float> shared_logit;  // [rows], or {}
  Global<const float> shared;        // [rows, dim], or {}
  Global<float> residual;            // [rows, dim]
};
void AddExperts(DeviceStream& stream, const AddExpertsArgs& args);

// What turns and norms the heads of a row.
struct HeadFinish {
  int32_t head_dim = 0;      // <= 256
  Global<const float> norm;  // QK-norm, [head_dim], or {}
  float eps = 0;             // of the norm
  int32_t rope_dim = 0;      // even; 0: not rotated
  bool halves = false;       // pairs (i, i + rope_dim / 2), else (2 i, 2 i + 1)
  Global<const float> cos;   // RopeTable's, [positions, rope_dim / 2]
  Global<const float> sin;   // likewise
};

// QK-norm and RoPE of query rows in place. x [rows, heads * head_dim], positions [rows].
void FinishQuery(DeviceStream& stream, const HeadFinish& finish, Global<const int32_t> positions,
                 int32_t rows, int32_t heads, Global<float> x);

// Rows that go into a slot of a cache: slot.count of them. Where each goes is read from device
// memory: row i is encoded into row positions[i] and rounded into exact row exact_first[0] + i,
// which is what slot.first and slot.exact_first say when the graph is recorded.
struct StoreArgs {
  DeviceKvSlot slot;
  Global<const float> x;              // [slot.count, heads * head_dim]: projection and bias
  Global<const int32_t> positions;    // [slot.count]
  Global<const int32_t> exact_first;  // [1], or {} without a window
  int32_t heads = 0;                  // of K and V
  // [slot.count, heads * head_dim]: what is stored, before it is encoded, for traces; or {}. May be
  // x.
  Global<float> rows;
};
// QK-norm, RoPE and encoding in one launch. head_dim % 32 == 0 for block formats.
void StoreKeys(DeviceStream& stream, const HeadFinish& finish, const StoreArgs& args);
// Encoding alone. `rows` is ignored.
void StoreValues(DeviceStream& stream, int32_t head_dim, const StoreArgs& args);

// Queries of one sequence. Query i sees rows [0, positions[i] + 1) of the view, of which the
// shape's window leaves the last ones, and the exact rows that the view says.
struct AttentionArgs {
  AttentionShape shape;  // head_dim <= 256
  DeviceKvView view;     // view.length is not read
  int32_t queries = 0;
  Global<const int32_t> positions;  // [queries], increasing
  int32_t positions_max = 0;        // positions[i] < positions_max
  Global<const float> q;            // [queries, num_heads * head_dim]
  Global<float> out;                // the same shape
  Global<uint8_t> blocks;           // out quantized (num_heads * head_dim % 32 == 0), or {}
  // At least AttentionScratch(shape, 1, positions_max) floats; with less than `queries` need, they
  // run in rounds.
  Global<float> scratch;
};
int64_t AttentionScratch(const AttentionShape& shape, int32_t queries, int32_t positions_max);
void Attention(DeviceStream& stream, const AttentionArgs& args);

// Lowest index of the largest value of each row; NaN never wins, and with nothing but NaN it is 0.
// values [rows, n]; out [rows]; scratch: ArgMaxScratch(rows, n) elements.
int64_t ArgMaxScratch(int32_t rows, int32_t n);
void ArgMax(DeviceStream& stream, Global<const float> values, int32_t rows, int32_t n,
            Global<int32_t> scratch, Global<int32_t> out);

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_KERNELS_H_
