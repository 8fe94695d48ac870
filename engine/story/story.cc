#include "engine/story.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "caches/digest.h"
#include "caches/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::array kModels = {
    StoryModel{"f32", "story-f32.gguf", "6da8bb9c92fd0b7a834b8f95ad531049"},
    StoryModel{"q8_0", "story-q8_0.gguf", "67c635b66a1283e3806be34d9eefb07a"},
};

// A build tree has its programs up to two folders below its root.
constexpr int32_t kLevels = 3;

}  // namespace

std::span<const StoryModel> StoryModels() { return kModels; }

const StoryModel& StoryModelOf(std::string_view weights) {
  const auto found = std::ranges::find(kModels, weights, &StoryModel::weights);
  if (found != kModels.end()) return *found;
  std::vector<std::string_view> names;
  for (const StoryModel& model : kModels) names.push_back(model.weights);
  throw Error({"story model", fmt::format("there is none with weights '{}'", weights),
               fmt::format("choose one of {}", fmt::join(names, ", "))});
}

std::vector<std::string> StoryFolders() {
  std::error_code failed;
  fs::path folder = fs::read_symlink("/proc/self/exe", failed).parent_path();
  std::vector<std::string> folders;
  for (int32_t level = 0; level < kLevels && !folder.empty(); ++level) {
    folders.push_back((folder / "share/lockstep").string());
    if (folder == folder.root_path()) break;
    folder = folder.parent_path();
  }
  return folders;
}

std::string StoryModelPath(const StoryModel& model, std::span<const std::string> folders) {
  for (const std::string& folder : folders) {
    const fs::path path = fs::path(folder) / model.file;
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored)) return path.string();
  }
  throw Error({fmt::format("story model '{}'", model.file),
               fmt::format("it is in none of {}", fmt::join(folders, ", ")),
               "install lockstep again, or give another model with --model FILE"});
}

std::shared_ptr<const GgufFile> OpenStoryModel(const StoryModel& model,
                                               std::span<const std::string> folders) {
  const std::string path = StoryModelPath(model, folders);
  std::shared_ptr<const GgufFile> file = GgufFile::Open(path);
  const std::string digest = DigestOfBytes(file->bytes()).Hex();
  if (digest == model.digest) return file;
  throw Error({path, fmt::format("has the digest {}, lockstep came with {}", digest, model.digest),
               "it is damaged or of another version: install lockstep again"});
}

}  // namespace lockstep
