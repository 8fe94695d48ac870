// The corpus in the tree, replayed as this build runs it: every input on its target, engine inputs
// on every kernel table of this machine.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "caches/test_paths.h"
#include "engine/kernels.h"
#include "properties/engine_script.h"
#include "properties/engine_script_runner.h"
#include "properties/fuzz.h"

namespace lockstep {
namespace {

// By file name.
std::map<std::string, std::string> CorpusOf(std::string_view target) {
  std::map<std::string, std::string> files;
  const std::filesystem::path folder = SourceDir() + "/properties/fuzz/corpus";
  for (const auto& entry : std::filesystem::directory_iterator(folder / target)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename()].assign(std::istreambuf_iterator<char>(file), {});
    EXPECT_TRUE(file) << entry.path();
  }
  return files;
}

class CorpusTest : public testing::TestWithParam<FuzzTargetInfo> {};

TEST_P(CorpusTest, NoInputShowsAFault) {
  const auto target = GetParam().make({});
  const auto files = CorpusOf(GetParam().name);
  EXPECT_GE(files.size(), 10u);
  for (const auto& [name, bytes] : files) {
    const auto finding = target->Run(std::as_bytes(std::span(bytes)));
    EXPECT_FALSE(finding) << name << ": " << finding->what;
  }
}

// A corpus that catches nothing is no corpus.
TEST_P(CorpusTest, SomeInputShowsThePlantedFault) {
  const auto target = GetParam().make({.plant = std::string(GetParam().canary)});
  int64_t found = 0;
  for (const auto& [name, bytes] : CorpusOf(GetParam().name)) {
    found += target->Run(std::as_bytes(std::span(bytes))) ? 1 : 0;
  }
  EXPECT_GT(found, 0);
}

std::string TargetName(const testing::TestParamInfo<FuzzTargetInfo>& info) {
  return std::string(info.param.name);
}

INSTANTIATE_TEST_SUITE_P(All, CorpusTest, testing::ValuesIn(FuzzTargets()), TargetName);

TEST(EngineCorpusTest, EveryKernelTableGivesTheSameDigests) {
  std::set<std::string> digests;
  for (const auto& [name, bytes] : CorpusOf("engine")) {
    EngineScript script = DecodeEngineScript(std::as_bytes(std::span(bytes)));
    std::set<std::string> of_script;
    for (const KernelTable* kernels : AvailableKernels()) {
      script.isa = kernels->name;
      const EngineRun run = RunEngineScript(script);
      EXPECT_FALSE(run.finding) << name << " with " << script.isa << ": " << run.finding->what;
      of_script.insert(run.digest.Hex());
    }
    EXPECT_EQ(of_script.size(), 1u) << name;
    digests.merge(of_script);
  }
  EXPECT_GT(digests.size(), 5u) << "a digest that never changes proves nothing";
}

}  // namespace
}  // namespace lockstep
