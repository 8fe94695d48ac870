#include "ci/lockstep/test_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "caches/check.h"
#include "caches/temporary_folder.h"

namespace lockstep::cli {
namespace {

// Of this process, removed when it ends.
std::string TempPath(std::string_view name) {
  static const TemporaryFolder folder;
  return folder.File(std::string(name));
}

std::string ReadAndRemove(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  unlink(path.c_str());
  return text;
}

std::vector<char*> Pointers(std::vector<std::string>* strings) {
  std::vector<char*> pointers;
  for (std::string& text : *strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

ProcessResult RunLockstepCommand(const std::vector<std::string>& args,
                                 const std::vector<std::string>& environment,
                                 const std::string& out_path) {
  std::vector<std::string> argv = {LOCKSTEP_BINARY};
  argv.insert(argv.end(), args.begin(), args.end());
  std::vector<std::string> env = environment;  // the first of a name wins
  for (char** entry = environ; *entry != nullptr; ++entry) env.emplace_back(*entry);

  const std::string out = out_path.empty() ? TempPath("out") : out_path;
  const std::string err = TempPath("err");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  constexpr int kWrite = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), kWrite, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), kWrite, 0600);
  pid_t child = 0;
  const int failed = posix_spawn(&child, LOCKSTEP_BINARY, &actions, nullptr, Pointers(&argv).data(),
                                 Pointers(&env).data());
  posix_spawn_file_actions_destroy(&actions);
  LS_CHECK(failed == 0, "cannot start {}: error {}", LOCKSTEP_BINARY, failed);

  int status = 0;
  LS_CHECK(waitpid(child, &status, 0) == child, "lost the child process {}", child);
  ProcessResult result;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  if (out_path.empty()) result.out = ReadAndRemove(out);
  result.err = ReadAndRemove(err);
  return result;
}

std::string WriteTestFile(std::string_view name, std::span<const std::byte> bytes) {
  std::string path = TempPath(name);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  LS_CHECK(file.flush().good(), "cannot write {}", path);
  return path;
}

}  // namespace lockstep::cli
