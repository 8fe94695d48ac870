#include "engine/thread_team.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

// ---- The cut -----------------------------------------------------------------------------------

TEST(PartOfTest, EveryElementIsInExactlyOnePartOfEverySmallCut) {
  for (int64_t grain : {1, 2, 3, 7, 32}) {
    for (int64_t total = 0; total <= 70; ++total) {
      for (int32_t parts = 1; parts <= 80; ++parts) {
        int64_t next = 0;
        int64_t least = total;
        int64_t most = 0;
        for (int32_t part = 0; part < parts; ++part) {
          const PartRange range = PartOf(total, part, parts, grain);
          ASSERT_EQ(range.begin, next) << total << "/" << parts << " grain " << grain;
          ASSERT_LE(range.begin, range.end);
          ASSERT_TRUE(range.begin % grain == 0 || range.begin == total);
          const int64_t grains = (range.size() + grain - 1) / grain;
          least = std::min(least, grains);
          most = std::max(most, grains);
          next = range.end;
        }
        ASSERT_EQ(next, total) << parts << " grain " << grain;
        ASSERT_LE(most - least, 1) << total << "/" << parts << " grain " << grain;
      }
    }
  }
}

TEST(PartOfTest, LargeTotalsDoNotOverflow) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(PartOf(kMost, 0, 1), (PartRange{0, kMost}));
  EXPECT_EQ(PartOf(kMost, 1023, 1024).end, kMost);
  EXPECT_EQ(PartOf(kMost, 511, 1024).end, PartOf(kMost, 512, 1024).begin);
}

TEST(PartOfDeathTest, RefusesPartsThatDoNotExist) {
  EXPECT_DEATH(PartOf(8, 2, 2), "part 2 of 2");
  EXPECT_DEATH(PartOf(8, -1, 2), "part -1 of 2");
  EXPECT_DEATH(PartOf(8, 0, 0), "part 0 of 0");
  EXPECT_DEATH(PartOf(-1, 0, 1), "-1 elements");
  EXPECT_DEATH(PartOf(1, 0, 1, 0), "grains of 0");
}

TEST(UsableCpusTest, AreCountedAndCapped) {
  EXPECT_GE(UsableCpus(), 1);
  EXPECT_LE(UsableCpus(), static_cast<int32_t>(std::thread::hardware_concurrency()));
  EXPECT_GE(DefaultThreads(), 1);
  EXPECT_LE(DefaultThreads(), std::min(8, UsableCpus()));
}

// ---- The team ----------------------------------------------------------------------------------

class ThreadTeamTest : public ::testing::TestWithParam<int32_t> {};

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadTeamTest, ::testing::Values(1, 2, 3, 7, 16, 65),
                         [](const auto& param) { return std::to_string(param.param); });

TEST_P(ThreadTeamTest, EachPartRunsOnceOnAMember) {
  ThreadTeam team(GetParam());
  EXPECT_EQ(team.size(), GetParam());
  std::vector<int32_t> calls(static_cast<size_t>(team.size()), 0);  // plain: one part, one writer
  std::vector<std::thread::id> threads(calls.size());
  std::set<std::thread::id> seen;
  for (int32_t job = 0; job < 50; ++job) {
    team.Run([&](int32_t part) {
      ++calls[static_cast<size_t>(part)];
      threads[static_cast<size_t>(part)] = std::this_thread::get_id();
    });
    seen.insert(threads.begin(), threads.end());
    ASSERT_EQ(threads[0], std::this_thread::get_id());
  }
  EXPECT_EQ(calls, std::vector<int32_t>(calls.size(), 50));
  EXPECT_LE(seen.size(), calls.size());
}

// A caller that is busy with its own part leaves the others to their threads.
TEST(ThreadTeamSharingTest, ThreadsTakePartInALongJob) {
  ThreadTeam team(2);
  std::thread::id other;
  team.Run([&](int32_t part) {
    if (part == 1) other = std::this_thread::get_id();
    if (part == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  });
  EXPECT_NE(other, std::this_thread::get_id());
}

// A chain of jobs in which each part reads what all parts of the job before wrote: an early return,
// or a write that is not published, breaks the sums (and is a race for the sanitizer).
TEST_P(ThreadTeamTest, AJobSeesEverythingBeforeItAndTheCallerEverythingInIt) {
  ThreadTeam team(GetParam());
  const auto parts = static_cast<size_t>(team.size());
  std::vector<uint64_t> now(parts, 1), before(parts);
  uint64_t expected = 1;
  for (int32_t round = 0; round < 40; ++round) {
    before = now;
    team.Run([&](int32_t part) {
      uint64_t sum = 0;
      for (uint64_t value : before) sum += value;
      now[static_cast<size_t>(part)] = sum + 1;
    });
    expected = expected * parts + 1;
    ASSERT_EQ(now, std::vector<uint64_t>(parts, expected)) << round;
  }
}

// Threads that went to sleep wake up, and a caller that sleeps is woken by the last part.
TEST_P(ThreadTeamTest, JobsAfterAPauseAndLongJobsEnd) {
  ThreadTeam team(GetParam());
  std::atomic<int32_t> ended{0};
  for (int32_t round = 1; round <= 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    team.Run([&](int32_t part) {
      if (part == team.size() - 1) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      ++ended;
    });
    ASSERT_EQ(ended, round * team.size());
  }
}

TEST_P(ThreadTeamTest, TheLowestPartsExceptionIsRethrownAfterAllEnded) {
  ThreadTeam team(GetParam());
  const int32_t lowest = team.size() / 2;
  for (int32_t round = 1; round <= 2; ++round) {
    std::atomic<int32_t> ended{0};
    try {
      team.Run([&](int32_t part) {
        // The lowest one throws last.
        if (part == lowest) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        ++ended;
        if (part >= lowest) throw std::runtime_error(std::to_string(part));
      });
      FAIL() << "nothing thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), std::to_string(lowest));
    }
    EXPECT_EQ(ended, team.size());
    // It is forgotten: the next job is a good one.
    team.Run([&](int32_t) { ++ended; });
    EXPECT_EQ(ended, 2 * team.size());
  }
}

TEST(ThreadTeamSizeTest, IsAtLeastOneAndBounded) {
  for (int32_t size : {0, -1, std::numeric_limits<int32_t>::min(), ThreadTeam::kMaxSize + 1}) {
    EXPECT_THROW(ThreadTeam team(size), std::invalid_argument) << size;
  }
}

TEST(ThreadTeamSizeTest, TeamsWithoutAJobEnd) {
  for (int32_t size : {1, 2, 33}) ThreadTeam team(size);
}

TEST(ThreadTeamSizeTest, TeamsAreIndependent) {
  ThreadTeam outer(3);
  std::atomic<int32_t> calls{0};
  outer.Run([&](int32_t) {
    ThreadTeam inner(2);
    inner.Run([&](int32_t) { ++calls; });
  });
  EXPECT_EQ(calls, 6);
}

TEST(ThreadTeamDeathTest, RefusesAJobInsideAJob) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ThreadTeam team(2);
        team.Run([&](int32_t part) {
          if (part == 1) team.Run([](int32_t) {});
        });
      },
      "a job inside or beside a job");
}

}  // namespace
}  // namespace lockstep
