// ci/quick-tests over programs that stand in for those of gtest: it is green only when each of them
// ran its tests to the end.
#include <gmock/gmock.h>

#include <filesystem>
#include <string>

#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "reports/run_process.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class QuickTestsTest : public testing::Test {
 protected:
  QuickTestsTest() { WriteWholeTextFile(folder_.File("slow.txt"), "# why\nA.slow/*\n"); }

  // A program with the tests A.b and A.slow/0, that ends by the lines of `end`.
  void Add(const std::string& name, const std::string& end) {
    const std::string path = folder_.File(name);
    WriteWholeTextFile(path,
                       "#!/bin/sh\n"
                       "if [ \"$1\" = --gtest_list_tests ]; then\n"
                       "  printf 'A.\\n  b\\n  slow/0  # GetParam() = 3\\n'\n  exit\nfi\n"
                       "echo \"$1\" > \"$0.filter\"\n" +
                           end);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    checks_ += name + " " + name + "\n";
    WriteWholeTextFile(folder_.File("checks.txt"), checks_);
  }

  struct Ran {
    int code = 0;
    std::string out;  // of both streams
  };
  Ran Run() const {
    const std::string log = folder_.File("log");
    const ProcessEnd end =
        RunProcess({.argv = {"env", "SLOW_TESTS=" + folder_.File("slow.txt"),
                             LOCKSTEP_SOURCE_DIR "/ci/quick-tests", folder_.path().string()},
                    .folder = folder_.path().string(),
                    .log = log,
                    .seconds_max = 60});
    return {.code = end.kind == ProcessEnd::Kind::kExited ? end.code : -1,
            .out = ReadWholeTextFile(log)};
  }

  const TemporaryFolder folder_;

 private:
  std::string checks_;
};

constexpr const char* kPasses =
    "printf '[       OK ] A.b (3 ms)\\n[  SKIPPED ] A.c (0 ms)\\n[  PASSED  ] 1 test.\\n'\n";

TEST_F(QuickTestsTest, EveryProgramRunsWithoutWhatIsSlow) {
  Add("x_test", kPasses);
  Add("y_test", kPasses);
  const Ran result = Run();
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("quick tests: all 2 of 2 programs passed, 2 skipped"));
  EXPECT_EQ(ReadWholeTextFile(folder_.File("x_test.filter")), "--gtest_filter=-A.slow/*\n");
}

TEST_F(QuickTestsTest, AFailureIsNamedWithWhatRepeatsIt) {
  Add("x_test", kPasses);
  Add("y_test", "printf 'y.cc:3: Failure\\n[  FAILED  ] A.b (3 ms)\\n'\nexit 1\n");
  const Ran result = Run();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("y_test: exit code 1; repeat: y_test --gtest_filter='-A.slow/*'"),
                    HasSubstr("y.cc:3: Failure"), HasSubstr("quick tests: failed: y_test")));
}

// A test that calls exit(0) ends the tests behind it, too.
TEST_F(QuickTestsTest, AProgramThatEndsEarlyIsNotGreen) {
  Add("x_test", "echo '[ RUN      ] A.b'\nexit 0\n");
  Add("y_test", kPasses);
  const Ran result = Run();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("quick tests: failed: x_test"));
}

TEST_F(QuickTestsTest, AProgramThatIsNotThereIsNotGreen) {
  Add("x_test", kPasses);
  std::filesystem::remove(folder_.File("x_test"));
  EXPECT_EQ(Run().code, 1);
}

TEST_F(QuickTestsTest, APatternOfNoTestIsStale) {
  Add("x_test", kPasses);
  WriteWholeTextFile(folder_.File("slow.txt"), "A.slow/*\nA.gone\n");
  const Ran result = Run();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("no test is named A.gone"));
}

TEST_F(QuickTestsTest, WithoutABuildItIsWrongUse) {
  const Ran result = Run();
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.out, HasSubstr("checks.txt is missing"));
}

}  // namespace
}  // namespace lockstep
