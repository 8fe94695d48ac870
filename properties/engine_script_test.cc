// Engine scripts as data: text, bytes, and what generated ones are.
#include "properties/engine_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "caches/error.h"
#include "caches/random.h"
#include "caches/registry.h"
#include "properties/engine_script_runner.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(EngineScriptTest, TextComesBackAsItWas) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const EngineScript script = GenerateEngineScript(seed, 40);
    EXPECT_EQ(ParseEngineScript(EngineScriptText(script), "test"), script)
        << EngineScriptText(script);
  }
}

TEST(EngineScriptTest, PeopleWriteIt) {
  const EngineScript script = ParseEngineScript(
      "# found on a Sunday\n"
      "\n"
      "engine tiny-gqa-9x3-q8_0 seed=3 cache=paged/4,simple max=64 threads=2  # the header\n"
      "prefill cuts=3,1,4 tokens=7\r\n"
      "  speculate seq=1 n=4 accept=2\n"
      "path to=refuse1\n"
      "adapt seq=2 to=3\n"
      "cancel seq=2,0 cuts=5,1 at=17",
      "test");
  EXPECT_EQ(script.caches, (std::vector<std::string>{"paged/4", "simple"}));
  EXPECT_EQ(script.threads, 2);
  ASSERT_EQ(script.ops.size(), 5u);
  EXPECT_EQ(script.ops[0], (EngineOp{.cuts = {3, 1, 4}, .tokens = 7}));
  EXPECT_EQ(EngineOpText(script.ops[1]), "speculate seq=1 n=4 accept=2");
  EXPECT_EQ(script.ops[2].count, 3);
  EXPECT_EQ(EngineOpText(script.ops[2]), "path to=refuse1");
  EXPECT_EQ(EngineOpText(script.ops[3]), "adapt seq=2 to=3");
  EXPECT_EQ(script.ops[4].sequences, (std::vector<int32_t>{2, 0}));
}

TEST(EngineScriptTest, TheFirstWordTellsItFromACacheScript) {
  EXPECT_TRUE(IsEngineScript("# engine or not\n\n engine tiny-mha-4x4-f32"));
  EXPECT_FALSE(IsEngineScript("cache simple layers=1\nengine"));
  EXPECT_FALSE(IsEngineScript("engines"));
  EXPECT_FALSE(IsEngineScript(""));
}

TEST(EngineScriptTest, WhatCannotBeRunIsRefusedWithItsLine) {
  const std::string head = "engine tiny-mha-4x4-f32 cache=simple max=9\n";
  const std::pair<std::string, const char*> cases[] = {
      {"", "line 0: has no line"},
      {"cache simple max=9", "line 1: must be 'engine"},
      {"engine tiny-mha-4x4-f32 max=9", "'cache=' is missing"},
      {"engine tiny-mha-4x4-f32 cache=simple", "'max=' is missing"},
      {"engine tiny-mha-4x4-f32 cache=simple max=257", "exceeds the context"},
      {"engine tiny-mha-4x4-f32 cache=simple max=0", "'0' is no number from 1"},
      {"engine tiny-mha-4x4-f32 cache=simple max=9 threads=65", "'65' is no number"},
      {"engine tiny-mha-4x4-f32 cache=quantized/q8_0+q8_0/w0 max=9",
       "stores heads whose dimension is a multiple"},
      {"engine tiny-mha-4x4-f32 cache=pagd/4 max=9", "pagd/4"},
      {"engine tiny-mha cache=simple max=9", "tiny-mha"},
      {"engine tiny-mha-4x4-f32 cache=simple max=9 isa=mmx", "mmx"},
      {"engine tiny-mha-4x4-f32 cache=cuda max=9 device=gpu", "device 'gpu'"},
      {"engine tiny-mha-4x4-f32 cache=cuda max=9 device=host-executor7", "host-executor/SEED"},
      {"engine tiny-mha-4x4-f32 cache=cuda max=9 device=host-executor/", "host-executor/SEED"},
      {"engine tiny-mha-4x4-f32 cache=cuda max=9 device=host-executor/7b", "host-executor/SEED"},
      {"engine tiny-mha-4x4-f32 cache=simple max=9 size=2", "unknown field 'size'"},
      {head + "prefil cuts=1", "line 2: unknown operation 'prefil'"},
      {head + "prefill cuts=0", "line 2: '0' is no number from 1"},
      {head + "prefill seq=0,1 cuts=1", "line 2: 'prefill' takes one sequence"},
      {head + "prefill seq=4 cuts=1", "line 2: '4' is no number from 0 to 3"},
      {head + "batch seq=0,1 cuts=1", "line 2: 1 cuts for 2 sequences"},
      {head + "speculate n=2 accept=3", "line 2: 3 of 2 drafts cannot be accepted"},
      {head + "decode at=3", "line 2: 'decode' has no field 'at'"},
      {head + "fork to=4", "line 2: there is no sequence 4"},
      {head + "adapt to=4", "line 2: there is no set 4 of adapters"},
      {head + "path to=sideways", "line 2: 'sideways' is no path"},
      {head + "clear now", "line 2: 'now' is no field=value"},
  };
  for (const auto& [text, what] : cases) {
    try {
      ParseEngineScript(text, "test");
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(what)) << text;
    }
  }
}

// Every byte string is a script, and every script runs; more bytes are more operations.
TEST(EngineScriptTest, BytesAreTotal) {
  EXPECT_TRUE(DecodeEngineScript({}).ops.empty());
  Random random(5);
  size_t operations = 0;
  for (int i = 0; i < 40; ++i) {
    std::vector<std::byte> bytes(random.Below(160));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Below(256));
    const EngineScript script = DecodeEngineScript(bytes);
    EXPECT_EQ(ParseEngineScript(EngineScriptText(script), "test"), script);
    EXPECT_LE(script.ops.size(), bytes.size());
    const EngineRun run = RunEngineScript(script);
    EXPECT_FALSE(run.finding) << run.finding->what << '\n' << EngineScriptText(script);
    operations += script.ops.size();
  }
  EXPECT_GT(operations, 200u);
}

TEST(EngineScriptTest, LimitsAreKept) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const EngineScript script = GenerateEngineScript(
        seed, 5, {.caches = {"paged/4", "quantized/q8_0+q4_0/w4"}, .isa = "scalar"});
    EXPECT_EQ(script.isa, "scalar");
    for (const std::string& cache : script.caches) {
      EXPECT_TRUE(cache == "paged/4" || cache == "quantized/q8_0+q4_0/w4") << cache;
    }
    EXPECT_EQ(script.ops.size(), 5u);
  }
}

TEST(EngineScriptTest, SeedsGiveTheSameScriptAndOthersAnother) {
  EXPECT_EQ(GenerateEngineScript(7, 30), GenerateEngineScript(7, 30));
  EXPECT_NE(GenerateEngineScript(7, 30), GenerateEngineScript(8, 30));
}

}  // namespace
}  // namespace lockstep
