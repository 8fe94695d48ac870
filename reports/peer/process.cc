#include "reports/peer/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "caches/error.h"

namespace lockstep::internal {

LineProcess::LineProcess(const std::vector<std::string>& argv, int timeout_seconds)
    : name_(argv.at(0)), timeout_seconds_(timeout_seconds) {
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  // One socket for both directions: writing to a child that ended is an error then, no signal.
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) Fail("got no socket");
  child_ = fork();
  if (child_ == 0) {
    dup2(ends[1], STDIN_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  close(ends[1]);
  socket_ = ends[0];
  if (child_ < 0) {
    close(socket_);
    Fail("could not be started");
  }
}

LineProcess::~LineProcess() {
  shutdown(socket_, SHUT_WR);
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    if (waitpid(child_, nullptr, WNOHANG) == child_) {
      close(socket_);
      return;
    }
    usleep(10'000);
  }
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
  close(socket_);
}

void LineProcess::Fail(const std::string& what) const {
  throw Error({name_, what, "run it by hand to see why"});
}

std::string LineProcess::ReadLine() {
  for (;;) {
    const size_t end = unread_.find('\n');
    if (end != std::string::npos) {
      const std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    pollfd ready = {.fd = socket_, .events = POLLIN, .revents = 0};
    const int polled = poll(&ready, 1, timeout_seconds_ * 1000);
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) Fail(fmt::format("did not answer within {} seconds", timeout_seconds_));
    std::array<char, 4096> buffer;
    const ssize_t got = recv(socket_, buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) Fail("ended before it answered");
    unread_.append(buffer.data(), static_cast<size_t>(got));
  }
}

std::string LineProcess::Ask(const std::string& line) {
  const std::string text = line + "\n";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t more = send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) Fail("does not take requests any more");
    sent += static_cast<size_t>(more);
  }
  return ReadLine();
}

}  // namespace lockstep::internal
