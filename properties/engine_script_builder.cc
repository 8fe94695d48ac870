// Makes engine scripts from a source of choices, aimed at the interesting places: block boundaries,
// the end of the cache, sequences of different lengths in one step.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "caches/registry.h"
#include "engine/kernels.h"
#include "engine/synthetic.h"
#include "properties/engine_script.h"
#include "properties/script_builder.h"

namespace lockstep {
namespace {

// More threads than cores wait for each other, and change no bit: they need not be frequent.
constexpr std::array kThreads = {1, 1, 1, 1, 1, 2, 3, 7};
constexpr std::array kSteps = {3, 5, 8, 512};

// Cheap models more often: what scripts vary is the order of steps, not the arithmetic.
struct ModelWeight {
  std::string_view name;
  uint32_t weight;
};
constexpr std::array kModels = {
    ModelWeight{"tiny-mha-4x4-f32", 12},         ModelWeight{"tiny-ragged-3x1-f32", 8},
    ModelWeight{"tiny-untied-4x2-q8_0", 12},     ModelWeight{"tiny-gqa-28x4-q4_0", 4},
    ModelWeight{"tiny-bias-6x2-f16", 4},         ModelWeight{"tiny-gqa-9x3-q8_0", 3},
    ModelWeight{"tiny-mqa-4x1-f16", 2},          ModelWeight{"tiny-headdim80-2x2-bf16", 2},
    ModelWeight{"tiny-bias-qknorm-6x2-q8_0", 2}, ModelWeight{"tiny-headdim128-2x1-q8_0", 1},
    ModelWeight{"tiny-qwen3-5x1-f16", 2},        ModelWeight{"tiny-smollm3-4x2-q4_0", 2},
    ModelWeight{"tiny-granite-6x3-q8_0", 2},     ModelWeight{"tiny-linear-4x1-f32", 3},
    ModelWeight{"tiny-mistral-6x2-q8_0", 1},     ModelWeight{"tiny-fused-4x1-f16", 1},
    ModelWeight{"tiny-gemma2-5x1-q8_0", 1},      ModelWeight{"tiny-gemma3-3x1-f16", 1},
    ModelWeight{"tiny-mixtral-4x2-q8_0", 1},     ModelWeight{"tiny-qwen2moe-3x1-f16", 1},
};

class EngineBuilder {
 public:
  EngineBuilder(const EngineScriptLimits& limits, Chooser& choose) : choose_(choose) {
    PickCaches(limits);
    PickModel();
    PickRest(limits);
    for (uint32_t& weight : weights_) weight = choose_.OneIn(4) ? 0 : 1 + choose_.Below(6);
    // Without rows there is nothing to do anything else to.
    weights_[static_cast<size_t>(EngineOpKind::kPrefill)] += 2;
  }

  EngineScript Build() {
    while (!choose_.Exhausted()) Add(PickOp());
    return std::move(script_);
  }

 private:
  void PickCaches(const EngineScriptLimits& limits) {
    std::vector<std::string> names = limits.caches;
    if (names.empty()) {
      for (const CacheSpec& spec : AllCaches()) names.push_back(spec.name);
    }
    const int32_t kinds = choose_.OneIn(3) ? choose_.Between(2, 3) : 1;
    for (int32_t i = 0; i < kinds; ++i) {
      const std::string& name = names[choose_.Below(static_cast<uint32_t>(names.size()))];
      const CacheSpec spec = ParseCacheSpec(name);
      script_.caches.push_back(name);
      specs_.push_back(spec);
      block_size_ = std::max(block_size_, spec.block_size);
      window_ = std::max(window_, spec.window);
    }
  }

  void PickModel() {
    uint32_t sum = 0;
    for (const ModelWeight& model : kModels) sum += Weight(model);
    uint32_t at = choose_.Below(sum);
    size_t i = 0;
    while (at >= Weight(kModels[i])) at -= Weight(kModels[i++]);
    script_.model = kModels[i].name;
    layers_ = SyntheticPreset(script_.model).num_layers;
  }

  uint32_t Weight(const ModelWeight& model) const {
    const KvGeometry geometry = SyntheticGeometry(SyntheticPreset(model.name), 1);
    const bool fits = std::ranges::all_of(
        specs_, [&](const CacheSpec& spec) { return Misfit(spec, geometry).empty(); });
    return fits ? model.weight : 0;
  }

