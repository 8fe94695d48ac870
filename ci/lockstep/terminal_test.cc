#include "ci/lockstep/terminal.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "ci/lockstep/test_terminal.h"

namespace lockstep::cli {
namespace {

void ExpectSameMode(const termios& a, const termios& b) {
  EXPECT_EQ(a.c_iflag, b.c_iflag);
  EXPECT_EQ(a.c_oflag, b.c_oflag);
  EXPECT_EQ(a.c_lflag, b.c_lflag);
  EXPECT_EQ(a.c_cc[VMIN], b.c_cc[VMIN]);
}

// Prints each key it gets, in brackets, until 'q' or the end.
int EchoKeys() {
  fmt::print("ready\n");
  for (;;) {
    const auto key = ReadKey();
    if (!key) {
      fmt::print("[end]\n");
      std::fflush(stdout);
      return 7;
    }
    fmt::print("[{}]", *key == kEscape ? 'E' : *key);
    std::fflush(stdout);
    if (*key == 'q') return 0;
  }
}

TEST(Terminal, KeysComeOneByOneAndAreNotShown) {
  TestTerminal terminal(EchoKeys);
  const termios before = terminal.Mode();
  terminal.WaitFor("ready");
  ASSERT_TRUE(terminal.WaitForKeyMode());
  terminal.Type("a");
  terminal.WaitFor("[a]");
  ASSERT_TRUE(terminal.WaitForKeyMode());
  terminal.Type("\x1b[A");  // an arrow
  terminal.WaitFor("[E]");
  ASSERT_TRUE(terminal.WaitForKeyMode());
  terminal.Type("r");
  terminal.WaitFor("[r]");
  ASSERT_TRUE(terminal.WaitForKeyMode());
  terminal.Type("q");
  EXPECT_EQ(terminal.Wait(), 0);
  EXPECT_EQ(terminal.output(), "ready\r\n[a][E][r][q]");
  ExpectSameMode(terminal.Mode(), before);
}

TEST(Terminal, TheEndOfInputIsNoKey) {
  TestTerminal terminal(EchoKeys);
  terminal.WaitFor("ready");
  ASSERT_TRUE(terminal.WaitForKeyMode());
  terminal.Type("\x04");
  EXPECT_EQ(WEXITSTATUS(terminal.Wait()), 7);
}

TEST(Terminal, SignalsEndTheProcessAndRestoreTheTerminal) {
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) {
    TestTerminal terminal(EchoKeys);
    const termios before = terminal.Mode();
    terminal.WaitFor("ready");
    ASSERT_TRUE(terminal.WaitForKeyMode());
    if (number == SIGINT) {
      terminal.Type("\x03");  // as a user sends it
    } else {
      ::kill(terminal.child(), number);
    }
    const int status = terminal.Wait();
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == number) << number << ", " << status;
    ExpectSameMode(terminal.Mode(), before);
  }
}

// A shell with one job, EchoKeys: it says when the job is stopped, and continues it on SIGUSR1.
int ShellOfEchoKeys() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGUSR1);
  ::sigaddset(&signals, SIGTTOU);  // for tcsetpgrp
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  const pid_t job = ::fork();
  if (job == 0) {
    ::setpgid(0, 0);
    ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
    ::sigprocmask(SIG_UNBLOCK, &signals, nullptr);
    ::_exit(EchoKeys());
  }
  int status = 0;
  while (::waitpid(job, &status, WUNTRACED) == job && WIFSTOPPED(status)) {
    fmt::print("(stopped)");
    std::fflush(stdout);
    ::sigdelset(&signals, SIGTTOU);
    int number = 0;
    ::sigwait(&signals, &number);
    ::kill(-job, SIGCONT);
  }
  return WEXITSTATUS(status);
}

TEST(Terminal, AStopRestoresTheTerminalAndGoingOnTakesItAgain) {
  TestTerminal terminal(ShellOfEchoKeys);
  const termios before = terminal.Mode();
  terminal.WaitFor("ready");
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(terminal.WaitForKeyMode());
    terminal.Type("\x1a");
    terminal.WaitFor("(stopped)");
    ExpectSameMode(terminal.Mode(), before);
    ::kill(terminal.child(), SIGUSR1);
    ASSERT_TRUE(terminal.WaitForKeyMode());
    terminal.Type("a");
    terminal.WaitFor("[a]");
  }
  ASSERT_TRUE(terminal.WaitForKeyMode());
  terminal.Type("q");
  EXPECT_EQ(terminal.Wait(), 0);
  ExpectSameMode(terminal.Mode(), before);
}

int EchoLine() {
  const auto line = ReadTerminalLine("why? ");
  fmt::print("[{}]", line ? *line : "end");
  std::fflush(stdout);
  return 0;
}

TEST(Terminal, LinesAreEditedByTheTerminal) {
  TestTerminal terminal(EchoLine);
  terminal.WaitFor("why? ");
  terminal.Type("  two wordx\x7fs \r");
  terminal.WaitFor("[two words]");
  TestTerminal ended(EchoLine);
  ended.WaitFor("why? ");
  ended.Type("\x04");
  ended.WaitFor("[end]");
}

}  // namespace
}  // namespace lockstep::cli
