// Which model a subcommand works on, a file, a synthetic one made from a preset and a seed, or the
// one that lockstep comes with, and the prompt that it is given.
#ifndef LOCKSTEP_CI_LOCKSTEP_MODEL_SOURCE_H_
#define LOCKSTEP_CI_LOCKSTEP_MODEL_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ci/lockstep/command.h"
#include "engine/model.h"
#include "engine/tokenizer.h"

namespace lockstep::cli {

struct LoadedModel {
  std::shared_ptr<const Model> model;
  std::unique_ptr<const Tokenizer> tokenizer;
};

struct ModelSource {
  std::string path;       // --model
  std::string synthetic;  // --synthetic
  uint64_t seed = 1;      // --seed
  std::string story;      // --story: weights of engine/story.h

  bool given() const { return !path.empty() || !synthetic.empty() || !story.empty(); }

  // --model, --synthetic, --seed and --story, bound to this object.
  std::vector<Flag> Flags();

  // Throws Error when none or several are given, or the model cannot be read or is not supported.
  LoadedModel Load(const ModelLoadOptions& options = {}) const;

  // As a line of output names it: "model.gguf", "synthetic smollm-135m, seed 1" or "the story model
  // in q8_0".
  std::string Description() const;

  // The flags that choose the same model again, for a shell.
  std::string CommandLine() const;

  // The ids of --prompt. Throws Error when it is empty, and when it and `steps` more tokens do not
  // fit into the model's context.
  std::vector<int32_t> EncodePrompt(const LoadedModel& loaded, const std::string& prompt,
                                    int32_t steps) const;

 private:
  std::shared_ptr<const GgufFile> Open() const;  // REQUIRES: one of them
};

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_MODEL_SOURCE_H_
