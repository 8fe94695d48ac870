// What a call in a process of its own may do, and what is known of it afterwards.
#include "properties/isolated_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using Kind = IsolatedEnd::Kind;

constexpr int32_t kMs = 20000;  // far more than any of these needs

TEST(IsolatedRunTest, WhatACallReturnsComesBack) {
  const IsolatedCall result = RunIsolatedCall([] { return std::string("a\0b\nc", 5); }, kMs);
  EXPECT_EQ(result.end.kind, Kind::kReturned);
  EXPECT_EQ(result.output, std::string("a\0b\nc", 5));
}

TEST(IsolatedRunTest, EveryEndHasItsKind) {
  const auto end = [](const std::function<void()>& deed) {
    return RunIsolatedCall([&] { return deed(), std::string("unreached"); }, kMs).end;
  };
  const IsolatedEnd aborted = end([] {
    fputs("first\nlast words\n", stderr);
    std::abort();
  });
  EXPECT_EQ(aborted.kind, Kind::kSignal);
  EXPECT_EQ(aborted.Text(), "ended by SIGABRT, saying: last words");
  EXPECT_EQ(end([] { _exit(0); }).Text(), "ended the process with status 0");
  EXPECT_EQ(end([] { _exit(113); }).Text(), "ended the process with status 113");
  EXPECT_EQ(end([] { throw std::runtime_error("why"); }).Text(), "threw an exception, saying: why");
  EXPECT_EQ(end([] { throw 1; }).kind, Kind::kThrew);
}

TEST(IsolatedRunTest, ACallThatDoesNotReturnIsEnded) {
  const IsolatedCall result = RunIsolatedCall(
      []() -> std::string {
        signal(SIGALRM, SIG_IGN);  // no clock of the child's own is trusted
        while (true) pause();
      },
      50);
  EXPECT_EQ(result.end.kind, Kind::kTimeout);
  EXPECT_EQ(result.end.Text(), "did not return");
}

TEST(IsolatedRunTest, DescriptorsAreTheChildsToClose) {
  const IsolatedCall result = RunIsolatedCall(
      [] {
        printf("garbage\n");
        fflush(stdout);
        for (int file = 0; file < 100; ++file) close(file);
        return std::string("here");
      },
      kMs);
  EXPECT_EQ(result.end.kind, Kind::kReturned);
  EXPECT_EQ(result.output, "here");
}

TEST(IsolatedRunTest, NoProcessIsLeftBehind) {
  const IsolatedCall result = RunIsolatedCall(
      [] {
        const pid_t child = fork();
        if (child == 0) {
          while (true) pause();
        }
        return std::to_string(child);
      },
      kMs);
  pid_t left = 0;
  std::from_chars(result.output.data(), result.output.data() + result.output.size(), left);
  ASSERT_GT(left, 0);
  // Whoever inherited it has to have reaped it before it is gone altogether.
  for (int i = 0; i < 1000 && kill(left, 0) == 0; ++i) usleep(1000);
  const bool gone = kill(left, 0) != 0 && errno == ESRCH;
  std::string state = "gone";
  if (!gone) {
    FILE* file = fopen(("/proc/" + result.output + "/stat").c_str(), "r");
    char text[256] = {};
    if (file != nullptr && fgets(text, sizeof text, file) != nullptr) state = text;
    if (file != nullptr) fclose(file);
  }
  EXPECT_TRUE(gone || state.find(" Z ") != state.npos) << state;
}

TEST(IsolatedRunTest, ABatchSaysWhatReturnedBeforeItsEnd) {
  const auto body = [](int32_t i) {
    if (i == 3) std::abort();
    return std::to_string(i);
  };
  const IsolatedBatch whole = RunIsolatedBatch(3, body, kMs);
  EXPECT_EQ(whole.end.kind, Kind::kReturned);
  EXPECT_THAT(whole.outputs, ElementsAre("0", "1", "2"));
  const IsolatedBatch cut = RunIsolatedBatch(9, body, kMs);
  EXPECT_EQ(cut.end.kind, Kind::kSignal);
  EXPECT_THAT(cut.outputs, ElementsAre("0", "1", "2"));
}

// Each call has the time to itself: together these take longer than one may.
TEST(IsolatedRunTest, EveryCallOfABatchHasItsTime) {
  const auto slow = [](int32_t) { return usleep(150000), std::string("x"); };
  const IsolatedBatch batch = RunIsolatedBatch(5, slow, 600);
  EXPECT_EQ(batch.end.kind, Kind::kReturned);
  EXPECT_EQ(batch.outputs.size(), 5u);
}

TEST(IsolatedRunTest, ForSomeEveryEndIsASignalOrATimeout) {
  using End = IsolatedResult::End;
  EXPECT_EQ(RunIsolated([] { return std::string("a"); }, 20).output, "a");
  const IsolatedResult exited = RunIsolated([] { return _exit(0), std::string(); }, 20);
  EXPECT_EQ(exited.end, End::kSignal);
  EXPECT_EQ(exited.signal, SIGABRT);
  const IsolatedResult faulted = RunIsolated([] { return raise(SIGFPE), std::string(); }, 20);
  EXPECT_EQ(faulted.end, End::kSignal);
  EXPECT_EQ(faulted.signal, SIGFPE);
}

TEST(IsolatedRunTest, OutputsThatDoNotFitAreCut) {
  const auto large = [](int32_t) { return std::string(700000, 'y'); };
  const IsolatedBatch batch = RunIsolatedBatch(2, large, kMs);
  ASSERT_EQ(batch.outputs.size(), 2u);
  EXPECT_EQ(batch.outputs[0].size(), 700000u);
  EXPECT_LT(batch.outputs[1].size(), 700000u);
}

}  // namespace
}  // namespace lockstep
