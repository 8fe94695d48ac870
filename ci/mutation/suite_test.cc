#include "ci/mutation/suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "caches/error.h"
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

TEST(SuiteTest, TestBinariesAreReadFromTheFileThatCMakeWrites) {
  const TemporaryFolder folder;
  const std::string path = folder.File("checks.txt");
  std::ofstream(path) << "x_test caches/x_test\nlockstep_test ci/lockstep_test\n";
  const std::vector<Check> suite = ReadSuite(path);
  EXPECT_THAT(NamesOf(suite), ElementsAre("x_test", "lockstep_test", "fuzz", "verify", "matrix",
                                          "conform", "tidy"));
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
