#include "reports/run_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "caches/error.h"
#include "engine/stopwatch.h"

namespace lockstep {
namespace {

// Resident bytes of every process of the group.
double BytesOfGroup(pid_t group) {
  double pages = 0;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", failed)) {
    const std::string name = entry.path().filename().string();
    if (name.empty() || name[0] < '0' || name[0] > '9') continue;
    std::ifstream file(entry.path() / "stat");
    std::string line;
    std::getline(file, line);
    const size_t after_name = line.rfind(')');
    if (after_name == line.npos) continue;  // it ended meanwhile
    char state = 0;
    int parent = 0;
    int its_group = 0;
    const char* rest = line.c_str() + after_name + 1;
    if (std::sscanf(rest, " %c %d %d", &state, &parent, &its_group) != 3 || its_group != group) {
      continue;
    }
    std::ifstream memory(entry.path() / "statm");
    double size = 0;
    double resident = 0;
    if (memory >> size >> resident) pages += resident;
  }
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

pid_t Start(const ProcessRequest& request) {
  std::vector<std::string> strings = request.argv;
  std::vector<char*> argv;
  for (std::string& text : strings) argv.push_back(text.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, request.log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (request.errors.empty()) {
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, request.errors.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
  }
  posix_spawn_file_actions_addchdir_np(&actions, request.folder.c_str());
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // Signals as at a program's start: a shell's background jobs ignore some, and so would tests.
  sigset_t all;
  sigfillset(&all);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) {
    throw Error({request.argv[0], std::strerror(failed), "it has to be installed or built"});
  }
  return child;
}

}  // namespace

ProcessEnd RunProcess(const ProcessRequest& request) {
  const Stopwatch watch;
  const pid_t child = Start(request);
  ProcessEnd end;
  int status = 0;
  bool killed = false;
  for (int round = 1; waitpid(child, &status, WNOHANG) == 0; ++round) {
    const bool late = request.seconds_max > 0 && watch.seconds() > request.seconds_max;
    const bool large =
        request.bytes_max > 0 && round % 20 == 0 && BytesOfGroup(child) > request.bytes_max;
    const bool stopped = request.on_wait && !request.on_wait(watch.seconds());
    if (late || large || stopped) {
      end.kind = late    ? ProcessEnd::Kind::kTimeout
                 : large ? ProcessEnd::Kind::kMemory
                         : ProcessEnd::Kind::kStopped;
      killed = true;
      kill(-child, SIGKILL);
      waitpid(child, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kill(-child, SIGKILL);  // what it left behind
  end.seconds = watch.seconds();
  if (killed) return end;
  end.kind = WIFSIGNALED(status) ? ProcessEnd::Kind::kSignal : ProcessEnd::Kind::kExited;
  end.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  return end;
}

}  // namespace lockstep
