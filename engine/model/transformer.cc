#include "engine/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "caches/check.h"
#include "engine/math.h"
#include "engine/model/batch.h"
#include "engine/model/step.h"
#include "engine/model/workspace.h"
#include "engine/thread_team.h"

namespace lockstep {
namespace {

// Tables and scores for this many positions are made at once: below it nothing ever grows again,
// above it they double, so that a context of a million positions is not paid for by a short run.
constexpr int32_t kFirstPositions = 8192;

}  // namespace

BrokenCache::BrokenCache(int32_t layer, const std::string& what)
    : std::logic_error(fmt::format("the cache broke its contract at layer {}: {}", layer, what)),
      layer_(layer) {}

class Transformer::Impl {
 public:
  Impl(std::shared_ptr<const Model> model, const TransformerOptions& options)
      : model_(std::move(model)),
        kernels_(options.kernels != nullptr ? *options.kernels : SelectKernels()),
        max_step_tokens_(options.max_step_tokens),
        team_(options.threads),
        workspace_(model_->config()),
        runner_(*model_, kernels_, options.hook, &team_, &workspace_) {
    if (max_step_tokens_ < 1) {
      throw std::invalid_argument("transformer: max_step_tokens must be at least 1");
    }
    CheckFloatingPointEnvironment();
  }

  std::span<const float> ForwardBatch(std::span<const BatchSequence> batch) {
    CheckBatch(model_->config(), batch);
    plan_.Start(batch, max_step_tokens_);
    int32_t limit = 0;  // the longest sequence that these caches can grow to
    for (const BatchSequence& sequence : batch) {
      limit =
          std::max(limit, std::min(model_->config().context_length, sequence.cache->max_length()));
    }
    const auto sequences = static_cast<int32_t>(batch.size());
    Reserve(plan_.max_rows(), sequences, plan_.last_position() + 1, limit);
    try {
      for (auto pieces = plan_.Next(); !pieces.empty(); pieces = plan_.Next()) {
        runner_.Run(pieces);
      }
      runner_.Logits(sequences);
    } catch (...) {
      plan_.RollBack();
      throw;
    }
    return Logits(sequences);
  }

  std::span<const float> ForwardUncached(std::span<const int32_t> tokens, TraceSink* trace) {
    const ModelConfig& config = model_->config();
    CheckTokens(config, tokens);
    if (tokens.size() > static_cast<size_t>(config.context_length)) {
      throw std::out_of_range(fmt::format("forward: {} tokens exceed the model's context {}",
                                          tokens.size(), config.context_length));
    }
    const auto count = static_cast<int32_t>(tokens.size());
    positions_.resize(tokens.size());
    std::iota(positions_.begin(), positions_.end(), 0);
    // One step whatever its length: only the rows of the step in progress are kept.
    Reserve(count, 1, count, config.context_length);
    const StepPiece piece = {tokens, positions_, nullptr, trace, 0, true};
    runner_.Run({&piece, 1});
    runner_.Logits(1);
    return Logits(1);
  }

  const Model& model() const { return *model_; }
  const KernelTable& kernels() const { return kernels_; }
  int32_t threads() const { return team_.size(); }

 private:
  void Reserve(int32_t rows, int32_t sequences, int32_t positions, int32_t position_limit) {
    workspace_.ReserveTokens(rows);
    workspace_.ReserveSequences(sequences);
    int64_t room = kFirstPositions;
    while (room < positions) room *= 2;
    const auto limited = static_cast<int32_t>(std::min<int64_t>(room, position_limit));
    workspace_.ReservePositions(limited);
    runner_.ReserveVisible(limited);
  }

  std::span<const float> Logits(int32_t sequences) const {
    return workspace_.logits.values.span().first(static_cast<size_t>(sequences) *
                                                 static_cast<size_t>(model_->config().vocab_size));
  }

  std::shared_ptr<const Model> model_;
  const KernelTable& kernels_;
  int32_t max_step_tokens_;
  ThreadTeam team_;
  Workspace workspace_;
  StepRunner runner_;
  BatchPlan plan_;
  std::vector<int32_t> positions_;  // of ForwardUncached
};

Transformer::Transformer(std::shared_ptr<const Model> model, TransformerOptions options) {
  LS_CHECK(model != nullptr, "no model");
  impl_ = std::make_unique<Impl>(std::move(model), options);
}
Transformer::~Transformer() = default;

std::span<const float> Transformer::Forward(std::span<const int32_t> tokens,
                                            std::span<const int32_t> positions, KvCache& cache,
                                            TraceSink* trace) {
  const BatchSequence sequence = {tokens, positions, &cache, trace};
  return impl_->ForwardBatch({&sequence, 1});
}

std::span<const float> Transformer::ForwardBatch(std::span<const BatchSequence> batch) {
  return impl_->ForwardBatch(batch);
}

std::span<const float> Transformer::ForwardUncached(std::span<const int32_t> tokens,
                                                    TraceSink* trace) {
  return impl_->ForwardUncached(tokens, trace);
}

const Model& Transformer::model() const { return impl_->model(); }
const KernelTable& Transformer::kernels() const { return impl_->kernels(); }
int32_t Transformer::threads() const { return impl_->threads(); }

}  // namespace lockstep
