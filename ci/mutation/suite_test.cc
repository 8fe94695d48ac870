#include "ci/mutation/suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>

#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/temporary_folder.h"

namespace lockstep::mutation {
namespace {

using testing::ElementsAre;

std::vector<std::string> NamesOf(const std::vector<Check>& checks) {
  std::vector<std::string> names;
  for (const Check& check : checks) names.push_back(check.name);
  return names;
}

std::vector<Check> FourChecks() {
  return {{"a", {"a"}, {"engine/a"}, true, 2},
          {"b", {"b"}, {"caches/b"}, true, 3},
          {"c", {"c"}, {"caches/c"}, true, 1},
          {"d", {"d"}, {"lockstep", "d"}, false, 1}};
}

TEST(SuiteTest, TheFilesOwnFolderComesFirstAndShortChecksBeforeLong) {
  EXPECT_THAT(NamesOf(InOrder(FourChecks(), "caches/x.cc", "")), ElementsAre("c", "b", "d", "a"));
  EXPECT_THAT(NamesOf(InOrder(FourChecks(), "engine/x.cc", "b:F*")),
              ElementsAre("b:F*", "a", "c", "d", "b"));
}

TEST(SuiteTest, ACatcherIsACheckWithAFilter) {
  const std::vector<Check> suite = FourChecks();
  EXPECT_THAT(FindCheck(suite, "a:A.*").argv, ElementsAre("engine/a", "--gtest_filter=A.*"));
  EXPECT_THAT(FindCheck(suite, "d").argv, ElementsAre("lockstep", "d"));
  EXPECT_THROW(FindCheck(suite, "e"), Error);
  EXPECT_THROW(FindCheck(suite, "d:A.*"), Error);  // no gtest, no filter
}

// A choice with a filter once left nothing, and of nothing no check fails.
TEST(SuiteTest, ChecksAreChosenByName) {
  const std::vector<Check> suite = FourChecks();
  EXPECT_THAT(NamesOf(ChosenChecks(suite, {}, "")), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(NamesOf(ChosenChecks(suite, {"d", "a:A.*", "d"}, "")), ElementsAre("d", "a:A.*"));
  EXPECT_THROW(ChosenChecks(suite, {"d", "e"}, ""), Error);
  EXPECT_TRUE(HasCheck(suite, "a:A.*"));
  EXPECT_FALSE(HasCheck(suite, "d:A.*"));
  EXPECT_FALSE(HasCheck(suite, "e"));
}

// A catcher that is slow itself catches nothing then, or the smoke tier would be said to do more
// than it does.
TEST(SuiteTest, QuickTestsAreEveryTestBinaryWithoutTheSlowOnes) {
  const std::vector<Check> quick = ChosenChecks(FourChecks(), {"quick-tests", "d"}, "S.*:T.*");
  EXPECT_THAT(NamesOf(quick), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(quick[1].argv, ElementsAre("caches/b", "--gtest_filter=-S.*:T.*"));
  EXPECT_THAT(quick[3].argv, ElementsAre("lockstep", "d"));
  EXPECT_THAT(FindCheck(quick, "a:A.*").argv,
              ElementsAre("engine/a", "--gtest_filter=A.*-S.*:T.*"));
  EXPECT_THAT(FindCheck(quick, "a:A.*-A.b").argv,
              ElementsAre("engine/a", "--gtest_filter=A.*-A.b:S.*:T.*"));
}

TEST(SuiteTest, SlowTestsAreReadFromAList) {
  const TemporaryFolder folder;
  const std::string path = folder.File("slow.txt");
  std::ofstream(path) << "# why\n\nA.*\nB.c/*  # d\n \n";
  EXPECT_EQ(ReadSlowTests(path), "A.*:B.c/*");
  std::ofstream(path) << "# nothing\n";
  EXPECT_THROW(ReadSlowTests(path), Error);
  EXPECT_THAT(ReadSlowTests(LOCKSTEP_SOURCE_DIR "/ci/slow_tests.txt"), testing::HasSubstr(":"));
}

std::vector<std::string> Words(const std::string& line) {
  std::istringstream words(line);
  return {std::istream_iterator<std::string>(words), {}};
}

// The suite's checks are what the gate's smoke tier runs, no part left out, and nothing else.
TEST(SuiteTest, TheSmokeTierOfTheTreeIsAChoice) {
  const TemporaryFolder folder;
  const std::string path = folder.File("checks.txt");
  std::ofstream(path) << "lockstep_test ci/lockstep_test\n";
  const std::string file = LOCKSTEP_SOURCE_DIR "/ci/lockstep.toml";
  const Plan plan = ParsePlan(ReadWholeTextFile(file), file);
  const std::vector<std::string> names = ChecksOfTier(plan, "smoke");
  EXPECT_THAT(names, ElementsAre("tidy", "quick-tests", "golden", "verify", "fuzz", "fuzz-engine",
                                 "fuzz-gguf", "fuzz-tokenizer", "fuzz-plugin"));
  EXPECT_THROW(ChecksOfTier(plan, "smok"), Error);
  EXPECT_THROW(ChecksOfTier(plan, "full"), Error);  // has parts that are no check

  std::vector<std::string> of_checks, of_parts;  // fuzz targets
  for (const Check& check : ChosenChecks(ReadSuite(path), names, "")) {
    const auto target = std::ranges::find(check.argv, "--target");
    if (target != check.argv.end()) of_checks.push_back(*(target + 1));
  }
  for (const PlanPart& part : plan.parts) {
    if (std::ranges::count(part.tiers, "smoke") == 0) continue;
    const std::vector<std::string> words = Words(part.run);
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      if (words[i] == "--target") of_parts.push_back(words[i + 1]);
    }
  }
  EXPECT_EQ(of_checks, of_parts);
}

TEST(SuiteTest, TestBinariesAreReadFromTheFileThatCMakeWrites) {
  const TemporaryFolder folder;
  const std::string path = folder.File("checks.txt");
  std::ofstream(path) << "x_test caches/x_test\nlockstep_test ci/lockstep_test\n";
  const std::vector<Check> suite = ReadSuite(path);
  EXPECT_THAT(NamesOf(suite), ElementsAre("x_test", "lockstep_test", "fuzz", "verify", "matrix",
                                          "conform", "golden", "tidy", "fuzz-engine", "fuzz-gguf",
                                          "fuzz-tokenizer", "fuzz-plugin"));
  EXPECT_TRUE(suite[0].is_gtest);
  EXPECT_EQ(suite[0].argv[0], "caches/x_test");
  std::ofstream(path) << "";
  EXPECT_THROW(ReadSuite(path), Error);
  std::ofstream(path) << "x_test\n";
  EXPECT_THROW(ReadSuite(path), Error);
  std::remove(path.c_str());
  EXPECT_THROW(ReadSuite(path), Error);
}

TEST(SuiteTest, TheFirstFailedTestAndTheFirstScriptAreRead) {
  const Failure failure = ReadFailure(
      "x_test.cc:3: Failure\nseed 1: U5 length\n"
      "cache simple layers=1 heads=1 dim=2 max=5\nupdate at=0..3 rows=1\nrollback to=2\nread\n\n"
      "read the manual\n"
      "[  FAILED  ] A.b, where GetParam() = 4 (3 ms)\n[  FAILED  ] A.c (3 ms)\n");
  EXPECT_EQ(failure.test, "A.b");
  EXPECT_EQ(failure.script_ops, 3);
  EXPECT_EQ(ReadFailure("read a cache\n").script_ops, 0);
  EXPECT_EQ(ReadFailure("").test, "");
}

}  // namespace
}  // namespace lockstep::mutation
