// lockstep synth: writes a synthetic model, or an adapter for one, to a file, for engines that read
// files.
#include <fmt/format.h>

#include <memory>

#include "caches/digest.h"
#include "caches/error.h"
#include "caches/file_io.h"
#include "ci/lockstep/commands.h"
#include "engine/synthetic.h"
#include "engine/synthetic_types.h"

namespace lockstep::cli {
namespace {

struct SynthOptions {
  std::string preset = "smollm-135m";
  uint64_t seed = 1;
  std::string weights;    // empty: the preset's
  int32_t lora_rank = 0;  // 0: the model
  std::string out;

  SyntheticSpec Spec() const {
    const SyntheticSpec& spec = SyntheticPreset(preset);
    return weights.empty() ? spec : InWeightType(spec, ParseWeightType("--weights", weights));
  }

  std::vector<std::byte> Image() const {
    const SyntheticSpec spec = Spec();
    if (lora_rank == 0) return MakeSyntheticImage(spec, seed);
    const auto model = Model::Load(MakeSyntheticModel(spec, seed));
    return MakeSyntheticAdapterImage(model->config(), {.rank = lora_rank}, seed);
  }
};

ExitCode Synth(const SynthOptions& options) {
  const std::vector<std::byte> image = options.Image();
  WriteWholeFile(options.out, image);
  const SyntheticSpec spec = options.Spec();
  std::string weights;
  if (!options.weights.empty()) {
    weights = fmt::format(" in {} ({} wide, {} heads)", options.weights, spec.dim, spec.num_heads);
  }
  fmt::print("{}: {} bytes, preset {}{}, seed {}, digest {}\n", options.out, image.size(),
             options.preset, weights, options.seed, DigestOfBytes(image).Hex());
  return ExitCode::kHolds;
}

}  // namespace

Command SynthCommand() {
  const auto options = std::make_shared<SynthOptions>();
  return {"synth",
          "Write a synthetic model to a GGUF file",
          {{"--preset", "NAME", "which one", &options->preset},
           {"--weights", "TYPE", "its matrices in this type, widths rounded up to whole blocks",
            &options->weights},
           {"--seed", "SEED", "seed of its weights", &options->seed},
           {"--lora", "RANK", "a LoRA adapter for it instead, of this rank",
            IntTarget{&options->lora_rank, 0, 4096}},
           {"--out", "FILE", "file to write", &options->out, true}},
          [options] { return Synth(*options); }};
}

}  // namespace lockstep::cli
