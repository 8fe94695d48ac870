#include "ci/plan/run.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>

#include "caches/file_io.h"
#include "caches/temporary_folder.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class RunPlanTest : public testing::Test {
 protected:
  RunPlanOptions Options() const {
    return {.seed = "7", .folder = folder_, .bin = folder_ + "/bin", .seconds_max = 60};
  }

  static PlanPart Part(const std::string& name, const std::string& run,
                       const std::string& proof = "done") {
    return {.name = name, .run = run, .proof = proof, .tiers = {"t"}, .minutes = 1};
  }

  PlanResult Run(const std::vector<PlanPart>& parts, const RunPlanOptions& options) const {
    std::vector<Selected> selected;
    for (const PlanPart& part : parts) selected.push_back({&part, true, "every part runs"});
    return RunPlan(selected, options);
  }
  PlanResult Run(const std::vector<PlanPart>& parts) const { return Run(parts, Options()); }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(RunPlanTest, HoldsWithExitCodeAndProof) {
  const PlanResult result = Run({Part("a", "echo done; echo repeat: x"), Part("b", "echo done")});
  EXPECT_EQ(result.verdict(), PartVerdict::kHolds);
  EXPECT_EQ(result.parts[0].what, "done");
  EXPECT_EQ(result.parts[0].reason, "every part runs");
  EXPECT_EQ(ReadWholeTextFile(result.parts[0].log), "done\nrepeat: x\n");
}

// Each way not to have run is a way not to be green.
TEST_F(RunPlanTest, FailsClosed) {
  struct Case {
    const char* run;
    PartVerdict verdict;
    const char* what;
  };
  for (const Case& c : {Case{"true", PartVerdict::kInconclusive, "it did not print 'done'"},
                        Case{"echo done; exit 3", PartVerdict::kInconclusive, "exit code 3: done"},
                        Case{"echo done; exit 1", PartVerdict::kFailed, "exit code 1: done"},
                        Case{"echo done; exit 2", PartVerdict::kFailed, "exit code 2: done"},
                        Case{"no-such-program", PartVerdict::kFailed, "exit code 127"},
                        Case{"echo done; kill -SEGV $$", PartVerdict::kFailed, "signal 11"}}) {
    const PlanResult result = Run({Part("good", "echo done"), Part("bad", c.run)});
    EXPECT_EQ(result.parts[0].verdict, PartVerdict::kHolds);
    EXPECT_EQ(result.parts[1].verdict, c.verdict) << c.run;
    EXPECT_THAT(result.parts[1].what, HasSubstr(c.what));
    EXPECT_EQ(result.verdict(), c.verdict) << c.run;
  }
  EXPECT_EQ(Run({}).verdict(), PartVerdict::kInconclusive) << "no part is no proof";
}

// ctest says "100% tests passed" of those that ran.
TEST_F(RunPlanTest, ATestThatMayNotBeSkippedIsNotGreen) {
  const std::string run =
      "printf '100%% tests passed\\n\\nThe following tests did not run:\\n\\t 12 - Gpu/A.B/0 "
      "(Skipped)\\n\\t  7 - compilers (Not Run)\\n'";
  PlanPart part = Part("tests", run, "100% tests passed");
  EXPECT_EQ(Run({part}).verdict(), PartVerdict::kHolds) << "nobody asked";
  part.may_skip = {"Gpu/*"};
  PlanResult result = Run({part});
  EXPECT_EQ(result.verdict(), PartVerdict::kInconclusive);
  EXPECT_EQ(result.parts[0].what, "skipped 1 tests that may not be: compilers");
  part.may_skip = {"Gpu/*", "compilers"};
  EXPECT_EQ(Run({part}).verdict(), PartVerdict::kHolds);
}

TEST_F(RunPlanTest, WhatTheTierHasNoTimeForIsNotRunAndNotGreen) {
  RunPlanOptions options = Options();
  options.seconds_max = 0.3;
  const PlanResult result =
      Run({Part("slow", "echo done; sleep 5"), Part("next", "echo done")}, options);
  EXPECT_EQ(result.parts[0].verdict, PartVerdict::kInconclusive);
  EXPECT_THAT(result.parts[0].what, HasSubstr("passed its limit"));
  EXPECT_EQ(result.parts[1].verdict, PartVerdict::kNotRun);
  EXPECT_EQ(result.verdict(), PartVerdict::kInconclusive);
  EXPECT_LT(result.seconds, 4);
}

TEST_F(RunPlanTest, AfterAnInterruptionNothingMoreRuns) {
  RunPlanOptions options = Options();
  options.on_wait = [](double seconds) { return seconds < 0.05; };
  const PlanResult result =
      Run({Part("stopped", "echo done; sleep 5"), Part("next", "echo done")}, options);
  EXPECT_EQ(result.parts[0].verdict, PartVerdict::kNotRun);
  EXPECT_EQ(result.parts[1].verdict, PartVerdict::kNotRun);
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.verdict(), PartVerdict::kInconclusive);
}

TEST_F(RunPlanTest, SeedFolderAndPathAreTheParts) {
  std::filesystem::create_directories(folder_ + "/bin");
  std::filesystem::create_symlink("/bin/echo", folder_ + "/bin/lockstep");
  const PlanResult result = Run({Part(
      "a", "lockstep seed {seed} > {out}/f && test -e {bin}/lockstep && cat {out}/f", "seed 7")});
  EXPECT_EQ(result.verdict(), PartVerdict::kHolds) << result.parts[0].what;
  EXPECT_EQ(ReadWholeTextFile(folder_ + "/a/f"), "seed 7\n");
  EXPECT_EQ(
      result.parts[0].command,
      fmt::format("lockstep seed 7 > {0}/a/f && test -e {0}/bin/lockstep && cat {0}/a/f", folder_));
  Run({Part("a", "ls {out}; echo done")});
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/a/f")) << "what an earlier run left is gone";
}

TEST_F(RunPlanTest, WhatIsUnaffectedIsSaidAndGreen) {
  const PlanPart part = Part("a", "exit 1");
  const PlanResult result =
      RunPlan({{&part, false, "none of 2 changed files affects it"}}, Options());
  EXPECT_EQ(result.parts[0].verdict, PartVerdict::kUnaffected);
  EXPECT_EQ(result.verdict(), PartVerdict::kHolds);
}

}  // namespace
}  // namespace lockstep
