#include "ci/lockstep/model_source.h"

#include <fmt/format.h>

#include "caches/error.h"
#include "ci/lockstep/shell_word.h"
#include "engine/synthetic.h"

namespace lockstep::cli {

std::vector<Flag> ModelSource::Flags() {
  return {
      {"--model", "FILE", "GGUF model file", &path},
      {"--synthetic", "PRESET", "a model made from a seed instead of a file", &synthetic},
      {"--seed", "SEED", "seed of the synthetic model", &seed},
  };
}

LoadedModel ModelSource::Load(const ModelLoadOptions& options) const {
  if (!path.empty() && !synthetic.empty()) {
    throw Error({"--synthetic", "a model file is given too", "give --model or --synthetic"});
  }
  if (!given()) {
    throw Error({"--model", "no model is given",
                 "give --model FILE, or --synthetic smollm-135m for one made from a seed"});
  }
  const auto file =
      path.empty() ? MakeSyntheticModel(SyntheticPreset(synthetic), seed) : GgufFile::Open(path);
  return {Model::Load(file, options), Tokenizer::Load(*file)};
}

std::string ModelSource::Description() const {
  return path.empty() ? fmt::format("synthetic {}, seed {}", synthetic, seed) : path;
}

std::string ModelSource::CommandLine() const {
  return path.empty() ? fmt::format("--synthetic {} --seed {}", ShellWord(synthetic), seed)
                      : fmt::format("--model {}", ShellWord(path));
}

std::vector<int32_t> ModelSource::EncodePrompt(const LoadedModel& loaded, const std::string& prompt,
                                               int32_t steps) const {
  if (prompt.empty()) {
    throw Error({"--prompt", "the text is empty", "give at least one character"});
  }
  std::vector<int32_t> ids = loaded.tokenizer->EncodePrompt(prompt);
  const int64_t needed = static_cast<int64_t>(ids.size()) + steps;
  const int32_t context = loaded.model->config().context_length;
  if (needed > context) {
    throw Error({"--prompt",
                 fmt::format("{} tokens and {} decode steps need {} positions, and the context of "
                             "{} has {}",
                             ids.size(), steps, needed, Description(), context),
                 "shorten the prompt or lower -n"});
  }
  return ids;
}

}  // namespace lockstep::cli
