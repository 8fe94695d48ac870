#include "ci/shard/shard.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "caches/error.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ShardResult RunShard(const Shard& shard, int64_t inputs, std::string_view salt = "") {
  ShardResult result{.build = "b",
                     .campaign = "lockstep fuzz",
                     .shard = shard,
                     .inputs_of_all = inputs,
                     .sum = {},
                     .counters = {},
                     .findings = {}};
  for (int64_t i = 0; i < inputs; ++i) {
    if (!shard.Has(i)) continue;
    result.Add(i, std::to_string(i * i) + std::string(salt));
    result.counters["rows"] += i;
    if (i % 10 == 3) result.findings.push_back({"ends in 3", "found", std::to_string(i)});
  }
  return result;
}

std::vector<ShardResult> RunAll(int32_t count, int64_t inputs) {
  std::vector<ShardResult> results;
  for (int32_t i = 1; i <= count; ++i) results.push_back(RunShard({i, count}, inputs));
  return results;
}

MergedShards Merge(const std::vector<ShardResult>& results) {
  std::vector<std::string> names;
  for (size_t i = 0; i < results.size(); ++i) names.push_back("file" + std::to_string(i));
  return MergeShards(results, names);
}

TEST(Shard, TheUnionOfAnyNumberIsOneRun) {
  const ShardResult one = Merge(RunAll(1, 100)).whole;
  EXPECT_EQ(one.inputs, 100);
  for (const int32_t count : {2, 3, 7, 100, 101}) {
    std::vector<ShardResult> results = RunAll(count, 100);
    std::ranges::reverse(results);
    const MergedShards merged = Merge(results);
    EXPECT_EQ(merged.whole, one) << count;
    EXPECT_THAT(merged.missing, IsEmpty());
    EXPECT_THAT(merged.unfinished, IsEmpty());
  }
}

TEST(Shard, TheSumKnowsWhatEachInputGaveAndItsNumber) {
  const ShardResult one = RunShard({}, 100);
  EXPECT_NE(one.sum, RunShard({}, 100, "other").sum);
  ShardResult swapped;
  swapped.Add(0, "1");
  swapped.Add(1, "0");
  ShardResult straight;
  straight.Add(0, "0");
  straight.Add(1, "1");
  EXPECT_NE(swapped.sum, straight.sum);
  EXPECT_EQ(SumOfDigests({1, ~uint64_t{0}}, {0, 1}), (Digest{2, 0}));
}

TEST(Shard, ALostOrRepeatedOneIsSeenAndNamed) {
  std::vector<ShardResult> results = RunAll(7, 100);
  const ShardResult whole = Merge(results).whole;
  results.push_back(results[1]);
  results.push_back(results[4]);
  results.push_back(results[4]);
  const MergedShards twice = Merge(results);
  EXPECT_EQ(twice.whole, whole);
  EXPECT_THAT(twice.repeated, ElementsAre(2, 5));

  results[4].counters["rows"] += 1;
  EXPECT_THAT(Merge(results).disagree, ElementsAre(5));

  std::vector<ShardResult> lost = RunAll(7, 100);
  lost.erase(lost.begin() + 2);
  EXPECT_THAT(Merge(lost).missing, ElementsAre(3));

  std::vector<ShardResult> killed = RunAll(7, 100);
  killed[6].inputs -= 1;
  EXPECT_THAT(Merge(killed).unfinished, ElementsAre(7));
}

TEST(Shard, ResultsOfDifferentRunsAreRefused) {
  const auto refusal = [](auto change) {
    std::vector<ShardResult> results = RunAll(2, 10);
    change(&results[1]);
    try {
      Merge(results);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal([](ShardResult* r) { r->build = "c"; }),
              HasSubstr("file0 and file1: are of different builds: 'b' and 'c'"));
  EXPECT_THAT(refusal([](ShardResult* r) { r->campaign = "x"; }), HasSubstr("campaigns"));
  EXPECT_THAT(refusal([](ShardResult* r) { r->shard.count = 3; }), HasSubstr("cuts"));
  EXPECT_THAT(refusal([](ShardResult* r) { r->inputs_of_all = 11; }), HasSubstr("cuts"));
}

TEST(Shard, JsonComesBackAndAnythingElseIsRefused) {
  const ShardResult result = RunShard({2, 7}, 100);
  const std::string json = ShardJson(result);
  EXPECT_EQ(ParseShardJson(json, "f"), result);
  for (const std::string& text :
       {std::string("{}"), std::string("[]"), std::string(""), json.substr(0, json.size() / 2)}) {
    EXPECT_THROW(ParseShardJson(text, "f"), Error) << text;
  }
}

TEST(Shard, ATextThatIsNoneIsRefused) {
  EXPECT_EQ(ParseShard("2/7"), (Shard{2, 7}));
  for (const char* text : {"", "2", "0/7", "8/7", "-1/7", "2/0", "2/7x", " 2/7", "1/100001"}) {
    EXPECT_THROW(ParseShard(text), Error) << text;
  }
}

}  // namespace
}  // namespace lockstep
