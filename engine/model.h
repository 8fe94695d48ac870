// A model: hyperparameters and repacked weights, from GGUF metadata and tensors.
#ifndef LOCKSTEP_ENGINE_MODEL_H_
#define LOCKSTEP_ENGINE_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "caches/kv_cache.h"
#include "engine/gguf.h"
#include "engine/kernels.h"
#include "engine/math.h"
#include "engine/tokenizer.h"

namespace lockstep {

class ThreadTeam;
class WeightArena;

// Which two elements of a head RoPE turns together.
enum class RopePairing : uint8_t {
  kInterleaved,  // (2i, 2i + 1), as RoFormer
  kHalves,       // (i, i + rope_dim / 2), as GPT-NeoX
};

// What the gate of an FFN is bent by.
enum class Activation : uint8_t { kSilu, kGelu };

// Keys in brackets are GGUF's, below "<architecture>.".
struct ModelConfig {
  std::string architecture;    // "llama", "qwen2", ...: engine/model/architectures.cc
  std::string name;            // general.name, or the path
  int32_t dim = 0;             // [embedding_length]
  int32_t ffn_dim = 0;         // [feed_forward_length]
  int32_t num_layers = 0;      // [block_count]
  int32_t num_heads = 0;       // [attention.head_count]
  int32_t num_kv_heads = 0;    // [attention.head_count_kv]
  int32_t head_dim = 0;        // [attention.key_length], else dim / num_heads
  int32_t vocab_size = 0;      // columns of token_embd.weight
  int32_t context_length = 0;  // [context_length], positions
  float rms_eps = 0;           // [attention.layer_norm_rms_epsilon]

  // [rope.dimension_count], else head_dim; [rope.freq_base]; [rope.scaling.factor] of linear
  // scaling or, with its other keys, of YaRN; [rope.scaling.attn_factor]; the tensor
  // rope_freqs.weight, or of LongRoPE's two the one for this context length.
  RopeFrequencies rope = {};
  RopePairing rope_pairing = RopePairing::kInterleaved;  // the architecture's
  // Layers l with (l + 1) % no_rope_interval == 0 are not rotated; 0: all are. The architecture's.
  int32_t no_rope_interval = 0;

  // [attention.sliding_window]: rows that a query sees at most, the last ones; 0: all. Layers l
  // with (l + 1) % full_interval == 0 see all rows in spite of it; 0: none do. The others, the
  // local ones, may have a RoPE of their own.
  int32_t window = 0;
  int32_t full_interval = 0;
  std::optional<RopeFrequencies> local_rope = {};

  // Of a mixture of experts; 0: none. With a shared one every row uses it too.
  int32_t num_experts = 0;         // [expert_count]
  int32_t experts_used = 0;        // [expert_used_count], by a row
  int32_t expert_dim = 0;          // [expert_feed_forward_length], else ffn_dim
  int32_t shared_dim = 0;          // [expert_shared_feed_forward_length]; 0: there is none
  bool normalize_experts = false;  // the weights of a row's experts sum to 1; the architecture's

  Activation activation = Activation::kSilu;  // the architecture's
  float attention_cap = 0;                    // [attn_logit_softcapping] of scores; 0: none
  float logit_cap = 0;                        // [final_logit_softcapping] of logits; 0: none

  // Granite's, https://arxiv.org/abs/2407.13739. 1 and 0 are "none".
  float embedding_scale = 1;  // [embedding_scale], of the embedded tokens; Gemma: sqrt(dim)
  float residual_scale = 1;   // [residual_scale], of what a sublayer adds
  float logit_scale = 1;      // 1 / [logit_scale], of the logits
  float attention_scale = 0;  // [attention.scale], of the dot products; 0: 1 / sqrt(head_dim)

  bool tied_head = false;  // no output.weight: logits come from token_embd.weight

  int32_t q_dim() const { return num_heads * head_dim; }
  int32_t kv_dim() const { return num_kv_heads * head_dim; }
  bool rotates(int32_t layer) const {
    return no_rope_interval == 0 || (layer + 1) % no_rope_interval != 0;
  }

