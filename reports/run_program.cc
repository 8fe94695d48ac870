#include "reports/run_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "caches/error.h"
#include "caches/file_io.h"
#include "engine/stopwatch.h"

namespace lockstep {
namespace {

// In the child: never returns. Only calls that a fork of a process with threads may make.
[[noreturn]] void Execute(char* const* arguments, const char* out, const char* err) {
  setpgid(0, 0);
  const int in_file = open("/dev/null", O_RDONLY);
  const int out_file = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int err_file = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  dup2(in_file, STDIN_FILENO);
  dup2(out_file, STDOUT_FILENO);
  dup2(err_file, STDERR_FILENO);
  execvp(arguments[0], arguments);
  _exit(127);
}

}  // namespace

ProgramEnd RunProgram(const std::vector<std::string>& argv, int timeout_seconds) {
  const TemporaryFolder folder;
  const std::string out = folder.File("out"), err = folder.File("err");
  std::vector<char*> arguments;
  for (const std::string& word : argv) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) Execute(arguments.data(), out.c_str(), err.c_str());
  if (child < 0) throw Error({argv[0], "could not be started", "free some memory or processes"});
  const Stopwatch stopwatch;
  int status = 0;
  bool killed = false;
  // Waiting in steps costs a little time after the end, and none of the program's.
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (!killed && stopwatch.seconds() > timeout_seconds) {
      kill(-child, SIGKILL);
      killed = true;
    }
    usleep(500);
  }
  ProgramEnd end;
  if (!killed && WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
  std::error_code none;
  if (std::filesystem::exists(out, none)) end.out = ReadWholeTextFile(out);
  if (std::filesystem::exists(err, none)) end.err = ReadWholeTextFile(err);
  if (killed) end.err += fmt::format("\nkilled after {} seconds", timeout_seconds);
  if (end.exit_code == 127 && end.err.empty()) {
    throw Error(
        {argv[0], "could not be started", "check that it is an executable of this machine"});
  }
  return end;
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "lockstep_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw Error({name, "the folder cannot be made", "free some space, or set TMPDIR"});
  }
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep
