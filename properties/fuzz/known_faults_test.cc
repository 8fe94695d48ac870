// The known faults of public engines, replayed on every registered cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "caches/registry.h"
#include "caches/test_paths.h"
#include "oracle/faulty_cache.h"
#include "properties/script.h"
#include "properties/script_runner.h"

namespace lockstep {
namespace {

// By file name.
std::map<std::string, std::string> FilesOf(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename()].assign(std::istreambuf_iterator<char>(file), {});
    EXPECT_TRUE(file) << entry.path();
  }
  return files;
}

std::map<std::string, CacheScript> KnownFaults() {
  std::map<std::string, CacheScript> scripts;
  for (const auto& [name, text] : FilesOf(SourceDir() + "/properties/fuzz/scripts")) {
    scripts[name] = ParseScript(text, name);
    EXPECT_TRUE(text.starts_with("# ")) << name << " does not say what it is about";
  }
  return scripts;
}

// A small pool means the script's own cache alone.
std::vector<CacheScript> OnEveryCache(const CacheScript& script) {
  if (script.blocks > 0) return {script};
  std::vector<CacheScript> scripts;
  for (const CacheSpec& spec : AllCaches()) {
    CacheScript copy = script;
    copy.cache = spec.name;
    copy.geometry.head_dim = std::max(copy.geometry.head_dim, spec.head_dim_multiple);
    scripts.push_back(std::move(copy));
  }
  return scripts;
}

TEST(KnownFaultsTest, HoldOnEveryCache) {
  const auto scripts = KnownFaults();
  EXPECT_GE(scripts.size(), 30u);
  for (const auto& [name, script] : scripts) {
    for (const CacheScript& on : OnEveryCache(script)) {
      const ScriptRun run = RunScript(on, RegisteredSubject(on.cache));
      ASSERT_FALSE(run.finding) << name << " on " << on.cache << ", operation "
                                << run.finding->op + 1 << ": " << run.finding->what;
      EXPECT_EQ(run.counts.operations, static_cast<int64_t>(on.ops.size()));
    }
  }
}

// A corpus that catches nothing is no corpus: each kind of planted fault shows in some script.
TEST(KnownFaultsTest, CatchEveryPlantedFault) {
  const auto scripts = KnownFaults();
  for (const PlantInfo& info : KnownPlants()) {
    const Plant plant{.kind = info.kind, .byte = 3, .step = 1};
    std::set<std::string> catchers;
    for (const auto& [name, script] : scripts) {
      ScriptSubject subject = RegisteredSubject(script.cache);
      subject.make = [make = subject.make, plant](const CacheScript& s) {
        return std::make_unique<FaultyCache>(make(s), plant);
      };
      if (RunScript(script, subject).finding) catchers.insert(name);
    }
    EXPECT_GE(catchers.size(), 1u) << info.name;
  }
}

}  // namespace
}  // namespace lockstep
