#include "engine/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "caches/check.h"
#include "engine/math.h"
#include "engine/model/step.h"
#include "engine/model/workspace.h"

namespace lockstep {
namespace {

// Tables and scores for this many positions are made at once: below it nothing ever grows again,
// above it they double, so that a context of a million positions is not paid for by a short run.
constexpr int32_t kFirstPositions = 8192;

void CheckTokens(const ModelConfig& config, std::span<const int32_t> tokens) {
  if (tokens.empty()) throw std::invalid_argument("forward: no tokens");
  for (int32_t token : tokens) {
    if (token < 0 || token >= config.vocab_size) {
      throw std::out_of_range(
          fmt::format("forward: token {} is outside [0, {})", token, config.vocab_size));
    }
  }
}

void CheckCache(const ModelConfig& config, const KvCache& cache) {
  const KvGeometry& g = cache.geometry();
  const KvGeometry wanted = config.geometry(g.max_length);
  if (g != wanted) {
    throw std::invalid_argument(fmt::format(
        "forward: the cache has {} layers of {} heads of {}, the model has {} of {} of {}",
        g.num_layers, g.num_kv_heads, g.head_dim, wanted.num_layers, wanted.num_kv_heads,
        wanted.head_dim));
  }
  if (cache.max_step_rows() < 1) throw std::invalid_argument("forward: the cache takes no rows");
}

void CheckPositions(const ModelConfig& config, const KvCache& cache,
                    std::span<const int32_t> positions) {
  for (size_t i = 1; i < positions.size(); ++i) {
    if (positions[i] <= positions[i - 1]) {
      throw std::invalid_argument(fmt::format("forward: positions {} and {} do not increase",
                                              positions[i - 1], positions[i]));
    }
  }
  const int32_t limit = std::min(config.context_length, cache.max_length());
  for (int32_t position : {positions.front(), positions.back()}) {
    if (position < 0 || position >= limit) {
      throw std::out_of_range(
          fmt::format("forward: position {} is outside [0, {}), the smaller of the model's context "
                      "{} and the cache's length {}",
                      position, limit, config.context_length, cache.max_length()));
    }
  }
}

// The length that undoes the step: layers at least that long shrink to it [F1]. A layer that is
// shorter would be longer after the undo than it was, so such a step must not start.
int32_t UndoLength(const ModelConfig& config, const KvCache& cache, int32_t first_position) {
  const int32_t undo = std::min(cache.current_length(), first_position);
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    if (cache.length(layer) < undo) {
      throw std::invalid_argument(
          fmt::format("forward: layer {} holds {} rows where others hold {}: a step from position "
                      "{} could not be undone; roll back first",
                      layer, cache.length(layer), cache.current_length(), first_position));
    }
  }
  return undo;
}

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
        workspace_(model_->config()),
        runner_(*model_, kernels_, options.hook, &workspace_) {
    if (max_step_tokens_ < 1) {
      throw std::invalid_argument("transformer: max_step_tokens must be at least 1");
    }
    CheckFloatingPointEnvironment();
  }

  std::span<const float> Forward(std::span<const int32_t> tokens,
                                 std::span<const int32_t> positions, KvCache& cache,
                                 TraceSink* trace) {
    const ModelConfig& config = model_->config();
    if (tokens.size() != positions.size()) {
      throw std::invalid_argument(
          fmt::format("forward: {} tokens at {} positions", tokens.size(), positions.size()));
    }
    CheckTokens(config, tokens);
    CheckCache(config, cache);
    CheckPositions(config, cache, positions);
    const int32_t undo_length = UndoLength(config, cache, positions.front());
    const auto step = static_cast<size_t>(std::min(max_step_tokens_, cache.max_step_rows()));
    workspace_.ReserveTokens(static_cast<int32_t>(std::min(step, tokens.size())));
    ReservePositions(positions.back() + 1, std::min(config.context_length, cache.max_length()));
    try {
      for (size_t begin = 0; begin < tokens.size(); begin += step) {
        const size_t count = std::min(step, tokens.size() - begin);
        runner_.Run({tokens.subspan(begin, count), positions.subspan(begin, count), &cache, trace,
                     begin + count == tokens.size()});
      }
    } catch (...) {
      // Also without a visible row: this cancels a reservation that was not committed.
      cache.Rollback(std::min(undo_length, cache.current_length()));
      throw;
    }
    return workspace_.logits.span();
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
    workspace_.ReserveTokens(count);
    ReservePositions(count, config.context_length);
    runner_.Run({tokens, positions_, nullptr, trace, true});
    return workspace_.logits.span();
  }

  const Model& model() const { return *model_; }
  const KernelTable& kernels() const { return kernels_; }

 private:
  void ReservePositions(int32_t needed, int32_t limit) {
    int64_t positions = kFirstPositions;
    while (positions < needed) positions *= 2;
    workspace_.ReservePositions(static_cast<int32_t>(std::min<int64_t>(positions, limit)));
  }

  std::shared_ptr<const Model> model_;
  const KernelTable& kernels_;
  int32_t max_step_tokens_;
  Workspace workspace_;
  StepRunner runner_;
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
  return impl_->Forward(tokens, positions, cache, trace);
}

std::span<const float> Transformer::ForwardUncached(std::span<const int32_t> tokens,
                                                    TraceSink* trace) {
  return impl_->ForwardUncached(tokens, trace);
}

const Model& Transformer::model() const { return impl_->model(); }
const KernelTable& Transformer::kernels() const { return impl_->kernels(); }

}  // namespace lockstep
