// ReferenceTransformer: the model families in the words of their papers, in double precision, every
// step computed from nothing but the tokens. It reads weights straight from the GGUF file and
// shares no code with the engine's model, kernels and math, so that a common mistake has nowhere to
// hide.
//
//   RMSNorm   Zhang, Sennrich 2019, https://arxiv.org/abs/1910.07467
//   RoPE      Su et al. 2021, https://arxiv.org/abs/2104.09864, adjacent dimensions paired
//   GQA       Ainslie et al. 2023, https://arxiv.org/abs/2305.13245
//   SwiGLU    Shazeer 2020, https://arxiv.org/abs/2002.05202
//
// It is compared with the engine in two ways.
//
// **Stage by stage** (CheckStages). Each traced stage is computed again, in double, from the traced
// stages that are its inputs, which are exact numbers. What separates the two is the rounding of
// one stage alone, and the classic running error bound of its canonical arithmetic limits that
// element by element: a chain of k operations over terms t errs by at most (k + small) * 2^-24 *
// sum |t| (Higham, "Accuracy and Stability of Numerical Algorithms", chapter 3). The bounds hold
// for every weight type, with quantized activations too, and leave out second-order terms, for
// which they are widened by a hundredth.
//
// **End to end** (Logits). For F32, F16 and BF16 weights the logits differ by accumulated rounding
// only: kFloatLogitsBound of the largest logit, seven times the worst that any model of the tests
// shows (1.4e-6). Quantized weights meet activations that were rounded to 8 bits. The reference
// rounds them too; but a value near the middle between two codes may go up on one side and down on
// the other, and is then off by 1/127 of its block's largest. Without such a value the logits agree
// to 3e-7, with a few of them to 1.8e-2: kQuantizedLogitsBound. So for quantized weights the stages
// are the sharp check.
//
// Mistakes that an engine could make exceed the bounds of their stage by a factor of 20 and more,
// and the logits' wherever they change logits enough (reference_transformer_test.cc).
#ifndef LOCKSTEP_ORACLE_REFERENCE_TRANSFORMER_H_
#define LOCKSTEP_ORACLE_REFERENCE_TRANSFORMER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/gguf.h"
#include "engine/trace.h"

