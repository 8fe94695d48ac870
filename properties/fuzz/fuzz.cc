#include "properties/fuzz.h"

#include <fmt/format.h>

#include <array>

#include "caches/error.h"
#include "properties/fuzz/targets.h"

namespace lockstep {
namespace {

constexpr std::array kTargets = {
    FuzzTargetInfo{"caches", "cache scripts on every registered cache, beside the model cache",
                   "stale-row:layer=0", "a rejected row comes back after a rollback", "cache",
                   fuzz::MakeCachesTarget},
    FuzzTargetInfo{"engine", "engine scripts, beside the plain reference", "stale-row:layer=0",
                   "a rejected row comes back after a rollback", "engine", fuzz::MakeEngineTarget},
    FuzzTargetInfo{"gguf", "model files: the parser, the vocabulary, the model, one forward step",
                   "other-exception", "the parser answers one refusal with another exception",
                   "gguf", fuzz::MakeGgufTarget},
    FuzzTargetInfo{"tokenizer", "vocabularies and texts, beside a slow and obvious encoder",
                   "drop-last-byte",
                   "the encoder drops the last byte of a text that breaks off inside UTF-8",
                   "tokenizer", fuzz::MakeTokenizerTarget},
    FuzzTargetInfo{"plugin", "plug-ins that lie in their answers, under cache scripts",
                   "invent-memory",
                   "the harness makes up the memory that a plug-in did not hand out", "plugin",
                   fuzz::MakePluginTarget},
};

// The first word of the first line that has one outside its comment.
std::string_view FirstWord(std::string_view text) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line = line.substr(0, line.find('#'));
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == line.npos) continue;
    line.remove_prefix(begin);
    return line.substr(0, line.find_first_of(" \t\r"));
  }
  return {};
}

}  // namespace

void fuzz::RequireCanary(std::string_view target, const FuzzTargetOptions& options) {
  const std::string_view canary = FuzzTargetNamed(target).canary;
  if (options.plant.empty() || options.plant == canary) return;
  throw Error({fmt::format("plant '{}'", options.plant),
               fmt::format("is none of the fuzz target {}", target),
               fmt::format("it has one, '{}'", canary)});
}

std::span<const FuzzTargetInfo> FuzzTargets() { return kTargets; }

const FuzzTargetInfo& FuzzTargetNamed(std::string_view name) {
  std::string names;
  for (const FuzzTargetInfo& target : kTargets) {
    if (target.name == name) return target;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", target.name);
  }
  throw Error({fmt::format("fuzz target '{}'", name), "there is none", "choose one of " + names});
}

const FuzzTargetInfo* FuzzTargetOfText(std::string_view text) {
  const std::string_view word = FirstWord(text);
  for (const FuzzTargetInfo& target : kTargets) {
    if (target.word == word) return &target;
  }
  return nullptr;
}

std::string FuzzTestSource(std::string_view text, std::string_view where, std::string_view plant) {
  const FuzzTargetInfo* target = FuzzTargetOfText(text);
  if (target == nullptr) {
    throw Error({std::string(where), "is the text of no fuzz target", "give one of a finding"});
  }
  constexpr std::string_view kFormat =
      R"source(// Exported by lockstep: fails as long as the input shows its fault.
#include <gtest/gtest.h>

#include <string_view>

#include "properties/fuzz.h"

namespace {{

constexpr std::string_view kInput = R"input({0})input";

TEST(FuzzFinding, {1}) {{
  const auto target = lockstep::FuzzTargetNamed("{1}").make({{.plant = "{2}"}});
  const auto finding = target->RunText(kInput, "kInput");
  EXPECT_FALSE(finding) << finding->place << ": " << finding->what << "\n" << kInput;
}}

}}  // namespace
)source";
  return fmt::format(kFormat, text, target->name, plant);
}

}  // namespace lockstep
