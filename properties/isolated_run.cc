#include "properties/isolated_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <new>

#include "caches/error.h"

namespace lockstep {
namespace {

constexpr size_t kOutputBytes = size_t{1} << 20;
constexpr int kThrewStatus = 113;  // arbitrary; `threw` says it is meant

[[noreturn]] void Fail(const char* call) {
  throw Error({call, std::strerror(errno), "the system is out of processes, files or memory"});
}

// What the child tells, in memory that both have. The child may write wildly, so the parent takes
// nothing here for granted; pages without access lie around it.
struct Board {
  std::atomic<uint32_t> returned;  // calls
  std::atomic<uint32_t> threw;
  std::atomic<uint32_t> used;  // bytes of `output`
  std::array<char, kOutputBytes> output;

  // An output is cut to what there is room for.
  void Append(const std::string& text) {
    const uint32_t at = used;
    const auto room = static_cast<uint32_t>(kOutputBytes) - at;
    if (room < sizeof(uint32_t)) return;
    const auto size = static_cast<uint32_t>(std::min<size_t>(text.size(), room - sizeof room));
    std::memcpy(&output[at], &size, sizeof size);
    std::memcpy(&output[at + sizeof size], text.data(), size);
    used = at + static_cast<uint32_t>(sizeof size) + size;
    returned = returned + 1;
  }

  std::vector<std::string> Outputs(int32_t count) const {
    std::vector<std::string> outputs;
    const size_t end = std::min<size_t>(used, kOutputBytes);
    uint32_t size = 0;
    for (size_t at = 0; at + sizeof size <= end && std::ssize(outputs) < count;
         at += sizeof size + size) {
      std::memcpy(&size, &output[at], sizeof size);
      size = static_cast<uint32_t>(std::min<size_t>(size, end - at - sizeof size));
      outputs.emplace_back(&output[at + sizeof size], size);
    }
    return outputs;
  }
};

class SharedBoard {
 public:
  SharedBoard() {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inner = (sizeof(Board) + page - 1) / page * page;
    size_ = inner + 2 * page;
    base_ = mmap(nullptr, size_, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) Fail("mmap");
    void* middle = static_cast<char*>(base_) + page;
    if (mprotect(middle, inner, PROT_READ | PROT_WRITE) != 0) Fail("mprotect");
    board_ = new (middle) Board;
  }
  ~SharedBoard() { munmap(base_, size_); }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;

  Board* operator->() { return board_; }
  Board& operator*() { return *board_; }

 private:
  void* base_ = nullptr;
  size_t size_ = 0;
  Board* board_ = nullptr;
};

// In the child: nothing of the parent may run again, so it leaves by _exit.
[[noreturn]] void RunChild(int32_t count, const std::function<std::string(int32_t)>& body,
                           Board& board, int words) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // What a sanitizer or a test set up would end otherwise than by the signal.
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) signal(number, SIG_DFL);
  const rlimit no_core = {};
  setrlimit(RLIMIT_CORE, &no_core);
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDIN_FILENO);
  dup2(nothing, STDOUT_FILENO);
  close(nothing);
  dup2(words, STDERR_FILENO);
  close(words);
  try {
    for (int32_t i = 0; i < count; ++i) board.Append(body(i));
  } catch (const std::exception& e) {
    board.threw = 1;
    fmt::print(stderr, "{}\n", e.what());
    _exit(kThrewStatus);
  } catch (...) {
    board.threw = 1;
    _exit(kThrewStatus);
  }
  _exit(0);
}