  void PickRest(const EngineScriptLimits& limits) {
    const auto tables = AvailableKernels();
    // One byte of choice however many tables this machine has.
    script_.isa = tables[choose_.Below(256) % tables.size()]->name;
    if (!limits.isa.empty()) script_.isa = limits.isa;
    script_.seed = choose_.Between(1, 2);
    script_.max_length = choose_.OneIn(6) ? choose_.Between(40, 64) : choose_.Between(9, 30);
    script_.step = kSteps[choose_.Below(kSteps.size())];
    script_.threads = kThreads[choose_.Below(kThreads.size())];
    if (block_size_ > 0 && choose_.OneIn(4)) {
      const int32_t needed = (script_.max_length + block_size_ - 1) / block_size_;
      script_.blocks = choose_.Between(std::max(1, needed / 2), 2 * needed);
    }
    PickDevice(limits);
  }

  // Where rows lie on a device, mostly the engine there too, in order or in some other.
  void PickDevice(const EngineScriptLimits& limits) {
    const bool rows =
        std::ranges::any_of(specs_, [](const CacheSpec& spec) { return spec.device_layers > 0; });
    if (!rows || !limits.devices) return;
    const uint32_t place = choose_.Below(4);
    if (place == 0) return;
    script_.device =
        place == 1 ? "host-executor" : fmt::format("host-executor/{}", choose_.Between(1, 255));
  }

  EngineOp PickOp() {
    uint32_t at = choose_.Below(std::accumulate(weights_.begin(), weights_.end(), 0u));
    size_t kind = 0;
    while (at >= weights_[kind]) at -= weights_[kind++];
    EngineOp op;
    op.kind = static_cast<EngineOpKind>(kind);
    if (!forked_.empty() && choose_.OneIn(2)) op.kind = EngineOpKind::kDecode;
    switch (op.kind) {
      case EngineOpKind::kBatch:
      case EngineOpKind::kCancel:
        PickBatch(&op);
        // Few points lie past the end of a step: one sequence has some 20 a layer.
        if (op.kind == EngineOpKind::kCancel) op.count = choose_.Between(0, 20 * layers_);
        return op;
      default:
        op.sequences = {PickSequence()};
    }
    const int32_t length = Length(op.sequences[0]);
    switch (op.kind) {
      case EngineOpKind::kPrefill:
        op.cuts = PickCuts(PickCount(length));
        op.tokens = PickTokens();
        break;
      case EngineOpKind::kDecode:
        op.count = choose_.Between(1, 3);
        op.tokens = choose_.OneIn(2) ? 0 : PickTokens();
        break;
      case EngineOpKind::kSpeculate:
        op.count = choose_.Between(1, 5);
        op.accept = PickAccepted(op.count);
        op.tokens = PickTokens();
        break;
      case EngineOpKind::kRollback:
        op.count = PickRollback(length);
        break;
      case EngineOpKind::kFork:
        op.count = choose_.Between(0, kEngineSequences - 1);
        break;
      case EngineOpKind::kPath:
        op.count = PickPath();
        break;
      case EngineOpKind::kAdapt:
        op.count = choose_.Between(0, kAdapterSets - 1);
        break;
      case EngineOpKind::kShift:
        PickShift(length, &op);
        break;
      default:
        break;
    }
    return op;
  }

  // After a fork mostly one of its sides, else mostly one of the first two, so that sequences grow
  // long enough to be interesting.
  int32_t PickSequence() {
    if (!forked_.empty() && !choose_.OneIn(4)) {
      const int32_t sequence = forked_.back();
      forked_.pop_back();
      return sequence;
    }
    return choose_.OneIn(3) ? choose_.Between(0, kEngineSequences - 1) : choose_.Between(0, 1);
  }

  int32_t PickTokens() { return choose_.Between(1, 255); }

  // To a block boundary or the end, one before it, one past it; or a few.
  int32_t PickCount(int32_t length) {
    switch (choose_.Below(8)) {
      case 0:
        return std::max(1, script_.max_length - length + choose_.Between(-1, 1));
      case 1:
      case 2:
        if (block_size_ > 1) {
          return std::max(1, block_size_ - length % block_size_ + choose_.Between(-1, 1));
        }
        return choose_.Between(1, 4);
      case 3:
        return window_ + choose_.Between(1, 3);
      default:
        return choose_.Between(1, 7);
    }
  }

  std::vector<int32_t> PickCuts(int32_t count) {
    std::vector<int32_t> cuts;
    const int32_t longest = choose_.OneIn(2) ? count : choose_.Between(1, count);
    for (int32_t left = count; left > 0; left -= cuts.back()) {
      cuts.push_back(std::min(left, choose_.OneIn(3) ? choose_.Between(1, longest) : longest));
    }
    return cuts;
  }

  int32_t PickPath() {
    const uint32_t path = choose_.Below(6);
    return path < 3 ? static_cast<int32_t>(path + 1) / 2 : 1 + choose_.Between(1, layers_);
  }

