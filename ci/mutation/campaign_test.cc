// A real campaign on a small project: what it says of a fault that is caught, missed, does not
// build and hangs. A gate that calls any of the last three caught would be worse than none.
#include "ci/mutation/campaign.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "ci/mutation/report.h"

namespace lockstep::mutation {
namespace {

constexpr std::string_view kCMake = R"(
cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES CXX)
add_executable(sum_test sum_test.cc sum.cc)
add_executable(caches_contract_test reference.cc sum.cc)
add_executable(oracle_test reference.cc other.cc)
file(WRITE ${PROJECT_BINARY_DIR}/checks.txt
  "sum_test sum_test\ncaches_contract_test caches_contract_test\noracle_test oracle_test\n")
)";
constexpr std::string_view kSum = R"(
int Sum(int n) {
  int sum = 0;
  for (int i = 1; i <= n; ++i) sum += i;
  return sum;
}
)";
constexpr std::string_view kSumTest = R"x(
#include <cstdio>
int Sum(int n);
int main() {
  if (Sum(4) == 10) return 0;
  std::puts("[  FAILED  ] SumTest.OfFour (0 ms)");
  return 1;
}
)x";

// Exits by a signal when the sum of nothing is wrong: another check, which sees other faults.
constexpr std::string_view kReference = R"(
int Sum(int n);
int main() { if (Sum(0) != 0) __builtin_trap(); }
)";

class CampaignTest : public testing::Test {
 protected:
  CampaignTest() {
    std::filesystem::create_directories(tree_);
    Write("CMakeLists.txt", kCMake);
    Write("sum.cc", kSum);
    Write("other.cc", kSum);
    Write("sum_test.cc", kSumTest);
    Write("reference.cc", kReference);
    RunProcess({.argv = {"git", "init", "-q"}, .folder = tree_, .log = folder_ + "/log"});
    options_.seconds_of_patience = 1;
    options_.workbench = {tree_, folder_ + "/copies", {}};
  }

  void Write(const std::string& file, std::string_view text) const {
    std::ofstream(tree_ + "/" + file) << text;
  }

  std::vector<FaultResult> Run(const std::vector<Fault>& faults, int jobs = 1) {
    options_.jobs = jobs;
    return RunCampaign(PlantAll(faults, tree_), options_).results;
  }

  static Fault Edit(const std::string& before, const std::string& after,
                    const std::string& catcher = "") {
    return {
        .name = after, .class_name = "F01", .edit = {"sum.cc", before, after}, .catcher = catcher};
  }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  const std::string tree_ = folder_ + "/tree";
  CampaignOptions options_;
};

TEST_F(CampaignTest, EachFaultGetsItsVerdict) {
  const std::vector<FaultResult> results =
      Run({Edit("i <= n", "i < n", "sum_test"), Edit("int i = 1", "int i = 0"), Edit("++i", "i"),
           Edit("return sum", "return sun"), Edit("sum = 0", "sum = 1", "caches_contract_test")});
  ASSERT_EQ(results.size(), 5u);
  EXPECT_EQ(results[0].verdict, Verdict::kCaught);
  EXPECT_EQ(results[0].check, "sum_test");
  EXPECT_TRUE(results[0].expected);
  EXPECT_EQ(results[0].test, "SumTest.OfFour");
  EXPECT_FALSE(results[0].reference_catches);
  EXPECT_EQ(results[1].verdict, Verdict::kMissed);  // equivalent: nothing is added
  EXPECT_EQ(results[2].verdict, Verdict::kTimedOut);
  EXPECT_EQ(results[3].verdict, Verdict::kDoesNotBuild);
  EXPECT_EQ(results[4].verdict, Verdict::kCaught);
  EXPECT_EQ(results[4].check, "caches_contract_test");
  EXPECT_TRUE(results[4].reference_catches);

  const Score score = ScoreOf(results);
  EXPECT_EQ(score.total, 5);
  EXPECT_EQ(score.caught, 2);
  EXPECT_EQ(score.by_reference, 1);
  EXPECT_EQ(score.timed_out, 1);
  EXPECT_EQ(score.does_not_build, 1);
  EXPECT_FALSE(score.all_caught());
  const Score mutants = ScoreOfMutants(results, {{"sum.cc", "int i = 1", "int i = 0", "adds 0"}});
  EXPECT_EQ(mutants.equivalent, 1);
  EXPECT_EQ(mutants.total, 3);
  EXPECT_EQ(mutants.caught, 2);
}

// A part of the suite alone: whoever else would have caught a fault is not asked, and none of it
// matters to which faults there may be.
TEST_F(CampaignTest, ACatcherThatWasNotChosenIsLeftOut) {
  options_.checks = {"caches_contract_test"};
  const std::vector<Fault> faults = {Edit("i <= n", "i < n", "sum_test"),
                                     Edit("sum = 0", "sum = 1", "sum_test:SumTest.*")};
  const CampaignResult result = RunCampaign(PlantAll(faults, tree_), options_);
  ASSERT_EQ(result.results.size(), 2u);
  EXPECT_EQ(result.results[0].verdict, Verdict::kMissed);
  EXPECT_EQ(result.results[1].verdict, Verdict::kCaught);
  EXPECT_EQ(result.results[1].check, "caches_contract_test");
  EXPECT_FALSE(result.results[1].expected);
  EXPECT_TRUE(result.results[1].reference_catches);  // asked whatever was chosen
  EXPECT_FALSE(result.results[0].reference_catches);
  const std::string text = ScoreText(ScoreOf(result.results), result);
  EXPECT_NE(text.find("1 of 3 checks of the suite: caches_contract_test\n"), text.npos) << text;
  EXPECT_NE(text.find("the reference's suite catches 1"), text.npos) << text;

  EXPECT_THROW(Run({Edit("i <= n", "i < n", "no_such_test")}), Error);
  options_.checks = {"no_such_test"};
  EXPECT_THROW(Run({Edit("i <= n", "i < n")}), Error);
  options_.checks = {};
  const CampaignResult whole = RunCampaign(PlantAll(faults, tree_), options_);
  EXPECT_NE(ScoreText({}, whole).find("all 3 checks of the suite\n"), std::string::npos);
}

TEST_F(CampaignTest, TheTreeItselfIsNeverTouchedAndTwoJobsAgree) {
  const std::vector<FaultResult> results =
      Run({Edit("i <= n", "i < n"), Edit("sum = 0", "sum = 1"), Edit("i <= n", "i <= 9")}, 2);
  for (const FaultResult& result : results) {
    EXPECT_EQ(result.verdict, Verdict::kCaught) << result.fault.name;
  }
  EXPECT_EQ(ReadWholeTextFile(tree_ + "/sum.cc"), kSum);
}

TEST_F(CampaignTest, NothingIsJudgedWhenACheckFailsWithoutAFault) {
  Write("sum.cc", ApplyEdit({"sum.cc", "i <= n", "i < n"}, kSum));
  const CampaignResult result =
      RunCampaign(PlantAll({Edit("sum = 0", "sum = 1")}, tree_), options_);
  EXPECT_TRUE(result.results.empty());
  EXPECT_NE(result.baseline_failure.find("SumTest.OfFour"), std::string::npos);
}

TEST_F(CampaignTest, AFaultThatDoesNotApplyOrHasNoSuchCatcherIsAnError) {
  EXPECT_THROW(Run({Edit("i >= n", "i < n")}), Error);
  EXPECT_THROW(Run({Edit("i <= n", "i < n", "no_such_test")}), Error);
}

}  // namespace
}  // namespace lockstep::mutation
