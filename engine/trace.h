// The stage trace: what a forward step computed, stage by stage. Costs nothing when nobody listens.
#ifndef LOCKSTEP_ENGINE_TRACE_H_
#define LOCKSTEP_ENGINE_TRACE_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "caches/digest.h"

namespace lockstep {

// In the order of computation within a layer. kEmbedding, kFinalNorm and kLogits belong to no layer
// (layer -1 and num_layers).
enum class Stage : uint8_t {
  kEmbedding,  // [n, dim]
  kAttnNorm,   // [n, dim]
  kQuery,      // [n, num_heads * head_dim], after projection, bias, adapters
  kKey,        // [n, kv_stride], the same
  kValue,      // [n, kv_stride], the same
  kQueryRope,  // after QK-norm and RoPE
  kKeyRope,
  kCacheKey,  // the step's rows as the cache shows them after commit or update
  kCacheValue,
  kAttention,  // [n, num_heads * head_dim], before the output projection
  kAttnOut,    // [n, dim], residual stream after attention
  kFfnNorm,    // [n, dim]
  kFfnRouter,  // [n, experts, and one more with a shared expert], logits; of models with experts
  kFfnHidden,  // [n, hidden_dim], after the gate; of experts, those that a row picked
  kFfnOut,     // [n, dim], residual stream after the FFN
  kFinalNorm,  // [1, dim], last token
  kLogits,     // [1, vocab_size], last token
};

std::string_view StageName(Stage stage);  // "attn_norm", "cache_key", ...

struct StageRows {
  int32_t layer = 0;
  Stage stage = Stage::kEmbedding;
  std::span<const int32_t> positions;  // [n]
  std::span<const float> rows;         // [n, width]
  int64_t width = 0;
};

class TraceSink {
 public:
  virtual ~TraceSink() = default;
  // Spans are valid during the call.
  virtual void OnStage(const StageRows& rows) = 0;
};

// Keeps every stage of the steps since Reset, buffers reused.
class RecordingTrace final : public TraceSink {
 public:
  struct Entry {
    int32_t layer = 0;
    Stage stage = Stage::kEmbedding;
    std::vector<int32_t> positions;
    std::vector<float> rows;
    int64_t width = 0;
  };
  void OnStage(const StageRows& rows) override;
  void Reset() { used_ = 0; }
  std::span<const Entry> entries() const { return std::span(entries_).first(used_); }

 private:
  std::vector<Entry> entries_;
  size_t used_ = 0;
};

// One XXH3-128 per stage and layer, in order of computation.
class DigestTrace final : public TraceSink {
 public:
  struct Entry {
    int32_t layer = 0;
    Stage stage = Stage::kEmbedding;
    Digest digest;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  void OnStage(const StageRows& rows) override;
  const std::vector<Entry>& entries() const { return entries_; }
  void Reset() { entries_.clear(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_TRACE_H_
