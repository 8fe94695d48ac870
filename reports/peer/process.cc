#include "reports/peer/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "engine/stopwatch.h"

namespace lockstep::internal {
namespace {

constexpr size_t kLineMax = size_t{64} << 20;
constexpr int kWaits = 100;
constexpr int kWaitMicroseconds = 10'000;

}  // namespace

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
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
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
  setpgid(child_, child_);  // whichever of the two comes first
}

LineProcess::~LineProcess() {
  shutdown(socket_, SHUT_WR);
  EndOfChild();
  if (child_ > 0) {
    kill(-child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  close(socket_);
}

std::string LineProcess::EndOfChild() {
  for (int i = 0; i < kWaits && child_ > 0; ++i) {
    int status = 0;
    if (waitpid(child_, &status, WNOHANG) == child_) {
      kill(-child_, SIGKILL);  // what it left behind
      child_ = -1;
      return WIFSIGNALED(status)
                 ? fmt::format(": signal {}, {}", WTERMSIG(status), strsignal(WTERMSIG(status)))
                 : fmt::format(": exit code {}", WEXITSTATUS(status));
    }
    usleep(kWaitMicroseconds);
  }
  return "";
}

void LineProcess::Fail(const std::string& what) const {
  throw ProcessFailure({name_, what, "run it by hand to see why"});
}

void LineProcess::ReceiveMore(double seconds) {
  const Stopwatch watch;
  for (;;) {
    const double left = seconds - watch.seconds();
    pollfd ready = {.fd = socket_, .events = POLLIN, .revents = 0};
    const int polled = left > 0 ? poll(&ready, 1, static_cast<int>(left * 1e3) + 1) : 0;
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) Fail(fmt::format("did not answer within {} seconds", timeout_seconds_));
    std::array<char, 65536> buffer;
    const ssize_t got = recv(socket_, buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) Fail("ended before it answered" + EndOfChild());
    unread_.append(buffer.data(), static_cast<size_t>(got));
    return;
  }
}

std::string LineProcess::ReadLine() {
  const Stopwatch watch;
  for (size_t looked = 0;;) {
    const size_t end = unread_.find('\n', looked);
    if (end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    looked = unread_.size();
    if (looked > kLineMax) Fail("answered with a line that does not end");
    ReceiveMore(timeout_seconds_ - watch.seconds());
  }
}

std::vector<std::byte> LineProcess::ReadBytes(size_t count) {
  const Stopwatch watch;
  while (unread_.size() < count) ReceiveMore(timeout_seconds_ - watch.seconds());
  std::vector<std::byte> bytes(count);
  if (count > 0) std::memcpy(bytes.data(), unread_.data(), count);
  unread_.erase(0, count);
  return bytes;
}

void LineProcess::Send(const std::string& line) {
  const std::string text = line + "\n";
  const Stopwatch watch;
  for (size_t sent = 0; sent < text.size();) {
    const double left = timeout_seconds_ - watch.seconds();
    pollfd ready = {.fd = socket_, .events = POLLOUT, .revents = 0};
    const int polled = left > 0 ? poll(&ready, 1, static_cast<int>(left * 1e3) + 1) : 0;
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) Fail(fmt::format("read nothing for {} seconds", timeout_seconds_));
    const ssize_t more =
        send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (more < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (more <= 0) Fail("does not take requests any more" + EndOfChild());
    sent += static_cast<size_t>(more);
  }
}

std::string LineProcess::Ask(const std::string& line) {
  Send(line);
  return ReadLine();
}

}  // namespace lockstep::internal
