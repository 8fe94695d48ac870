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

std::string RunOptions::CommandLine() const {
  const RunOptions plain;
  std::string line = fmt::format("lockstep run {}{}{} --prompt {} -n {}", source.CommandLine(),
                                 adapters.CommandLine(), decoding.CommandLine(), ShellWord(prompt),
                                 max_new_tokens);
  const auto add_text = [&](const char* flag, const std::string& value) {
    if (!value.empty()) line += fmt::format(" {} {}", flag, ShellWord(value));
  };
  const auto add_number = [&](const char* flag, int32_t RunOptions::*member) {
    if (this->*member != plain.*member) line += fmt::format(" {} {}", flag, this->*member);
  };
  const auto add_switch = [&](const char* flag, bool given) {
    if (given) line += fmt::format(" {}", flag);
  };
  add_text("--cache", cache);
  add_text("--device", device);
  add_number("--gpu-layers", &RunOptions::gpu_layers);
  add_number("--context", &RunOptions::context);
  add_number("--context-shift", &RunOptions::context_shift);
  add_text("--draft", draft_model);
  add_number("--draft-lookup", &RunOptions::draft_lookup);
  add_number("--draft-tokens", &RunOptions::draft_tokens);
  add_text("--isa", isa);
  line += fmt::format(" --threads {}", threads);  // the default is another machine's too
  add_switch("--watch", watch);
  add_number("--watch-full", &RunOptions::watch_full);
  add_switch("--no-digest", no_digest);
  return line;
}

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
