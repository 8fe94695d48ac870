// Where speculative decoding takes its drafts from. What they are never changes what is generated
// (engine/sampler.h, JudgeDrafts); it changes how many steps that takes.
#ifndef LOCKSTEP_ENGINE_DRAFT_SOURCE_H_
#define LOCKSTEP_ENGINE_DRAFT_SOURCE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "caches/kv_cache.h"
#include "engine/sampler.h"
#include "engine/transformer.h"

namespace lockstep {

struct Drafts {
  std::vector<int32_t> tokens;
  std::vector<Distribution> proposal;  // what each was drawn from
};

class DraftSource {
 public:
  virtual ~DraftSource() = default;
  // At most `count` tokens that may follow `text`; fewer, or none, is fine.
  virtual Drafts Propose(std::span<const int32_t> text, int32_t count, Random* random) = 0;
};

// LookupDrafts: what followed the text's last tokens before.
class LookupDraftSource final : public DraftSource {
 public:
  explicit LookupDraftSource(int32_t match) : match_(match) {}
  Drafts Propose(std::span<const int32_t> text, int32_t count, Random* random) override;

 private:
  int32_t match_;
};

// A smaller model with the same vocabulary, on a cache of its own.
class ModelDraftSource final : public DraftSource {
 public:
  // Both are borrowed; the cache is empty. The text may outgrow them: then there are no drafts.
  ModelDraftSource(Transformer& transformer, KvCache& cache, SamplerOptions options)
      : transformer_(transformer), cache_(cache), sampler_(std::move(options)) {}
  Drafts Propose(std::span<const int32_t> text, int32_t count, Random* random) override;

 private:
  // Makes the cache hold `text`; the logits behind it.
  std::span<const float> Feed(std::span<const int32_t> text);

  Transformer& transformer_;
  KvCache& cache_;
  Sampler sampler_;
  std::vector<int32_t> held_;  // the tokens of the cache's rows
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_DRAFT_SOURCE_H_
