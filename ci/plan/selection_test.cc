#include "ci/plan/selection.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>

#include "caches/error.h"
#include "caches/temporary_folder.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Plan TwoParts() {
  Plan plan;
  plan.ignore = {"docs/*", "*.md"};
  plan.tiers = {{.name = "smoke", .minutes = 1, .by_diff = true}};
  plan.parts = {{.name = "always", .run = "a", .proof = "a", .tiers = {"smoke"}, .minutes = 1},
                {.name = "caches",
                 .run = "b",
                 .proof = "b",
                 .tiers = {"smoke", "full"},
                 .minutes = 1,
                 .paths = {"caches/*"}},
                {.name = "late", .run = "c", .proof = "c", .tiers = {"full"}, .minutes = 1}};
  return plan;
}

std::vector<bool> Runs(const std::vector<std::string>& changed) {
  const Plan plan = TwoParts();
  std::vector<bool> runs;
  for (const Selected& one : SelectParts(plan, "smoke", true, changed)) runs.push_back(one.runs);
  return runs;
}

TEST(Selection, APartRunsForTheFilesOfItsPaths) {
  EXPECT_THAT(Runs({"caches/deep/a.cc"}), ElementsAre(true, true));
  EXPECT_THAT(Runs({"docs/a.txt", "caches/README.md"}), ElementsAre(false, false));
  EXPECT_THAT(Runs({}), ElementsAre(false, false));
}

// The part of a file that nobody knows is every part: who adds a folder need not know the plan.
TEST(Selection, AFileThatNoPatternKnowsAffectsEveryPart) {
  EXPECT_THAT(Runs({"engine/a.cc"}), ElementsAre(true, true));
  EXPECT_THAT(Runs({"docs/a.txt", "newfolder/x"}), ElementsAre(true, true));
}

TEST(Selection, SaysWhy) {
  const Plan plan = TwoParts();
  const auto one = SelectParts(plan, "smoke", true, {"docs/a", "caches/a.cc"});
  EXPECT_EQ(one[0].reason, "caches/a.cc changed");
  EXPECT_EQ(one[1].reason, "caches/a.cc matches caches/*");
  EXPECT_EQ(SelectParts(plan, "smoke", true, {"x"})[1].reason, "x matches no part's paths");
  EXPECT_EQ(SelectParts(plan, "smoke", true, {"docs/a"})[1].reason,
            "none of 1 changed files affects it");
  const auto all = SelectParts(plan, "full", false, {});
  ASSERT_EQ(all.size(), 2);
  EXPECT_TRUE(all[0].runs && all[1].runs);
}

// Every part is in one shard, and the longest are not together.
TEST(Selection, ShardsShareTheMinutes) {
  Plan plan;
  for (const int32_t minutes : {10, 240, 60, 120, 1, 120}) {
    plan.parts.push_back({.name = fmt::format("p{}", plan.parts.size()),
                          .run = "r",
                          .proof = "p",
                          .tiers = {"t"},
                          .minutes = minutes});
  }
  const auto names = [&](int32_t index, int32_t count) {
    std::vector<Selected> parts = SelectParts(plan, "t", false, {});
    KeepPartsOfShard(&parts, index, count);
    std::vector<std::string> kept;
    for (const Selected& one : parts) kept.push_back(one.part->name);
    return kept;
  };
  EXPECT_THAT(names(1, 3), ElementsAre("p1"));
  EXPECT_THAT(names(2, 3), ElementsAre("p2", "p3"));
  EXPECT_THAT(names(3, 3), ElementsAre("p0", "p4", "p5"));
  EXPECT_EQ(names(1, 1).size(), plan.parts.size());
  EXPECT_THAT(names(9, 9), testing::IsEmpty());
}

class ChangedFilesTest : public testing::Test {
 protected:
  ChangedFilesTest() : before_(std::filesystem::current_path()) {
    std::filesystem::create_directories(folder_ + "/sub");
    std::filesystem::current_path(folder_);
    Shell(
        "git init -q -b main && git config user.name T && git config user.email t@example.org && "
        "touch kept deleted && git add . && git commit -qm one");
  }
  ~ChangedFilesTest() override { std::filesystem::current_path(before_); }

  static void Shell(const std::string& line) { ASSERT_EQ(std::system(line.c_str()), 0) << line; }

  const std::filesystem::path before_;
  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(ChangedFilesTest, CommittedStagedEditedDeletedAndUnknownOnes) {
  Shell(
      "git checkout -qb work && echo 1 > committed && git add committed && git commit -qm two && "
      "echo 1 > staged && git add staged && echo 1 > kept && rm deleted && "
      "echo 1 > sub/new && printf 'ignored\\n' > .git/info/exclude && touch ignored && "
      "touch 'with space' && mv 'with space' 'with\"quote'");
  std::filesystem::current_path(folder_ + "/sub");
  EXPECT_THAT(ChangedFiles("main"),
              ElementsAre("committed", "deleted", "kept", "staged", "sub/new", "with\"quote"));
}

// What others changed on the base since the branch began is not this change.
TEST_F(ChangedFilesTest, CountsFromTheMergeBase) {
  Shell(
      "git checkout -qb work && echo 1 > mine && git add mine && git commit -qm mine && "
      "git checkout -q main && echo 1 > theirs && git add theirs && git commit -qm theirs && "
      "git checkout -q work");
  EXPECT_THAT(ChangedFiles("main"), ElementsAre("mine"));
  EXPECT_EQ(HeadCommit().size(), 40);
}

TEST_F(ChangedFilesTest, AWarningOfGitIsNoFile) {
  Shell("git config core.autocrlf input && printf 'a\\r\\n' > kept");
  EXPECT_THAT(ChangedFiles("main"), ElementsAre("kept"));
}

TEST_F(ChangedFilesTest, ABaseThatIsNotThereIsAnError) {
  try {
    ChangedFiles("no-such-base");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("merge-base failed"));
  }
}

}  // namespace
}  // namespace lockstep
