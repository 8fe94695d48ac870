#include "engine/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "caches/check.h"
#include "engine/device/forward.h"
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
        has_hook_(options.hook != nullptr),
        team_(options.threads),
        workspace_(model_->config()),
        runner_(*model_, kernels_, options.hook, &team_, &workspace_) {
    if (max_step_tokens_ < 1) {
      throw std::invalid_argument("transformer: max_step_tokens must be at least 1");
    }
    if (options.device_layers < 0) {
      throw std::invalid_argument("transformer: device_layers must not be negative");
    }
    CheckFloatingPointEnvironment();
    const int32_t layers = std::min(options.device_layers, model_->config().num_layers);
    if (options.device == nullptr || layers == 0) return;
    if (options.hook != nullptr) {
      throw std::invalid_argument("transformer: a hook runs on the host: give no device");
    }
    device_ = std::make_unique<device::DeviceForward>(model_, options.device, layers);
  }

  void SetAdapters(std::vector<AppliedAdapter> adapters) {
    CheckAdapters(model_->config(), adapters);
    adapters_ = std::move(adapters);
  }
  std::span<const AppliedAdapter> adapters() const { return adapters_; }

  std::span<const float> ForwardBatch(std::span<const BatchSequence> batch) {
    Run(batch, Wanted::kLogits);
    return Logits(plan_.outputs());
  }

  int32_t ForwardGreedy(const BatchSequence& sequence) {
    return Run({&sequence, 1}, Wanted::kToken);
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
    ReserveOnHost(count, 1, PositionsRoom(count, config.context_length));
    workspace_.ReserveLogits(1);
    const StepPiece piece = {.tokens = tokens,
                             .positions = positions_,
                             .trace = trace,
                             .wanted = 1,
                             .adapters = adapters_};
    workspace_.ReserveAdapters(count, MaxRank(adapters_));
    runner_.Run({&piece, 1});
    runner_.Logits(1);
    return Logits(1);
  }

  const Model& model() const { return *model_; }
  const KernelTable& kernels() const { return kernels_; }
  int32_t threads() const { return team_.size(); }
  bool has_hook() const { return has_hook_; }

  DeviceUse device_use() const {
    if (device_ == nullptr) return {};
    return {device_layer_steps_, device_->graph_steps(), device_->graphs_recorded()};
  }

 private:
  enum class Wanted : uint8_t { kLogits, kToken };

  // The batch's steps and what comes behind them. With kToken, which is for one sequence, returns
  // the argmax of its logits, and these may stay on the device.
  int32_t Run(std::span<const BatchSequence> batch, Wanted wanted) {
    CheckBatch(model_->config(), batch);
    plan_.Start(batch, max_step_tokens_);
    const int32_t rank = MaxRank(batch);
    const int32_t on_device = device_ == nullptr ? 0 : device_->LayersFor(batch);
    const bool whole = on_device == model_->config().num_layers;
    Reserve(batch, on_device);
    if (on_device > 0) device_->ReserveAdapters(plan_.max_rows(), rank);
    if (!whole) workspace_.ReserveAdapters(plan_.max_rows(), rank);
    if (!whole || wanted == Wanted::kLogits) workspace_.ReserveLogits(plan_.outputs());
    try {
      for (auto pieces = plan_.Next(); !pieces.empty(); pieces = plan_.Next()) {
        RunStep(pieces, on_device);
      }
      if (plan_.outputs() == 0) return -1;
      if (!whole) {
        runner_.Logits(plan_.outputs());
      } else if (wanted == Wanted::kToken) {
        return device_->Greedy();
      } else {
        device_->Logits(plan_.outputs(), Logits(plan_.outputs()));
      }
    } catch (...) {
      plan_.RollBack();
      throw;
    }
    return wanted == Wanted::kToken ? ArgMax(Logits(1)) : -1;
  }

  void RunStep(std::span<const StepPiece> pieces, int32_t on_device) {
    device_layer_steps_ += on_device;
    if (on_device == 0) {
      runner_.Run(pieces);
    } else if (on_device == model_->config().num_layers) {
      device_->Run(pieces, on_device, {});
    } else {
      device_->Run(pieces, on_device, runner_.Embedded(pieces));
      runner_.RunFrom(on_device);
    }
  }

  // Room where the plan's steps run: on the device, on the host, on both.
  void Reserve(std::span<const BatchSequence> batch, int32_t on_device) {
    int32_t limit = 0;  // the longest sequence that these caches can grow to
    for (const BatchSequence& sequence : batch) {
      limit =
          std::max(limit, std::min(model_->config().context_length, sequence.cache->max_length()));
    }
    const int32_t positions = PositionsRoom(plan_.last_position() + 1, limit);
    if (on_device > 0) device_->Reserve(plan_.max_rows(), plan_.outputs(), positions);
    if (on_device == model_->config().num_layers) return;
    ReserveOnHost(plan_.max_rows(), plan_.outputs(), positions);
  }

  void ReserveOnHost(int32_t rows, int32_t outputs, int32_t positions) {
    workspace_.ReserveTokens(rows);
    runner_.ReserveExperts(rows);
    workspace_.ReserveOutputs(outputs);
    workspace_.ReservePositions(positions);
    runner_.ReserveVisible(positions);
  }

  static int32_t PositionsRoom(int32_t positions, int32_t limit) {
    int64_t room = kFirstPositions;
    while (room < positions) room *= 2;
    return static_cast<int32_t>(std::min<int64_t>(room, limit));
  }

  // The largest rank of a pair that a step may apply, 0 without adapters.
  static int32_t MaxRank(std::span<const AppliedAdapter> adapters) {
    int32_t rank = 0;
    for (const AppliedAdapter& applied : adapters) {
      rank = std::max(rank, applied.adapter->max_rank());
    }
    return rank;
  }
  static int32_t MaxRank(std::span<const BatchSequence> batch) {
    int32_t rank = 0;
    for (const BatchSequence& sequence : batch) rank = std::max(rank, MaxRank(sequence.adapters));
    return rank;
  }

  std::span<float> Logits(int32_t outputs) {
    return workspace_.logits.values.span().first(static_cast<size_t>(outputs) *
                                                 static_cast<size_t>(model_->config().vocab_size));
  }

  std::shared_ptr<const Model> model_;
  const KernelTable& kernels_;
  int32_t max_step_tokens_;
  bool has_hook_;
  ThreadTeam team_;
  Workspace workspace_;
  StepRunner runner_;
  std::unique_ptr<device::DeviceForward> device_;  // null without one
  int64_t device_layer_steps_ = 0;
  BatchPlan plan_;
  std::vector<AppliedAdapter> adapters_;  // of all but ForwardBatch
  std::vector<int32_t> positions_;        // of ForwardUncached
};