namespace lockstep {

inline constexpr double kFloatLogitsBound = 1e-5;      // of the largest |logit|
inline constexpr double kQuantizedLogitsBound = 5e-2;  // of the largest |logit|

// Mistakes that an engine could make. The reference makes them on request, which shows that the
// bounds are tight enough to notice.
enum class ReferenceFault : uint8_t {
  kNone,
  kHeadModulo,        // query head h reads KV head h mod num_kv_heads
  kRopeHalves,        // pairs (i, i + rope_dim / 2), or adjacent ones where these are right
  kRopeNextPosition,  // one position too far
  kRopeUnrotatedKey,
  kNoScale,        // scores are not divided by sqrt(head_dim)
  kMaskSelf,       // a query does not see its own row
  kFutureVisible,  // a query sees the row after its own
  kGateUpSwapped,
  kNoNormWeight,
  kEpsOutside,         // 1 / (sqrt(mean) + eps)
  kNoResidual,         // the FFN's output replaces the stream
  kNoBias,             // projections without their bias
  kNoHeadNorm,         // heads are rotated without QK-norm
  kRopeEveryLayer,     // also the layers that are not to be rotated
  kRopeUnscaled,       // without position interpolation, YaRN, factors or attention factor
  kRopeUnstretched,    // without the attention factor
  kRopeWholeHead,      // also the elements of a head that are not to be rotated
  kNoWindow,           // a query sees all rows
  kWindowWithoutSelf,  // a window that its own row comes on top of
  kLocalEveryLayer,    // the window also in the layers that see all rows
  kOneRopeBase,        // local layers are rotated like the others
  kNoSoftCap,
  kNoPostNorm,       // without the norm of what a sublayer adds
  kOtherActivation,  // SiLU for GELU, or the reverse
  kNextBestExperts,  // rows pass over their best expert
  kOtherExpertNorm,  // experts' weights sum to 1 where they should not, or the reverse
  kNoSharedExpert,
  kNoMultipliers,   // without the scales of embedding, residual, logits and attention
  kNoAdapters,      // without LoRA
  kUnscaledPairs,   // LoRA without alpha / rank
  kTruncatedCodes,  // activations are rounded towards zero
};
std::vector<ReferenceFault> AllReferenceFaults();  // without kNone

// A LoRA adapter as GGUF, and the scale that it is used with.
struct ReferenceAdapter {
  std::shared_ptr<const GgufFile> file;
  double scale = 1;
};

struct ReferenceOptions {
  // Activations that meet quantized weights are rounded to 8 bits, as engine/ARITHMETIC.md says.
  // Off: the function that the weights define, which quantized engines approximate.
  bool quantize_activations = true;
  std::vector<ReferenceAdapter> adapters = {};
  ReferenceFault fault = ReferenceFault::kNone;
};

// One stage in double, and how far the canonical arithmetic may be from it, both [n, width].
struct ReferenceRows {
  int32_t layer = 0;
  Stage stage = Stage::kEmbedding;
  int64_t width = 0;
  std::vector<double> values;
  std::vector<double> bounds;  // for a stage whose inputs are exact
};

// What one stage is computed from, as exact numbers: the traced rows of the stages before it.
struct StageInputs {
  int32_t layer = 0;
  Stage stage = Stage::kEmbedding;
  std::span<const int32_t> tokens = {};     // [n], of kEmbedding
  std::span<const int32_t> positions = {};  // [n], of RoPE
  std::span<const int32_t> visible = {};    // [n], of kAttention: the query's position + 1
  std::span<const float> input = {};        // [n, width of the stage that this one is made from]
  std::span<const float> stream = {};       // [n, dim], of kAttnOut and kFfnOut: what they add to
  std::span<const float> router = {};       // kFfnRouter, of kFfnHidden and kFfnOut of experts
  std::span<const float> keys = {};         // [rows, kv_stride], of kAttention
  std::span<const float> values = {};
};

class ReferenceTransformer {
 public:
  // Throws Error for a file that is no llama model, or lacks a tensor.
  explicit ReferenceTransformer(std::shared_ptr<const GgufFile> file,
                                ReferenceOptions options = {});
  ~ReferenceTransformer();
  ReferenceTransformer(const ReferenceTransformer&) = delete;
  ReferenceTransformer& operator=(const ReferenceTransformer&) = delete;

  // Logits of the last token, [vocab_size]. Positions are strictly increasing and not negative
  // (LS_CHECK); a position inside the sequence that no token has holds a row of zeros, as a cache
  // shows it [V2]. `on_stage`, when given, sees every stage of every layer.
  std::vector<double> Logits(
      std::span<const int32_t> tokens, std::span<const int32_t> positions,
      const std::function<void(const ReferenceRows&)>& on_stage = nullptr) const;

  // One stage from its inputs, with bounds that hold as they are exact. The input is, by stage: the
  // stream before the layer (kAttnNorm); kAttnNorm (kQuery, kKey, kValue); kQuery (kQueryRope);
  // kKey (kKeyRope); kKeyRope, kValue (kCacheKey, kCacheValue: as F32 rows keep them); kQueryRope
  // (kAttention); kAttention (kAttnOut); kAttnOut (kFfnNorm); kFfnNorm (kFfnRouter, kFfnHidden);
  // kFfnHidden (kFfnOut); the last row of the stream (kFinalNorm); kFinalNorm (kLogits). REQUIRES:
  // spans of these shapes (LS_CHECK).
  ReferenceRows Expected(const StageInputs& inputs) const;

  // Whether any weight matrix is quantized: which of the two logits bounds applies.
  bool quantized() const;

  struct StageReport {
    int64_t elements = 0;       // compared
    double worst_ratio = 0;     // largest error / bound
    std::string first_failure;  // the first element past its bound, as a sentence; or empty
  };

  // Computes each stage of one traced step again from its traced inputs. The step is one whole
  // sequence, positions 0 .. n-1, on a cache of F32 rows or on none; all stages are in the trace,
  // in the order of computation (LS_CHECK).
  StageReport CheckStages(std::span<const int32_t> tokens,
                          std::span<const RecordingTrace::Entry> trace) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ORACLE_REFERENCE_TRANSFORMER_H_
