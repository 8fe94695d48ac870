#include "reports/run_process.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/temporary_folder.h"

namespace lockstep {
namespace {

class ProcessTest : public testing::Test {
 protected:
  ProcessTest() { std::filesystem::create_directories(folder_); }

  ProcessRequest Shell(const std::string& line, double seconds_max = 20) const {
    return {.argv = {"sh", "-c", line},
            .folder = folder_,
            .log = folder_ + "/log",
            .seconds_max = seconds_max};
  }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(ProcessTest, ExitCodeOutputAndFolder) {
  const ProcessEnd end = RunProcess(Shell("echo out; echo err >&2; touch here; exit 3"));
  EXPECT_EQ(end.kind, ProcessEnd::Kind::kExited);
  EXPECT_EQ(end.code, 3);
  EXPECT_FALSE(end.ok());
  EXPECT_EQ(ReadWholeTextFile(folder_ + "/log"), "out\nerr\n");
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/here"));
  EXPECT_TRUE(RunProcess(Shell("true")).ok());
}

TEST_F(ProcessTest, ErrorsMayGoToAFileOfTheirOwn) {
  ProcessRequest request = Shell("echo out; echo err >&2");
  request.errors = folder_ + "/errors";
  EXPECT_TRUE(RunProcess(request).ok());
  EXPECT_EQ(ReadWholeTextFile(folder_ + "/log"), "out\n");
  EXPECT_EQ(ReadWholeTextFile(folder_ + "/errors"), "err\n");
}

TEST_F(ProcessTest, ASignalIsNoExit) {
  const ProcessEnd end = RunProcess(Shell("kill -SEGV $$"));
  EXPECT_EQ(end.kind, ProcessEnd::Kind::kSignal);
  EXPECT_EQ(end.code, 11);
}

TEST_F(ProcessTest, WhatTakesTooLongIsKilledWithItsChildren) {
  const ProcessEnd end = RunProcess(Shell("(sleep 2; touch late) & wait", 0.2));
  EXPECT_EQ(end.kind, ProcessEnd::Kind::kTimeout);
  EXPECT_LT(end.seconds, 2);
  RunProcess(Shell("sleep 2.2"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/late"));
}

TEST_F(ProcessTest, WhatTakesTooMuchMemoryIsKilled) {
  ProcessRequest request = Shell("sleep 10");
  request.bytes_max = 1000;
  EXPECT_EQ(RunProcess(request).kind, ProcessEnd::Kind::kMemory);
}

TEST_F(ProcessTest, WhoWaitsMayStopIt) {
  ProcessRequest request = Shell("sleep 10");
  request.on_wait = [](double seconds) { return seconds < 0.05; };
  const ProcessEnd end = RunProcess(request);
  EXPECT_EQ(end.kind, ProcessEnd::Kind::kStopped);
  EXPECT_LT(end.seconds, 5);
}

TEST_F(ProcessTest, AProgramThatIsNotThereIsAnError) {
  ProcessRequest request = Shell("");
  request.argv = {"no-such-program-anywhere"};
  EXPECT_THROW(RunProcess(request), Error);
}

}  // namespace
}  // namespace lockstep