Transformer::Transformer(std::shared_ptr<const Model> model, TransformerOptions options) {
  LS_CHECK(model != nullptr, "no model");
  impl_ = std::make_unique<Impl>(std::move(model), options);
}
Transformer::~Transformer() = default;

void Transformer::SetAdapters(std::vector<AppliedAdapter> adapters) {
  impl_->SetAdapters(std::move(adapters));
}

std::span<const AppliedAdapter> Transformer::adapters() const { return impl_->adapters(); }

std::span<const float> Transformer::Forward(std::span<const int32_t> tokens,
                                            std::span<const int32_t> positions, KvCache& cache,
                                            TraceSink* trace) {
  const BatchSequence sequence = {.tokens = tokens,
                                  .positions = positions,
                                  .cache = &cache,
                                  .trace = trace,
                                  .adapters = impl_->adapters()};
  return impl_->ForwardBatch({&sequence, 1});
}

std::span<const float> Transformer::ForwardBatch(std::span<const BatchSequence> batch) {
  return impl_->ForwardBatch(batch);
}

int32_t Transformer::ForwardGreedy(std::span<const int32_t> tokens,
                                   std::span<const int32_t> positions, KvCache& cache,
                                   TraceSink* trace) {
  return impl_->ForwardGreedy({.tokens = tokens,
                               .positions = positions,
                               .cache = &cache,
                               .trace = trace,
                               .adapters = impl_->adapters()});
}

std::span<const float> Transformer::ForwardUncached(std::span<const int32_t> tokens,
                                                    TraceSink* trace) {
  return impl_->ForwardUncached(tokens, trace);
}

const Model& Transformer::model() const { return impl_->model(); }
const KernelTable& Transformer::kernels() const { return impl_->kernels(); }
int32_t Transformer::threads() const { return impl_->threads(); }
bool Transformer::has_hook() const { return impl_->has_hook(); }
DeviceUse Transformer::device_use() const { return impl_->device_use(); }

}  // namespace lockstep
