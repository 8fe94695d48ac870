#include "ci/lockstep/test_terminal.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utmp.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "caches/check.h"

namespace lockstep::cli {
namespace {

constexpr int kMillisecondsMax = 8'000;
constexpr int kMillisecondsStep = 10;

}  // namespace

TestTerminal::TestTerminal(const std::function<int()>& program) {
  LS_CHECK(::openpty(&terminal_, &program_side_, nullptr, nullptr, nullptr) == 0, "no terminal");
  std::fflush(nullptr);  // else the child writes what is still in the buffers a second time
  child_ = ::fork();
  LS_CHECK(child_ >= 0, "cannot fork");
  if (child_ == 0) {
    ::close(terminal_);
    ::login_tty(program_side_);
    ::_exit(program());
  }
}

TestTerminal::~TestTerminal() {
  if (child_ > 0) {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  ::close(terminal_);
  ::close(program_side_);
}

void TestTerminal::Type(std::string_view keys) {
  LS_CHECK(::write(terminal_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()),
           "the terminal takes no keys");
}

bool TestTerminal::ReadSome(int milliseconds) {
  pollfd output = {terminal_, POLLIN, 0};
  if (::poll(&output, 1, milliseconds) != 1) return false;
  std::array<char, 4096> bytes;
  const ssize_t n = ::read(terminal_, bytes.data(), bytes.size());
  if (n > 0) output_.append(bytes.data(), static_cast<size_t>(n));
  return n > 0;
}

std::string TestTerminal::WaitFor(std::string_view text) {
  for (int waited = 0; waited < kMillisecondsMax; waited += kMillisecondsStep) {
    const size_t at = output_.find(text, seen_);
    if (at != output_.npos) {
      seen_ = at + text.size();
      return output_.substr(0, seen_);
    }
    ReadSome(kMillisecondsStep);
  }
  constexpr size_t kShown = 2000;
  const size_t from = std::max(seen_, output_.size() - std::min(output_.size(), kShown));
  ADD_FAILURE() << "waited for: " << text << "\nprinted since: " << output_.substr(from);
  return output_;
}

bool TestTerminal::WaitForKeyMode() {
  for (int waited = 0; waited < kMillisecondsMax; waited += kMillisecondsStep) {
    if ((Mode().c_lflag & static_cast<tcflag_t>(ICANON)) == 0) return true;
    ReadSome(kMillisecondsStep);
  }
  return false;
}

termios TestTerminal::Mode() const {
  termios mode = {};
  LS_CHECK(::tcgetattr(program_side_, &mode) == 0, "the terminal has no mode");
  return mode;
}

int TestTerminal::Wait() {
  for (int waited = 0; waited < kMillisecondsMax; waited += kMillisecondsStep) {
    int status = 0;
    ReadSome(kMillisecondsStep);
    if (::waitpid(child_, &status, WNOHANG) != child_) continue;
    child_ = -1;
    while (ReadSome(0)) {
    }
    return status;
  }
  ADD_FAILURE() << "it does not end; it printed: " << output_;
  return -1;
}

}  // namespace lockstep::cli
