// The catalogue cut into shards, as `ci/faults plant --shard` cuts it, and joined by `lockstep
// merge`. What becomes of a fault is invented: building is the campaign's test.
#include "ci/mutation/fault_shards.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>

#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "reports/run_program.h"

namespace lockstep::mutation {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kCommand = "ci/faults plant";

// Every 50th is missed.
FaultResult InventedResult(const Fault& fault, size_t number) {
  constexpr size_t kMissedEvery = 50;
  return {.fault = fault,
          .verdict = number % kMissedEvery == 7 ? Verdict::kMissed : Verdict::kCaught,
          .check = {}};
}

class FaultShardsTest : public testing::Test {
 protected:
  FaultShardsTest()
      : all_(PlantAll(ReadFaults(LOCKSTEP_SOURCE_DIR "/properties/faults"), LOCKSTEP_SOURCE_DIR)) {
    for (size_t i = 0; i < all_.size(); ++i) numbers_[all_[i].fault.name] = i;
  }

  // What shard `index` of `count` writes; returns its file. `ran_less` leaves out its last faults.
  std::string Run(int32_t index, int32_t count, size_t ran_less = 0) const {
    const Shard shard{index, count};
    std::vector<Planting> plantings = all_;
    const int64_t of_all = KeepShard(shard, &plantings);
    std::vector<FaultResult> results;
    for (const Planting& planting : plantings) {
      results.push_back(InventedResult(planting.fault, numbers_.at(planting.fault.name)));
    }
    results.resize(results.size() - ran_less);
    const std::string file = folder_.File(fmt::format("{}-of-{}.json", index, count));
    WriteShardFile(
        file, shard.Text(),
        ShardOfFaults(shard, std::string(kCommand), of_all, plantings, results,
                      [](const FaultResult& r) { return r.verdict != Verdict::kCaught; }));
    return file;
  }

  std::vector<std::string> RunAll(int32_t count) const {
    std::vector<std::string> files;
    for (int32_t index = 1; index <= count; ++index) files.push_back(Run(index, count));
    return files;
  }

  static ProgramEnd Merge(const std::vector<std::string>& files) {
    std::vector<std::string> argv = {LOCKSTEP_BINARY, "merge"};
    argv.insert(argv.end(), files.begin(), files.end());
    return RunProgram(argv, 60);
  }

  const TemporaryFolder folder_;
  const std::vector<Planting> all_;
  std::map<std::string, size_t> numbers_;  // in the catalogue, by name
};

TEST_F(FaultShardsTest, TheUnionOfAnyNumberIsTheCatalogueEachFaultOnce) {
  ASSERT_GT(all_.size(), 200u);
  ASSERT_EQ(numbers_.size(), all_.size());
  for (int32_t count = 1; count <= 7; ++count) {
    std::map<std::string, int> times;
    for (int32_t index = 1; index <= count; ++index) {
      std::vector<Planting> of_shard = all_;
      EXPECT_EQ(KeepShard({index, count}, &of_shard), std::ssize(all_));
      EXPECT_LE(of_shard.size(), all_.size() / static_cast<size_t>(count) + 1) << "shared evenly";
      size_t last = 0;
      for (const Planting& planting : of_shard) {
        ++times[planting.fault.name];
        const size_t number = numbers_.at(planting.fault.name);
        EXPECT_TRUE(number > last || &planting == of_shard.data()) << "in order";
        EXPECT_EQ(planting.edited, all_[number].edited);
        last = number;
      }
    }
    EXPECT_EQ(times.size(), all_.size()) << count;
    for (const auto& [name, n] : times) EXPECT_EQ(n, 1) << name << " in " << count;
  }
}

// By the digest that `lockstep merge` prints, whatever the number of shards.
TEST_F(FaultShardsTest, MergedShardsAreOneRun) {
  const ProgramEnd whole = Merge(RunAll(1));
  EXPECT_EQ(whole.exit_code, 1) << whole.out;  // the missed ones are findings
  EXPECT_THAT(whole.out, HasSubstr("MISSED"));
  EXPECT_THAT(whole.out, HasSubstr(fmt::format("{0} of {0} inputs in 1 shards", all_.size())));
  const std::string digest = whole.out.substr(whole.out.find("digest "));
  EXPECT_THAT(digest, HasSubstr("repeat: ci/faults plant\n"));
  for (int32_t count = 2; count <= 7; ++count) {
    std::vector<std::string> files = RunAll(count);
    std::swap(files.front(), files.back());
    const ProgramEnd merged = Merge(files);
    EXPECT_EQ(merged.exit_code, 1) << merged.out << merged.err;
    EXPECT_THAT(merged.out, HasSubstr(digest)) << count;
    EXPECT_THAT(merged.out, Not(HasSubstr("shards 1"))) << "nothing is wrong with any";
  }
}

TEST_F(FaultShardsTest, AMissingARepeatedAndAnUnfinishedShardAreNamed) {
  std::vector<std::string> files = RunAll(7);
  files.push_back(files[1]);
  const ProgramEnd twice = Merge(files);
  EXPECT_THAT(twice.out, HasSubstr("shards 2 of 7 ran more than once, with one result"));
  EXPECT_THAT(twice.out, Not(HasSubstr("missing")));

  files.erase(files.begin() + 4);
  const ProgramEnd lost = Merge(files);
  EXPECT_THAT(lost.out, HasSubstr("shards 5 of 7 are missing"));
  EXPECT_THAT(lost.out, HasSubstr("shards 2 of 7 ran more than once"));

  std::vector<std::string> cut = RunAll(7);
  Run(3, 7, 2);  // in place of the whole one
  EXPECT_THAT(Merge(cut).out, HasSubstr("shards 3 of 7 did not run all of their inputs"));
}

// All caught: green, and not without one of its shards.
TEST_F(FaultShardsTest, WhatIsMissingIsNotGreen) {
  std::vector<std::string> files;
  for (int32_t index = 1; index <= 2; ++index) {
    std::vector<Planting> plantings(all_.begin(), all_.begin() + 5);
    const int64_t of_all = KeepShard({index, 2}, &plantings);
    std::vector<FaultResult> results;
    for (const Planting& planting : plantings) results.push_back(InventedResult(planting.fault, 0));
    files.push_back(folder_.File(fmt::format("caught-{}", index)));
    WriteShardFile(files.back(), Shard{index, 2}.Text(),
                   ShardOfFaults({index, 2}, std::string(kCommand), of_all, plantings, results,
                                 [](const FaultResult&) { return false; }));
  }
  const ProgramEnd both = Merge(files);
  EXPECT_EQ(both.exit_code, 0) << both.out;
  EXPECT_THAT(both.out, HasSubstr("holds: 5 of 5 inputs in 2 shards"));
  EXPECT_EQ(Merge({files[1]}).exit_code, 3);
}

}  // namespace
}  // namespace lockstep::mutation
