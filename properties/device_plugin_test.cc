// The conformance kit over caches with rows on a device. Apart from conform_test: this program
// exports what it is made of, and the plug-in that brings the same sources would be bound to it.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <string>
#include <utility>

#include "properties/conform_test_util.h"

namespace lockstep {
namespace {

using Verdict = ClauseResult::Verdict;

// Caches with rows on a device, behind the border: reading, rolling back, forking and restoring
// them by copies between the memories.
void LoadDevicePlugin(const std::string& cache, const std::string& fault) {
  setenv("LOCKSTEP_DEVICE_PLUGIN", cache.c_str(), 1);
  setenv("LOCKSTEP_DEVICE_PLUGIN_FAULT", fault.c_str(), 1);
}

class DevicePluginTest : public testing::TestWithParam<std::string> {};

TEST_P(DevicePluginTest, PassesEveryClauseButThoseOfSlots) {
  LoadDevicePlugin(GetParam(), "");
  ConformOptions options = OptionsFor(PluginLibrary::Load(LOCKSTEP_PLUGIN_DEVICE));
  options.scripts = 150;
  options.hostile_scripts = 10;
  const ConformResult result = Conform(options);
  EXPECT_GT(result.scripts, 300);
  ExpectNoFailure(result, {"R2", "R4", "R5", "R7", "C1", "C3", "B3", "blocks", "fork threads"});
}

INSTANTIATE_TEST_SUITE_P(Caches, DevicePluginTest,
                         testing::Values("cuda", "hybrid/1", "cuda-quantized/f32+f32/w0"),
                         [](const auto& i) {
                           std::string name = i.param;
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

TEST(DevicePluginFaultTest, EachIsFoundByItsClause) {
  for (const auto& [fault, clause] :
       {std::pair{"keep", "B1"}, std::pair{"gap", "V2"}, std::pair{"stale", "S1"}}) {
    LoadDevicePlugin("hybrid/1", fault);
    ConformOptions options = OptionsFor(PluginLibrary::Load(LOCKSTEP_PLUGIN_DEVICE));
    options.level = 3;
    options.scripts = 100;
    EXPECT_EQ(FindClause(Conform(options), clause).verdict, Verdict::kFail) << fault;
  }
}

}  // namespace
}  // namespace lockstep
