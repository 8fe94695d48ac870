#include "ci/lockstep/model_source.h"

#include <fmt/format.h>

#include "caches/error.h"
#include "ci/lockstep/shell_word.h"
#include "engine/story.h"
#include "engine/synthetic.h"

namespace lockstep::cli {

std::vector<Flag> ModelSource::Flags() {
  return {
      {"--model", "FILE", "GGUF model file", &path},
      {"--synthetic", "PRESET", "a model made from a seed instead of a file", &synthetic},
      {"--seed", "SEED", "seed of the synthetic model", &seed},
      {"--story", "WEIGHTS", "the model that lockstep comes with, in f32 or q8_0", &story},
  };
}

LoadedModel ModelSource::Load(const ModelLoadOptions& options) const {
  if (!path.empty() + !synthetic.empty() + !story.empty() > 1) {
    throw Error({path.empty() ? "--story" : "--model", "another model is given too",
                 "give one of --model, --synthetic and --story"});
  }
  if (!given()) {
    throw Error({"--model", "no model is given",
                 "give --model FILE, or --synthetic smollm-135m for one made from a seed"});
  }
  const auto file = Open();
  return {Model::Load(file, options), Tokenizer::Load(*file)};
}

std::shared_ptr<const GgufFile> ModelSource::Open() const {
  if (!story.empty()) return OpenStoryModel(StoryModelOf(story));
  return path.empty() ? MakeSyntheticModel(SyntheticPreset(synthetic), seed) : GgufFile::Open(path);
}

std::string ModelSource::Description() const {
  if (!story.empty()) return fmt::format("the story model in {}", story);
  return path.empty() ? fmt::format("synthetic {}, seed {}", synthetic, seed) : path;
}

std::string ModelSource::CommandLine() const {
  if (!story.empty()) return fmt::format("--story {}", ShellWord(story));
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