std::string LastWords(int file) {
  std::array<char, 4096> buffer;
  const off_t size = lseek(file, 0, SEEK_END);
  const off_t from = std::max<off_t>(size - static_cast<off_t>(buffer.size()), 0);
  const ssize_t n = pread(file, buffer.data(), buffer.size(), from);
  std::string text(buffer.data(), n > 0 ? static_cast<size_t>(n) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  text.erase(0, text.rfind('\n') + 1);
  text.resize(std::min<size_t>(text.size(), 200));
  for (char& c : text) {
    if (c < ' ') c = '?';  // whatever it is, it is printed
  }
  return text;
}

// True when the child ended by itself. A call that returns begins the time anew.
bool AwaitEnd(pid_t child, const Board& board, int32_t ms_max) {
  // Not pidfd_open: glibc 2.36 declares it for C alone.
  const auto handle = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  if (handle < 0) Fail("pidfd_open");
  bool ended = false;
  for (uint32_t seen = 0;; seen = board.returned) {
    pollfd wait = {.fd = handle, .events = POLLIN, .revents = 0};
    const int ready = poll(&wait, 1, ms_max);
    if (ready < 0 && errno != EINTR) Fail("poll");
    ended = ready > 0;
    if (ended || (ready == 0 && board.returned == seen)) break;
  }
  close(handle);
  return ended;
}

IsolatedEnd EndOf(int status, bool in_time, bool threw, bool complete) {
  using Kind = IsolatedEnd::Kind;
  if (!in_time) return {Kind::kTimeout};
  if (WIFSIGNALED(status)) return {Kind::kSignal, WTERMSIG(status)};
  if (threw && WEXITSTATUS(status) == kThrewStatus) return {Kind::kThrew};
  if (WEXITSTATUS(status) != 0 || !complete) return {Kind::kExit, WEXITSTATUS(status)};
  return {};
}

}  // namespace

std::string IsolatedEnd::Text() const {
  std::string text = "returned";
  if (kind == Kind::kSignal) text = "ended by " + SignalName(number);
  if (kind == Kind::kTimeout) text = "did not return";
  if (kind == Kind::kExit) text = fmt::format("ended the process with status {}", number);
  if (kind == Kind::kThrew) text = "threw an exception";
  return last_words.empty() ? text : text + ", saying: " + last_words;
}

IsolatedBatch RunIsolatedBatch(int32_t count, const std::function<std::string(int32_t)>& body,
                               int32_t ms_max) {
  SharedBoard board;
  const int words = memfd_create("last words", 0);
  if (words < 0) Fail("memfd_create");
  const pid_t child = fork();
  if (child < 0) Fail("fork");
  if (child == 0) RunChild(count, body, *board, words);
  setpgid(child, child);  // here too: whoever comes first
  const bool in_time = AwaitEnd(child, *board, ms_max);
  kill(-child, SIGKILL);
  kill(child, SIGKILL);  // in case it left the group
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  IsolatedBatch batch;
  batch.outputs = board->Outputs(count);
  batch.end = EndOf(status, in_time, board->threw == 1, std::ssize(batch.outputs) == count);
  if (batch.end.kind != IsolatedEnd::Kind::kReturned) batch.end.last_words = LastWords(words);
  close(words);
  return batch;
}

IsolatedCall RunIsolatedCall(const std::function<std::string()>& body, int32_t ms_max) {
  IsolatedBatch batch = RunIsolatedBatch(
      1, [&](int32_t) { return body(); }, ms_max);
  IsolatedCall call{std::move(batch.end), {}};
  if (!batch.outputs.empty()) call.output = std::move(batch.outputs[0]);
  return call;
}

IsolatedResult RunIsolated(const std::function<std::string()>& body, int32_t seconds_max) {
  IsolatedCall call = RunIsolatedCall(body, 1000 * seconds_max);
  IsolatedResult result;
  result.output = std::move(call.output);
  if (call.end.kind == IsolatedEnd::Kind::kReturned) return result;
  const bool timeout = call.end.kind == IsolatedEnd::Kind::kTimeout;
  const bool by_signal = call.end.kind == IsolatedEnd::Kind::kSignal;
  result.end = timeout ? IsolatedResult::End::kTimeout : IsolatedResult::End::kSignal;
  result.signal = by_signal ? call.end.number : timeout ? 0 : SIGABRT;
  return result;
}

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

}  // namespace lockstep
