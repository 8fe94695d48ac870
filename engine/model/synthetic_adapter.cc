#include <fmt/format.h>

#include <cmath>

#include "caches/check.h"
#include "caches/random.h"
#include "engine/model/synthetic_rows.h"
#include "engine/synthetic.h"

namespace lockstep {
namespace {

// A x has standard deviation 1 for inputs of RMS 1, and the whole change half of what a projection
// gives, with the pair's own scale.
constexpr float kDeltaGain = 0.5f;
constexpr float kPairScale = 0.75f;

// One pair in four is left out.
constexpr uint32_t kPairsIn = 4;

}  // namespace

std::vector<std::byte> MakeSyntheticAdapterImage(const ModelConfig& config,
                                                 const SyntheticAdapterSpec& spec, uint64_t seed) {
  LS_CHECK(spec.rank >= 1, "rank {}", spec.rank);
  GgufWriter writer;
  writer.AddString("general.type", "adapter");
  writer.AddString("general.architecture", config.architecture);
  writer.AddString("general.name", fmt::format("synthetic-lora-{}/{}", spec.rank, seed));
  writer.AddString("adapter.type", "lora");
  writer.AddFloat32("adapter.lora.alpha", kPairScale * static_cast<float>(spec.rank));
  const Random root(seed);
  uint64_t stream = 0;
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    for (size_t i = 0; i < kAdapterTargets; ++i) {
      const auto target = static_cast<AdapterTarget>(i);
      if (!HasAdapterTarget(config, target)) continue;
      const MatrixShape whole = AdapterShape(config, target);
      const MatrixShape shapes[] = {{spec.rank, whole.inputs}, {whole.outputs, spec.rank}};
      const float gains[] = {1.0f, kDeltaGain / kPairScale};
      Random choice = root.Split(stream++);
      const bool left_out = choice.Below(kPairsIn) == 0;
      for (size_t half = 0; half < 2; ++half) {
        Random random = root.Split(stream++);
        if (left_out) continue;
        const MatrixShape& shape = shapes[half];
        // Uniform, with that standard deviation.
        const float rms = gains[half] / std::sqrt(static_cast<float>(shape.inputs));
        const float unit = rms * std::sqrt(3.0f) * 0x1p-23f;
        const std::string name =
            fmt::format("blk.{}.{}.lora_{}", layer, AdapterTensorName(target), "ab"[half]);
        writer.AddTensor(name, spec.type, {shape.inputs, shape.outputs},
                         SyntheticRows(name, spec.type, shape.outputs, shape.inputs, [&] {
                           return static_cast<float>(random.Between(-(1 << 23), (1 << 23) - 1)) *
                                  unit;
                         }));
      }
    }
  }
  return writer.Finish();
}

std::shared_ptr<const LoraAdapter> MakeSyntheticAdapter(const ModelConfig& config,
                                                        const SyntheticAdapterSpec& spec,
                                                        uint64_t seed) {
  return LoraAdapter::Load(
      *GgufFile::FromBytes(MakeSyntheticAdapterImage(config, spec, seed),
                           fmt::format("synthetic:lora-{}/{}", spec.rank, seed)),
      config);
}

}  // namespace lockstep
