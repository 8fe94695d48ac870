#include "properties/isolated_run.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "caches/error.h"

namespace lockstep {
namespace {

[[noreturn]] void Fail(const char* call) {
  throw Error({call, std::strerror(errno), "the system is out of processes or files"});
}

// In the child: nothing of the parent may run again, so it leaves by _exit.
[[noreturn]] void RunChild(const std::function<std::string()>& body, int write_end,
                           int32_t seconds_max) {
  alarm(static_cast<unsigned>(seconds_max));
  std::string output;
  try {
    output = body();
  } catch (...) {
    _exit(3);
  }
  for (size_t sent = 0; sent < output.size();) {
    const ssize_t n = write(write_end, output.data() + sent, output.size() - sent);
    if (n <= 0) _exit(4);
    sent += static_cast<size_t>(n);
  }
  _exit(0);
}

std::string ReadToEnd(int read_end) {
  std::string output;
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t n = read(read_end, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return output;
    output.append(buffer.data(), static_cast<size_t>(n));
  }
}

}  // namespace

IsolatedResult RunIsolated(const std::function<std::string()>& body, int32_t seconds_max) {
  std::array<int, 2> ends;
  if (pipe(ends.data()) != 0) Fail("pipe");
  const pid_t child = fork();
  if (child < 0) Fail("fork");
  if (child == 0) {
    close(ends[0]);
    RunChild(body, ends[1], seconds_max);
  }
  close(ends[1]);
  IsolatedResult result;
  result.output = ReadToEnd(ends[0]);
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    result.signal = WTERMSIG(status);
    result.end =
        result.signal == SIGALRM ? IsolatedResult::End::kTimeout : IsolatedResult::End::kSignal;
  } else if (WEXITSTATUS(status) != 0) {
    result.end = IsolatedResult::End::kSignal;
    result.signal = SIGABRT;
  }
  return result;
}

std::string SignalName(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "SIGSEGV";
    case SIGABRT:
      return "SIGABRT";
    case SIGBUS:
      return "SIGBUS";
    case SIGFPE:
      return "SIGFPE";
    case SIGILL:
      return "SIGILL";
    default:
      return fmt::format("signal {}", signal);
  }
}

}  // namespace lockstep
