#include "oracle/digest_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "caches/error.h"
#include "engine/synthetic.h"
#include "engine/transformer.h"

namespace lockstep {
namespace {

constexpr int32_t kPrefill = 9;
constexpr int32_t kDecode = 4;

bool IsSmall(const SyntheticSpec& spec) { return spec.dim <= 512; }

bool IsDigest(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

// The text up to the next blank, taken off `rest`.
std::string TakeWord(std::string_view* rest) {
  const std::string_view word = rest->substr(0, rest->find(' '));
  rest->remove_prefix(std::min(rest->size(), word.size() + 1));
  return std::string(word);
}

}  // namespace

std::string DigestLine::Text() const {
  return fmt::format("{} {} {} {} {}", kernels, model, cache, logits, rows);
}

std::vector<DigestLine> ParseDigestLines(std::string_view where, std::string_view text) {
  std::vector<DigestLine> lines;
  for (int number = 1; !text.empty(); ++number) {
    std::string_view rest = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), rest.size() + 1));
    if (rest.empty()) continue;
    DigestLine line;
    for (std::string* field : {&line.kernels, &line.model, &line.cache, &line.logits, &line.rows}) {
      *field = TakeWord(&rest);
    }
    if (!rest.empty() || line.cache.empty() || !IsDigest(line.logits) || !IsDigest(line.rows)) {
      throw Error({fmt::format("{}, line {}", where, number),
                   "is not '<kernels> <model> <cache> <logits digest> <cache digest>'",
                   "make the file again"});
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

DigestLine LineOf(const std::string& name, const std::shared_ptr<const Model>& model,
                  const KernelTable& kernels, const CacheSpec& cache,
                  std::span<const AppliedAdapter> adapters) {
  const ModelConfig& config = model->config();
  const int32_t decode = std::min(kDecode, config.context_length - kPrefill);
  const auto rows = cache.make({.geometry = config.geometry(kPrefill + decode), .sequences = 1});
  Transformer engine(model, {.kernels = &kernels});
  engine.SetAdapters({adapters.begin(), adapters.end()});
  std::vector<int32_t> tokens(kPrefill), positions(kPrefill);
  for (int32_t i = 0; i < kPrefill; ++i) {
    tokens[static_cast<size_t>(i)] = (7 + 31 * i) % config.vocab_size;
  }
  std::iota(positions.begin(), positions.end(), 0);
  DigestBuilder digest;
  std::span<const float> logits = engine.Forward(tokens, positions, *rows);
  digest.AddFloats(logits);
  for (int32_t position = kPrefill; position < kPrefill + decode; ++position) {
    const int32_t token = ArgMax(logits);
    logits = engine.Forward({&token, 1}, {&position, 1}, *rows);
    digest.AddFloats(logits);
  }
  return {std::string(kernels.name), name, cache.name, digest.Finish().Hex(),
          DigestOfCache(*rows).Hex()};
}

std::vector<DigestLine> LinesOfPresets(std::span<const KernelTable* const> kernels) {
  std::vector<DigestLine> lines;
  for (const SyntheticSpec& preset : SyntheticPresets()) {
    if (!IsSmall(preset)) continue;
    const auto model = Model::Load(MakeSyntheticModel(preset, 1));
    for (const CacheSpec& cache : AllCaches()) {
      if (!Misfit(cache, model->config().geometry(1)).empty()) continue;
      for (const KernelTable* table : kernels) {
        lines.push_back(LineOf(preset.name, model, *table, cache));
      }
    }
  }
  return lines;
}

}  // namespace lockstep
