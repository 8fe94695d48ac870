// Change points against trying every cut, and histories that are kept, moved and refused.
#include "reports/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "caches/error.h"
#include "caches/random.h"
#include "caches/temporary_folder.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

double Normal(Random* random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += static_cast<double>(random->Next() >> 11) * 0x1p-53;
  return sum;
}

double CostOfPieces(const std::vector<double>& values, const std::vector<size_t>& cuts) {
  double cost = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const size_t end = i < cuts.size() ? cuts[i] : values.size();
    double mean = 0;
    for (size_t j = begin; j < end; ++j) mean += values[j] / static_cast<double>(end - begin);
    for (size_t j = begin; j < end; ++j) cost += (values[j] - mean) * (values[j] - mean);
    begin = end;
  }
  return cost;
}

// All ways to cut 12 values into pieces of at least 3, of which the search must find the best.
TEST(ChangePointsTest, AreTheBestOfAllCuts) {
  Random random(3);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> values;
    for (int i = 0; i < 12; ++i) {
      values.push_back(Normal(&random) + (i >= trial % 12 ? 4 : 0) - (i >= 9 ? 3 : 0));
    }
    const std::vector<size_t> found = ChangePoints(values);
    // The penalty that the options stand for, computed again.
    std::vector<double> apart;
    for (size_t i = 1; i < values.size(); ++i) apart.push_back(std::abs(values[i] - values[i - 1]));
    std::ranges::sort(apart);
    const double deviation = apart[apart.size() / 2] / (0.6745 * std::sqrt(2.0));
    const double penalty = 4 * deviation * deviation * std::log(12.0);
    double best = 1e300;
    std::vector<size_t> expected;
    for (uint32_t mask = 0; mask < (1u << 11); ++mask) {
      std::vector<size_t> cuts;
      size_t last = 0;
      bool legal = true;
      for (size_t cut = 1; cut < 12; ++cut) {
        if ((mask >> (cut - 1) & 1) == 0) continue;
        legal = legal && cut - last >= 3;
        last = cut;
        cuts.push_back(cut);
      }
      if (!legal || 12 - last < 3) continue;
      const double cost = CostOfPieces(values, cuts) + penalty * static_cast<double>(cuts.size());
      if (cost >= best) continue;
      best = cost;
      expected = cuts;
    }
    EXPECT_EQ(found, expected) << trial;
  }
}

TEST(ChangePointsTest, AStepIsFoundAndNoiseIsNotCut) {
  Random random(5);
  int wrong = 0, found = 0;
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> noise, step;
    for (int i = 0; i < 40; ++i) {
      noise.push_back(0.02 * Normal(&random));
      step.push_back(noise.back() + (i >= 25 ? 0.095 : 0));
    }
    wrong += ChangePoints(noise).empty() ? 0 : 1;
    const std::vector<size_t> changes = ChangePoints(step);
    found += changes.size() == 1 && changes[0] >= 24 && changes[0] <= 26 ? 1 : 0;
  }
  EXPECT_LE(wrong, 10);
  EXPECT_GE(found, 180);
  EXPECT_TRUE(ChangePoints(std::vector<double>{1, 2}).empty());
  EXPECT_TRUE(ChangePoints(std::vector<double>(9, 1.0)).empty());
}

class HistoryTest : public testing::Test {
 protected:
  static BenchRun RunOf(int number, double seconds, const std::string& digest = "ab") {
    BenchRun run;
    run.machine = {.processor = "Some \"CPU\"\n 2", .processors = 2, .memory_mib = 24000};
    run.commit = "commit" + std::to_string(number);
    BenchResult& result = run.benchmarks.emplace_back();
    result.name = "decode";
    result.digest = digest;
    for (int i = 0; i < 3; ++i) result.samples.push_back({.value = seconds * (1 + 0.001 * i)});
    return run;
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.File("history.sqlite");
};

TEST_F(HistoryTest, KeepsRunsAcrossOpeningsAndOnce) {
  {
    History history(path_);
    EXPECT_TRUE(history.Add(RunOf(1, 0.1)));
    EXPECT_FALSE(history.Add(RunOf(1, 0.1)));
    EXPECT_TRUE(history.Add(RunOf(2, 0.1)));
  }
  const auto entries = History(path_).Entries();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[1].commit, "commit2");
  EXPECT_EQ(entries[1].benchmarks, 1);
  EXPECT_EQ(entries[0].fingerprint, RunOf(1, 1).machine.Fingerprint());
}

TEST_F(HistoryTest, LinesAreReadBackEqualAllOrNothing) {
  std::string lines;
  {
    History history(path_);
    for (int i = 0; i < 3; ++i) history.Add(RunOf(i, 0.1 + i));
    lines = history.Export();
  }
  EXPECT_EQ(std::ranges::count(lines, '\n'), 3);
  std::filesystem::remove(path_);
  History other(path_);
  EXPECT_EQ(other.Import(lines), 3);
  EXPECT_EQ(other.Import(lines), 0);
  EXPECT_EQ(other.Export(), lines);
  EXPECT_EQ(ParseRun(lines.substr(0, lines.find('\n')), "line"), RunOf(0, 0.1));
  std::filesystem::remove(path_);
  History empty(path_);
  EXPECT_THROW(empty.Import(lines + "{}\n"), Error);
  EXPECT_TRUE(empty.Entries().empty());
}

TEST_F(HistoryTest, ChangesNameTheCommitsAroundThem) {
  History history(path_);
  Random random(2);
  for (int i = 0; i < 24; ++i) {
    history.Add(
        RunOf(i, (i < 14 ? 0.100 : 0.112) * (1 + 0.01 * Normal(&random)), i < 14 ? "ab" : "cd"));
  }
  const auto changes = history.Changes();
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].benchmark, "decode");
  EXPECT_EQ(changes[0].commit_before, "commit13");
  EXPECT_EQ(changes[0].commit_after, "commit14");
  EXPECT_NEAR(changes[0].ratio, 1.12, 0.02);
  EXPECT_TRUE(changes[0].bits_changed);
}

TEST_F(HistoryTest, MachinesAreNotMixed) {
  History history(path_);
  BenchRun other = RunOf(1, 0.2);
  other.machine.processor = "another";
  history.Add(RunOf(0, 0.1));
  history.Add(other);
  try {
    history.Changes();
    ADD_FAILURE() << "two machines were taken for one";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(other.machine.Fingerprint()));
  }
  EXPECT_TRUE(history.Changes(other.machine.Fingerprint()).empty());
  EXPECT_THROW(history.Changes("0000000000000000"), Error);
}

TEST_F(HistoryTest, OldSchemasAreBroughtUpAndNewerOnesRefused) {
  { History(path_).Add(RunOf(0, 0.1)); }
  sqlite3* raw = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &raw), SQLITE_OK);
  // As version 1 left it.
  sqlite3_exec(raw, "DROP INDEX result_by_name; PRAGMA user_version = 1", nullptr, nullptr,
               nullptr);
  { EXPECT_EQ(History(path_).Entries().size(), 1u); }
  EXPECT_NE(
      sqlite3_exec(raw, "CREATE INDEX result_by_name ON result(name)", nullptr, nullptr, nullptr),
      SQLITE_OK)
      << "the index is back";
  sqlite3_exec(raw, "PRAGMA user_version = 99", nullptr, nullptr, nullptr);
  sqlite3_close(raw);
  EXPECT_THROW(History history(path_), Error);
  EXPECT_THROW(History history("/absent/history.sqlite"), Error);
}

}  // namespace
}  // namespace lockstep
