#include "ci/lockstep/terminal.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "caches/check.h"

namespace lockstep::cli {
namespace {

// What may end or stop a process that waits for its user.
constexpr std::array kSignals = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};

// Of the handler, which can be given nothing.
termios saved_mode;
termios key_mode;

// Only calls that a signal handler may make. The signal itself does its usual work once its handler
// has returned, but for a stop, which has to come back here.
void OnSignal(int number) {
  const int error = errno;
  ::tcsetattr(STDIN_FILENO, TCSANOW, &saved_mode);
  struct sigaction usual = {};
  struct sigaction ours = {};
  usual.sa_handler = SIG_DFL;
  ::sigaction(number, &usual, &ours);
  ::raise(number);
  if (number == SIGTSTP) {
    sigset_t stop;
    sigset_t before;
    ::sigemptyset(&stop);
    ::sigaddset(&stop, SIGTSTP);
    ::sigprocmask(SIG_UNBLOCK, &stop, &before);  // stops here, until somebody continues it
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    ::sigaction(SIGTSTP, &ours, nullptr);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &key_mode);
  }
  errno = error;
}

// The terminal gives single keys and shows none of them, for a lifetime.
class KeyMode {
 public:
  KeyMode() {
    LS_CHECK(::tcgetattr(STDIN_FILENO, &saved_mode) == 0, "standard input is no terminal");
    key_mode = saved_mode;
    key_mode.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    key_mode.c_cc[VMIN] = 1;
    key_mode.c_cc[VTIME] = 0;
    struct sigaction action = {};
    action.sa_handler = OnSignal;
    for (size_t i = 0; i < kSignals.size(); ++i) {
      ::sigaction(kSignals[i], nullptr, &before_[i]);
      // What the one who started us ignores stays ignored.
      if (before_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
    }
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &key_mode);
  }
  ~KeyMode() {
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &saved_mode);
    for (size_t i = 0; i < kSignals.size(); ++i) {
      ::sigaction(kSignals[i], &before_[i], nullptr);
    }
  }
  KeyMode(const KeyMode&) = delete;
  KeyMode& operator=(const KeyMode&) = delete;

 private:
  std::array<struct sigaction, kSignals.size()> before_ = {};
};

std::optional<char> ReadByte() {
  char byte = 0;
  for (;;) {
    const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
    if (n == 1) return byte;
    if (n < 0 && errno == EINTR) continue;
    return std::nullopt;
  }
}

// The rest of a key that sends several bytes comes at once.
void SkipRestOfKey() {
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  constexpr int kMilliseconds = 20;
  while (::poll(&input, 1, kMilliseconds) == 1 && ReadByte()) {
  }
}

}  // namespace

bool HasTerminal() { return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1; }

std::optional<char> ReadKey() {
  std::fflush(stdout);
  const KeyMode mode;
  const auto key = ReadByte();
  constexpr char kEndOfInput = 4;  // the key that ends input where lines are read
  if (key == kEndOfInput) return std::nullopt;
  if (key == kEscape) SkipRestOfKey();
  return key;
}

std::optional<std::string> ReadTerminalLine(std::string_view prompt) {
  fmt::print("{}", prompt);
  std::fflush(stdout);
  std::string line;
  for (;;) {
    const auto byte = ReadByte();
    if (!byte) {
      fmt::print("\n");
      return std::nullopt;
    }
    if (*byte == '\n') break;
    line.push_back(*byte);
  }
  const size_t begin = line.find_first_not_of(" \t\r");
  if (begin == line.npos) return "";
  return line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
}

std::optional<std::string> ReadInputLine() {
  char* line = nullptr;
  size_t room = 0;
  const ssize_t size = ::getline(&line, &room, stdin);
  std::optional<std::string> text;
  if (size >= 0) text.emplace(line, static_cast<size_t>(size));
  std::free(line);
  if (text && text->ends_with('\n')) text->pop_back();
  return text;
}

}  // namespace lockstep::cli
