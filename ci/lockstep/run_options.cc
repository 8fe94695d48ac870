#include "ci/lockstep/run_options.h"

#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "ci/lockstep/shell_word.h"

namespace lockstep::cli {
namespace {

// What a call without arguments does: it tells a story.
constexpr std::string_view kStoryWeights = "q8_0";
constexpr std::string_view kStoryPrompt = "Once upon a time";
constexpr int32_t kStoryTokens = 240;
constexpr int32_t kTokens = 64;  // unless another number is given

}  // namespace

RunOptions Completed(RunOptions options) {
  const bool story = !options.source.given();
  if (story) {
    options.source.story = kStoryWeights;
    if (options.prompt.empty()) options.prompt = kStoryPrompt;
    if (!options.json) {
      fmt::print(stderr, "no model is given: {} continues {}\n", options.source.Description(),
                 ShellWord(options.prompt));
    }
  }
  if (options.max_new_tokens == 0) options.max_new_tokens = story ? kStoryTokens : kTokens;
  return options;
}

}  // namespace lockstep::cli
