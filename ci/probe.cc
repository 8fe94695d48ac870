// The digests that have to be the same from every compiler, optimisation level and instruction set:
// ci/compilers builds this program several times and compares what it prints.
//
// Output, a line each: "<kernels> <preset> <cache> <logits digest> <cache digest>".
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <numeric>
#include <string>
#include <vector>

#include "caches/registry.h"
#include "engine/synthetic.h"
#include "engine/transformer.h"

namespace lockstep {
namespace {

constexpr int32_t kPrefill = 9;
constexpr int32_t kDecode = 4;

// All small presets: together they have every weight type, head shape and pipeline stage.
bool IsSmall(const SyntheticSpec& spec) { return spec.dim <= 512; }

void Print(const std::shared_ptr<const Model>& model, const KernelTable& kernels,
           const std::string& preset, const CacheSpec& spec) {
  const auto cache = spec.make({.geometry = model->config().geometry(kPrefill + kDecode)});
  Transformer engine(model, {.kernels = &kernels});
  std::vector<int32_t> tokens(kPrefill), positions(kPrefill);
  for (int32_t i = 0; i < kPrefill; ++i) {
    tokens[static_cast<size_t>(i)] = (7 + 31 * i) % model->config().vocab_size;
  }
  std::iota(positions.begin(), positions.end(), 0);
  DigestBuilder logits_digest;
  std::span<const float> logits = engine.Forward(tokens, positions, *cache);
  logits_digest.AddFloats(logits);
  for (int32_t step = 0; step < kDecode; ++step) {
    const int32_t token = ArgMax(logits);
    const int32_t position = kPrefill + step;
    logits = engine.Forward({&token, 1}, {&position, 1}, *cache);
    logits_digest.AddFloats(logits);
  }
  fmt::print("{} {} {} {} {}\n", kernels.name, preset, spec.name, logits_digest.Finish().Hex(),
             DigestOfCache(*cache).Hex());
}

void PrintAll() {
  for (const SyntheticSpec& synthetic : SyntheticPresets()) {
    if (!IsSmall(synthetic)) continue;
    const auto model = Model::Load(MakeSyntheticModel(synthetic, 1));
    for (const CacheSpec& spec : AllCaches()) {
      if (model->config().head_dim % spec.head_dim_multiple != 0) continue;
      for (const KernelTable* kernels : AvailableKernels()) {
        Print(model, *kernels, synthetic.name, spec);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep

int main() {
  try {
    lockstep::PrintAll();
  } catch (const std::exception& e) {
    fmt::print(stderr, "lockstep_probe: {}\n", e.what());
    return 2;
  }
  return 0;
}
