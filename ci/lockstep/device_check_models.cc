// Whole models on the device: the host's bits, and how near decode and prefill come to what the
// device can do. Models are synthetic, with geometries that people run.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>

#include "caches/digest.h"
#include "caches/registry.h"
#include "ci/lockstep/device_check.h"
#include "engine/kernels.h"
#include "engine/synthetic.h"
#include "engine/thread_team.h"
#include "engine/transformer.h"
#include "reports/device_limits.h"
#include "reports/timed_device.h"
#include "reports/work.h"

namespace lockstep::cli {
namespace {

// SmolLM-135M, and the geometry of Llama 3.2 1B
// (https://huggingface.co/meta-llama/Llama-3.2-1B).
SyntheticSpec SpecOf(bool large) {
  if (!large) return SyntheticPreset("smollm-135m");
  SyntheticSpec spec;
  spec.name = "llama-1b";
  spec.dim = 2048;
  spec.ffn_dim = 8192;
  spec.num_layers = 16;
  spec.num_heads = 32;
  spec.num_kv_heads = 8;
  spec.head_dim = 64;
  spec.vocab_size = 128256;
  spec.context_length = 4096;
  spec.rope_factors = true;
  return spec;
}

// The same proportions in what the executor computes within a second.
SyntheticSpec Simulated(SyntheticSpec spec) {
  spec.name += ", simulated";
  spec.num_layers = 2;
  spec.num_kv_heads = std::max(spec.num_kv_heads / 4, 1);
  spec.num_heads = spec.num_kv_heads * 4;
  spec.head_dim = 32;
  spec.dim = 64;
  spec.ffn_dim = spec.dim * 3;
  spec.vocab_size = 512;
  spec.context_length = 256;
  return spec;
}

// Of Q8_0 weights and of the memory beside them, about.
int64_t DeviceBytes(const SyntheticSpec& spec) {
  const int64_t heads = int64_t{spec.num_heads + spec.num_kv_heads} * spec.head_dim;
  const int64_t layer = int64_t{spec.dim} * (2 * heads + 3 * int64_t{spec.ffn_dim});
  const int64_t ends = int64_t{spec.vocab_size} * spec.dim;  // of a tied head
  return (layer * spec.num_layers + ends) / 32 * 34 + (int64_t{512} << 20);
}

struct CheckedModel {
  std::string name;
  std::shared_ptr<const Model> model;
};

// The model of this size, kept until the other one is asked for; with fewer layers where three
// quarters of the free memory do not hold all. Nothing where they do not hold one.
std::optional<CheckedModel> ModelFor(const DeviceCheckInput& input, bool large) {
  static CheckedModel kept;
  SyntheticSpec spec = SpecOf(large);
  if (input.simulated) {
    spec = Simulated(spec);
  } else {
    const int32_t layers = spec.num_layers;
    const int64_t room = input.device->FreeBytes() / 4 * 3;
    while (spec.num_layers > 0 && DeviceBytes(spec) > room) --spec.num_layers;
    if (spec.num_layers == 0) return std::nullopt;
    if (spec.num_layers < layers) spec.name += fmt::format(", {} layers", spec.num_layers);
  }
  if (kept.name != spec.name) {
    kept = {};
    kept = {spec.name, Model::Load(MakeSyntheticModel(spec, 1))};
  }
  return kept;
}

std::vector<DeviceCheckRow> NoRoom(std::string part) {
  return {{.part = std::move(part), .verdict = "skipped", .what = "no memory for one layer"}};
}

std::vector<int32_t> Positions(int32_t first, int32_t count) {
  std::vector<int32_t> positions(static_cast<size_t>(count));
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

std::vector<int32_t> Prompt(const Model& model, int32_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((i * 37 + 7) % model.config().vocab_size);
  return tokens;
}

// An engine, and a cache that it generates into.
struct Side {
  Side(const std::shared_ptr<const Model>& model, const std::string& cache_name,
       const std::shared_ptr<Device>& device, int32_t max_length)
      : engine(model, {.threads = device == nullptr ? DefaultThreads() : 1, .device = device}),
        cache(ParseCacheSpec(cache_name)
                  .make({.geometry = model->config().geometry(max_length),
                         .sequences = 1,
                         .device = device})) {}

  std::span<const float> Step(std::span<const int32_t> tokens) {
    const auto positions = Positions(cache->current_length(), static_cast<int32_t>(tokens.size()));
    return engine.Forward(tokens, positions, *cache);
  }

  Transformer engine;
  std::unique_ptr<KvCache> cache;
};

// What differs first between the two, over a prefill in two steps, greedy tokens, and greedy tokens
// again behind a rollback. Empty: nothing.
std::string FirstDifference(Side* device, Side* host, int32_t prompt, int32_t decoded) {
  std::string found;
  const auto step = [&](std::span<const int32_t> tokens) {
    const std::span<const float> there = device->Step(tokens);
    const std::span<const float> here = host->Step(tokens);
    if (found.empty() && DigestOfFloats(there) != DigestOfFloats(here)) {
      found =
          fmt::format("the logits behind position {} differ", host->cache->current_length() - 1);
    }
    return ArgMax(here);
  };
  const std::vector<int32_t> tokens = Prompt(host->engine.model(), prompt);
  step(std::span(tokens).first(tokens.size() / 2));
  int32_t next = step(std::span(tokens).subspan(tokens.size() / 2));
  for (int32_t i = 0; i < decoded; ++i) next = step({&next, 1});
  for (Side* side : {device, host}) side->cache->Rollback(prompt + 1);
  for (int32_t i = 0; i < 2; ++i) next = step({&next, 1});
  if (found.empty() && DigestOfCache(*device->cache) != DigestOfCache(*host->cache)) {
    found = "the rows differ";
  }
  if (found.empty() && device->engine.device_use().graph_steps == 0)
    found = "no graph was replayed";
  return found;
}

std::vector<DeviceCheckRow> Parity(const DeviceCheckInput& input, bool large) {
  const std::string part = large ? "parity-1b" : "parity-135m";
  const auto checked = ModelFor(input, large);
  if (!checked) return NoRoom(part);
  const int32_t prompt = input.simulated ? 9 : 96;
  const int32_t decoded = input.simulated ? 3 : 12;
  std::vector<DeviceCheckRow> rows;
  for (const auto& [cache, twin] :
       {std::pair{"cuda", "quantized/f16+f16/w0"},
        std::pair{"cuda-quantized/q8_0+q4_0/w8", "quantized/q8_0+q4_0/w8-f16"}}) {
    Side device(checked->model, cache, input.device, prompt + decoded + 8);
    Side host(checked->model, twin, nullptr, prompt + decoded + 8);
    const std::string found = FirstDifference(&device, &host, prompt, decoded);
    rows.push_back({.part = part,
                    .verdict = found.empty() ? "ok" : "FAILED",
                    .what = fmt::format("{}, {}: {}", checked->name, cache,
                                        found.empty() ? "the host's bits" : found)});
  }
  return rows;
}

// Every small synthetic model: all weight types, all families.
std::vector<DeviceCheckRow> PresetParity(const DeviceCheckInput& input) {
  constexpr int32_t kPrompt = 9, kDecoded = 2;
  std::vector<DeviceCheckRow> rows;
  int32_t equal = 0;
  for (const SyntheticSpec& spec : SyntheticPresets()) {
    if (spec.num_layers > 8) continue;  // the one that people run has parts of its own
    const auto model = Model::Load(MakeSyntheticModel(spec, 1));
    Side device(model, "cuda", input.device, kPrompt + kDecoded + 8);
    Side host(model, "quantized/f16+f16/w0", nullptr, kPrompt + kDecoded + 8);
    const std::string found = FirstDifference(&device, &host, kPrompt, kDecoded);
    equal += found.empty() ? 1 : 0;
    if (found.empty()) continue;
    rows.push_back({.part = "parity-presets",
                    .verdict = "FAILED",
                    .what = fmt::format("{}, cuda: {}", spec.name, found)});
  }
  rows.push_back({.part = "parity-presets",
                  .verdict = equal > 0 ? "ok" : "FAILED",
                  .what = fmt::format("{} small models, cuda: the host's bits", equal)});
  return rows;
}

// The least seconds of some attempts, the first not among them.
template <typename Attempt>
double LeastSeconds(TimedDevice& device, int32_t attempts, bool* device_clock,
                    const Attempt& attempt) {
  double least = 0;
  for (int32_t i = 0; i <= attempts; ++i) {
    const TimedDevice::Seconds seconds = attempt();
    *device_clock = seconds.device_clock;
    const double one = seconds.device_clock ? seconds.device : seconds.host;
    if (i == 1 || (i > 1 && one < least)) least = one;
  }
  device.Take();
  return least;
}

struct Speed {
  double prefill_seconds = 0;
  double decode_seconds = 0;  // a token
  bool device_clock = false;
};

Speed MeasureSpeed(const DeviceCheckInput& input, const CheckedModel& checked, int32_t prompt,
                   int32_t decoded) {
  const auto timed = std::make_shared<TimedDevice>(input.device);
  const int32_t attempts = input.simulated ? 1 : 3;
  Side side(checked.model, "cuda", timed, prompt + decoded);
  const std::vector<int32_t> tokens = Prompt(*checked.model, prompt);
  const std::vector<int32_t> positions = Positions(0, prompt);
  Speed speed;
  speed.prefill_seconds = LeastSeconds(*timed, attempts, &speed.device_clock, [&] {
    side.cache->Clear();
    timed->Take();
    side.engine.ForwardGreedy(tokens, positions, *side.cache);
    return timed->Take();
  });
  const double all = LeastSeconds(*timed, attempts, &speed.device_clock, [&] {
    side.cache->Rollback(prompt);
    timed->Take();
    int32_t token = 1;
    for (int32_t i = 0; i < decoded; ++i) {
      const int32_t position = prompt + i;
      token = side.engine.ForwardGreedy({&token, 1}, {&position, 1}, *side.cache);
    }
    return timed->Take();
  });
  speed.decode_seconds = all / decoded;
  return speed;
}

std::vector<DeviceCheckRow> Speeds(const DeviceCheckInput& input, bool large) {
  const std::string part = large ? "speed-1b" : "speed-135m";
  const auto checked = ModelFor(input, large);
  if (!checked) return NoRoom(part);
  const int32_t prompt = input.simulated ? 8 : 512;
  const int32_t decoded = input.simulated ? 2 : 64;
  const DeviceLimits limits =
      MeasureDeviceLimits(*input.device, DeviceLimitOptionsFor(*input.device, input.simulated));
  const Speed speed = MeasureSpeed(input, *checked, prompt, decoded);
  const Work prefill = PrefillWork(*checked->model, prompt, prompt);
  const double prefill_at_best = prefill.dot_multiply_adds / limits.products_per_second +
                                 prefill.fma_multiply_adds / limits.fmas_per_second;
  const Work decode =
      DecodeWork(*checked->model, {RowType::kF16, RowType::kF16}, prompt + decoded / 2);
  const double decode_at_best = decode.bytes / limits.copy_bytes_per_second;
  const std::string by = speed.device_clock ? "" : ", by the host's clock";
  const auto row = [&](const std::string& what, double value, std::string unit) {
    return DeviceCheckRow{.part = part,
                          .verdict = limits.right ? "ok" : "FAILED",
                          .what = fmt::format("{}: {}{}", checked->name, what, by),
                          .value = value,
                          .unit = std::move(unit)};
  };
  return {
      row(fmt::format("prefill of {} tokens", prompt), prompt / speed.prefill_seconds, "tokens/s"),
      row("prefill, of the arithmetic limit", 100 * prefill_at_best / speed.prefill_seconds, "%"),
      row(fmt::format("decode behind {} tokens", prompt), 1 / speed.decode_seconds, "tokens/s"),
      row("decode, of the bandwidth limit", 100 * decode_at_best / speed.decode_seconds, "%")};
}

}  // namespace

std::vector<DeviceCheckRow> CheckSmallParity(const DeviceCheckInput& input) {
  return Parity(input, false);
}
std::vector<DeviceCheckRow> CheckPresetParity(const DeviceCheckInput& input) {
  return PresetParity(input);
}
std::vector<DeviceCheckRow> MeasureSmallSpeed(const DeviceCheckInput& input) {
  return Speeds(input, false);
}
std::vector<DeviceCheckRow> CheckLargeParity(const DeviceCheckInput& input) {
  return Parity(input, true);
}
std::vector<DeviceCheckRow> MeasureLargeSpeed(const DeviceCheckInput& input) {
  return Speeds(input, true);
}

}  // namespace lockstep::cli