  int32_t PickAccepted(int32_t drafts) {
    switch (choose_.Below(4)) {
      case 0:
        return 0;
      case 1:
        return drafts;
      default:
        return choose_.Between(0, drafts);
    }
  }

  int32_t PickRollback(int32_t length) {
    switch (choose_.Below(8)) {
      case 0:
        return length + choose_.Between(0, 1);
      case 1:
        return choose_.Between(0, length);
      case 2:
      case 3:  // before the window, or near the block boundary before the end
        if (block_size_ > 1) {
          const int32_t boundary = std::max(0, length - 1) / block_size_ * block_size_;
          return std::clamp(boundary + choose_.Between(-1, 1), 0, length);
        }
        return std::max(0, length - window_ - choose_.Between(0, 2));
      default:
        return std::max(0, length - choose_.Between(1, 3));
    }
  }

  // Of few positions or many, at the beginning, near a block boundary, up to the end; sometimes of
  // none, or past it.
  void PickShift(int32_t length, EngineOp* op) {
    op->accept = choose_.OneIn(3) ? 0 : choose_.Between(0, std::max(0, length - 1));
    if (block_size_ > 1 && choose_.OneIn(3)) op->accept -= op->accept % block_size_;
    op->count = choose_.OneIn(8) ? length + choose_.Between(0, 1)
                                 : op->accept + choose_.Between(choose_.OneIn(8) ? 0 : 1, 4);
  }

  // One to three different sequences, sometimes one twice, which has to be refused.
  void PickBatch(EngineOp* op) {
    const int32_t count = choose_.Between(1, 3);
    op->sequences.clear();
    int32_t sequence = choose_.Between(0, kEngineSequences - 1);
    const int32_t stride = choose_.OneIn(24) ? 0 : choose_.OneIn(2) ? 1 : kEngineSequences - 1;
    for (int32_t i = 0; i < count; ++i) {
      op->sequences.push_back(sequence);
      op->cuts.push_back(choose_.OneIn(4) ? PickCount(Length(sequence)) : choose_.Between(1, 4));
      sequence = (sequence + stride) % kEngineSequences;
    }
    op->tokens = PickTokens();
  }

  int32_t Length(int32_t sequence) const { return lengths_[static_cast<size_t>(sequence)]; }

  // What is believed of the lengths: enough to aim.
  void Add(EngineOp op) {
    int32_t& length = lengths_[static_cast<size_t>(op.sequences[0])];
    switch (op.kind) {
      case EngineOpKind::kPrefill:
        length = Grown(length, std::accumulate(op.cuts.begin(), op.cuts.end(), 0));
        break;
      case EngineOpKind::kDecode:
        length = Grown(length, op.count);
        break;
      case EngineOpKind::kSpeculate:
        length = Grown(length, op.accept + 1);
        break;
      case EngineOpKind::kBatch:
        for (size_t i = 0; i < op.sequences.size(); ++i) {
          int32_t& grown = lengths_[static_cast<size_t>(op.sequences[i])];
          grown = Grown(grown, op.cuts[i]);
        }
        break;
      case EngineOpKind::kRollback:
        length = std::min(length, op.count);
        break;
      case EngineOpKind::kShift:
        if (op.count <= length) length -= std::max(0, op.count - op.accept);
        break;
      case EngineOpKind::kFork:
        lengths_[static_cast<size_t>(op.count)] = length;
        if (length > 0) forked_ = {op.sequences[0], op.count};
        break;
      case EngineOpKind::kEnd:
      case EngineOpKind::kClear:
        length = 0;
        break;
      default:
        break;
    }
    script_.ops.push_back(std::move(op));
  }

  int32_t Grown(int32_t length, int32_t count) const {
    return length + count <= script_.max_length ? length + count : length;
  }

  Chooser& choose_;
  EngineScript script_;
  int32_t layers_ = 0;
  std::vector<CacheSpec> specs_;
  int32_t block_size_ = 0;
  int32_t window_ = 0;
  std::array<uint32_t, kEngineOpKinds> weights_ = {};
  std::array<int32_t, kEngineSequences> lengths_ = {};
  std::vector<int32_t> forked_;  // sides of the last fork that were not picked since
};

}  // namespace

EngineScript BuildEngineScript(Chooser& choose, const EngineScriptLimits& limits) {
  return EngineBuilder(limits, choose).Build();
}

EngineScript GenerateEngineScript(uint64_t seed, int32_t operations,
                                  const EngineScriptLimits& limits) {
  RandomChooser choose(seed, operations);
  return BuildEngineScript(choose, limits);
}

EngineScript DecodeEngineScript(std::span<const std::byte> bytes,
                                const EngineScriptLimits& limits) {
  ByteChooser choose(bytes);
  return BuildEngineScript(choose, limits);
}

}  // namespace lockstep
