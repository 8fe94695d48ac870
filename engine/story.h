// The model that comes with lockstep: a million parameters trained on short stories
// (docs/story-model.md), so that a first run tells a story and the goldens see trained weights
// without any download. Its family is qwen3 with biases: all that is done to a row in its slot.
#ifndef LOCKSTEP_ENGINE_STORY_H_
#define LOCKSTEP_ENGINE_STORY_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf.h"

namespace lockstep {

struct StoryModel {
  std::string_view weights;  // of matrices: "f32" or "q8_0"
  std::string_view file;     // its name, without folder
  std::string_view digest;   // XXH3-128 of its bytes, hex
};

std::span<const StoryModel> StoryModels();

// Throws Error naming the weights that there are.
const StoryModel& StoryModelOf(std::string_view weights);

// Where its files may lie, the nearest first: share/lockstep in the folder of the running program
// and in the two above it, which is where an installation and a build tree have it.
std::vector<std::string> StoryFolders();

// The path of a file of StoryModels() in the first folder that has it. Throws Error naming all
// folders when none has.
std::string StoryModelPath(const StoryModel& model,
                           std::span<const std::string> folders = StoryFolders());

// Opens it. Throws Error when its bytes are not those that lockstep came with.
std::shared_ptr<const GgufFile> OpenStoryModel(
    const StoryModel& model, std::span<const std::string> folders = StoryFolders());

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_STORY_H_
