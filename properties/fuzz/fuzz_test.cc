// The fuzz targets as this build runs them: no finding in ours, every planted fault found, bytes
// and text one input.
#include "properties/fuzz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "caches/error.h"
#include "caches/random.h"
#include "properties/fuzz/cache_state.h"
#include "properties/isolated_run.h"

namespace lockstep {
namespace {

std::vector<std::byte> RandomInput(Random& random) {
  std::vector<std::byte> bytes(random.Below(1 + random.Below(200)));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Below(256));
  return bytes;
}

class FuzzTargetTest : public testing::TestWithParam<FuzzTargetInfo> {
 protected:
  static std::unique_ptr<FuzzTarget> Make(std::string_view plant = {}) {
    return GetParam().make({.plant = std::string(plant)});
  }

  // The first of many inputs that shows the planted fault.
  static std::vector<std::byte> FindPlanted(const FuzzTarget& target) {
    Random random(7);
    for (int i = 0; i < 20000; ++i) {
      std::vector<std::byte> bytes = RandomInput(random);
      if (target.Run(bytes)) return bytes;
    }
    ADD_FAILURE() << GetParam().canary << " is not found";
    return {};
  }
};

TEST_P(FuzzTargetTest, AnyBytesAreAnInputAndNothingIsFound) {
  const auto target = Make();
  Random random(1);
  for (int i = 0; i < 300; ++i) {
    const std::vector<std::byte> bytes = i == 0 ? std::vector<std::byte>() : RandomInput(random);
    const auto finding = target->Run(bytes);
    EXPECT_FALSE(finding) << finding->place << ": " << finding->what << "\n" << target->Text(bytes);
  }
}

TEST_P(FuzzTargetTest, ThePlantedFaultIsFoundInBytesAndText) {
  const auto target = Make(GetParam().canary);
  const std::vector<std::byte> bytes = FindPlanted(*target);
  const std::string text = target->Text(bytes);
  EXPECT_EQ(FuzzTargetOfText(text)->name, GetParam().name);
  const auto finding = target->Run(bytes);
  const auto again = target->RunText(text, "text");
  ASSERT_TRUE(finding && again) << text;
  EXPECT_EQ(finding->place, again->place);
  EXPECT_EQ(finding->what, again->what);
}

TEST_P(FuzzTargetTest, WhatIsShrunkShowsTheSamePlaceWithLess) {
  const auto target = Make(GetParam().canary);
  const std::string text = target->Text(FindPlanted(*target));
  const FuzzJudge judge = [&](const std::string& t) { return target->RunText(t, "text"); };
  const std::string shrunk = target->Shrink(text, judge);
  ASSERT_TRUE(judge(shrunk)) << shrunk;
  EXPECT_EQ(judge(shrunk)->place, judge(text)->place);
  EXPECT_LE(std::ranges::count(shrunk, '\n'), 9) << shrunk;
  EXPECT_FALSE(Make()->RunText(shrunk, "text")) << "without the plant there is nothing";
}

TEST_P(FuzzTargetTest, OtherTextsAndPlantsAreErrors) {
  EXPECT_THROW(Make("no-such-plant"), Error);
  EXPECT_THROW(Make()->RunText("verse\n", "text"), Error);
  EXPECT_THROW(Make()->RunText("", "text"), Error);
}

std::string TargetName(const testing::TestParamInfo<FuzzTargetInfo>& info) {
  return std::string(info.param.name);
}

INSTANTIATE_TEST_SUITE_P(All, FuzzTargetTest, testing::ValuesIn(FuzzTargets()), TargetName);

// The newest token joined with itself, again and again: 33 times would be eight gigabytes.
TEST(FuzzTargetsTest, TokensOfAVocabularyDoNotGrowWithoutEnd) {
  for (const std::byte kind : {std::byte{0}, std::byte{1}}) {
    std::vector<std::byte> bytes = {kind, std::byte{0}};
    for (int i = 0; i < 33 * 3; ++i) bytes.push_back(std::byte{0});
    const IsolatedCall call = RunIsolatedCall(
        [&] { return FuzzTargetNamed("tokenizer").make({})->Run(bytes) ? "found" : "holds"; },
        5000);
    EXPECT_EQ(call.output, "holds") << call.end.Text();
  }
}

TEST(FuzzTargetsTest, AFuzzerIsToldEveryStateOfACache) {
  std::set<uint64_t> told;
  const auto target =
      FuzzTargetNamed("caches").make({.feature = [&](uint64_t feature) { told.insert(feature); }});
  EXPECT_FALSE(target->RunText(
      "cache paged/2 layers=1 heads=1 dim=2 max=4\nreserve at=0\nupdate at=0 rows=1\n", "test"));
  const CacheSpec spec = ParseCacheSpec("paged/2");
  const auto cache = spec.make({.geometry = {1, 1, 2, 4}});
  EXPECT_FALSE(told.contains(fuzz::CacheStateFeature(spec, *cache, 2)));
  const std::vector<float> row(2, 0.5f);
  cache->TryReserveSlot(0, std::vector<int32_t>{0});
  EXPECT_TRUE(told.contains(fuzz::CacheStateFeature(spec, *cache, 1)));
  cache->Update(0, std::vector<int32_t>{0}, row, row);
  EXPECT_TRUE(told.contains(fuzz::CacheStateFeature(spec, *cache, 0)));
}

TEST(FuzzTargetsTest, AnUnknownTargetIsAnErrorThatNamesThem) {
  try {
    FuzzTargetNamed("cahces");
    FAIL();
  } catch (const Error& error) {
    for (const FuzzTargetInfo& target : FuzzTargets()) {
      EXPECT_THAT(error.what(), testing::HasSubstr(std::string(target.name)));
    }
  }
  EXPECT_EQ(FuzzTargetOfText("# caches\nverse"), nullptr);
}

}  // namespace
}  // namespace lockstep