  // Elements between the projections of an FFN, of one row.
  int32_t hidden_dim() const {
    return num_experts > 0 ? experts_used * expert_dim + shared_dim : ffn_dim;
  }
  bool is_local(int32_t layer) const {
    return full_interval == 0 || (layer + 1) % full_interval != 0;
  }
  int32_t window_of(int32_t layer) const { return is_local(layer) ? window : 0; }
  const RopeFrequencies& rope_of(int32_t layer) const {
    return local_rope && is_local(layer) ? *local_rope : rope;
  }

  // The cache geometry that this model needs. REQUIRES: 0 < max_length <= context_length.
  KvGeometry geometry(int32_t max_length) const {
    return {num_layers, num_kv_heads, head_dim, max_length, window, full_interval};
  }
};

struct ExpertWeights {
  PackedMatrix gate, up;  // [expert_dim, dim]
  PackedMatrix down;      // [dim, expert_dim]
};

// In place of the FFN's three matrices.
struct MoeWeights {
  PackedMatrix router;  // [num_experts, dim]
  std::vector<ExpertWeights> experts;
  PackedMatrix shared_router;  // [1, dim], where there is a shared expert
  ExpertWeights shared;        // with shared_dim in place of expert_dim
};

struct LayerWeights {
  std::vector<float> attn_norm;   // [dim]
  PackedMatrix wq;                // [q_dim, dim]
  PackedMatrix wk;                // [kv_dim, dim]
  PackedMatrix wv;                // [kv_dim, dim]
  std::vector<float> bq, bk, bv;  // [rows of the matrix], or empty
  std::vector<float> q_norm;      // [head_dim], QK-norm per head, or empty
  std::vector<float> k_norm;
  PackedMatrix wo;                    // [dim, q_dim]
  std::vector<float> post_attn_norm;  // [dim], of what attention adds, or empty
  std::vector<float> ffn_norm;        // [dim]
  PackedMatrix w_gate;                // [ffn_dim, dim]
  PackedMatrix w_up;                  // [ffn_dim, dim]
  PackedMatrix w_down;                // [dim, ffn_dim]
  std::vector<float> post_ffn_norm;   // [dim], or empty
  MoeWeights moe;                     // with experts; w_gate, w_up and w_down are empty then
};

struct ModelLoadOptions {
  // Repacks the weights; used during the call alone. nullptr: one of DefaultThreads().
  ThreadTeam* team = nullptr;
  // Called on the caller's thread after each piece of work, last with done == total. May be empty.
  std::function<void(int64_t bytes_done, int64_t bytes_total)> progress = {};
};

class Model {
 public:
  // Throws Error for an unknown architecture or type, a missing tensor, or shapes that disagree.
  static std::shared_ptr<const Model> Load(std::shared_ptr<const GgufFile> file,
                                           const ModelLoadOptions& options = {});
  ~Model();

  const ModelConfig& config() const { return config_; }
  const GgufFile& file() const { return *file_; }
  const std::vector<LayerWeights>& layers() const { return layers_; }
  const std::vector<float>& output_norm() const { return output_norm_; }  // [dim]
  const PackedMatrix& output() const { return output_; }                  // [vocab_size, dim]
  // token_embd.weight, [vocab_size, dim], as the file has it.
  const GgufTensor& token_embedding() const { return *token_embedding_; }

  // Bytes of all repacked matrices, one piece of memory in the order in which a step reads them,
  // and how many of them lie in huge pages now, as far as the system tells.
  int64_t weight_bytes() const;
  int64_t HugePageBytes() const;

  // Row `token` of token_embd.weight, decoded. REQUIRES: 0 <= token < vocab_size, out has dim.
  void Embed(int32_t token, std::span<float> out) const;

 private:
  Model();

  std::shared_ptr<const GgufFile> file_;
  ModelConfig config_;
  const GgufTensor* token_embedding_ = nullptr;
  std::vector<LayerWeights> layers_;
  std::vector<float> output_norm_;
  PackedMatrix output_;
  std::unique_ptr<WeightArena> arena_;  // what the matrices lie in
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_MODEL_H_
