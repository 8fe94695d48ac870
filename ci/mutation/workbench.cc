#include "ci/mutation/workbench.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <sstream>

#include "caches/error.h"
#include "caches/file_io.h"

namespace lockstep::mutation {
namespace {

namespace fs = std::filesystem;

void WriteText(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  WriteWholeTextFile(path, text);
}

// The last lines of a log, for an error.
std::string Tail(const std::string& log) {
  constexpr size_t kSize = 1500;
  return log.size() <= kSize ? log : "... " + log.substr(log.size() - kSize);
}

std::set<std::string> FilesOf(const std::string& root, const std::string& log) {
  const ProcessEnd end = RunProcess({.argv = {"git", "-c", "core.quotePath=false", "ls-files",
                                              "--cached", "--others", "--exclude-standard"},
                                     .folder = root,
                                     .log = log});
  if (!end.ok()) throw Error({root, "is no git checkout", "give the root of a clone of lockstep"});
  std::set<std::string> files;
  std::istringstream lines(ReadWholeTextFile(log));
  for (std::string line; std::getline(lines, line);) {
    if (fs::is_regular_file(root + "/" + line)) files.insert(line);
  }
  return files;
}

// Writes what differs, so that the build does again only what changed, and removes what is gone.
void CopyFiles(const std::set<std::string>& files, const std::string& from, const std::string& to) {
  std::vector<fs::path> gone;
  fs::create_directories(to);
  for (const auto& entry : fs::recursive_directory_iterator(to)) {
    const std::string file = fs::relative(entry.path(), to).string();
    if (!entry.is_regular_file() || file.starts_with("build/")) continue;
    if (!files.contains(file)) gone.push_back(entry.path());
  }
  for (const fs::path& path : gone) fs::remove(path);
  for (const std::string& file : files) {
    const std::string target = to + "/" + file;
    const std::string text = ReadWholeTextFile(from + "/" + file);
    if (fs::exists(target) && ReadWholeTextFile(target) == text) continue;
    WriteText(target, text);
    fs::permissions(target, fs::status(from + "/" + file).permissions());
  }
}

}  // namespace

Workbench::Workbench(const WorkbenchOptions& options)
    : root_(options.root),
      source_(options.folder + "/tree"),
      build_(source_ + "/build/copy"),
      log_path_(options.folder + "/log") {
  fs::create_directories(options.folder);
  CopyFiles(FilesOf(root_, log_path_), root_, source_);
  ProcessRequest configure{.argv = {"cmake", "-S", source_, "-B", build_, "-G", "Ninja"},
                           .folder = source_,
                           .log = log_path_,
                           .seconds_max = 300};
  configure.argv.insert(configure.argv.end(), options.cmake_arguments.begin(),
                        options.cmake_arguments.end());
  if (!RunProcess(configure).ok()) {
    throw Error({source_, "does not configure: " + Tail(log()), "let the tree build first"});
  }
}

void Workbench::Overwrite(const std::string& file, const std::string& text) {
  WriteText(source_ + "/" + file, text);
}

void Workbench::Restore(const std::string& file) {
  Overwrite(file, ReadWholeTextFile(root_ + "/" + file));
}

Workbench::Built Workbench::Build(const std::vector<std::string>& targets, double seconds_max,
                                  bool relaxed) {
  std::vector<std::string> argv = {"env", "ninja", "-j1"};
  if (relaxed) argv.insert(argv.begin() + 1, "LOCKSTEP_RELAXED=1");
  argv.insert(argv.end(), targets.begin(), targets.end());
  const ProcessEnd end =
      RunProcess({.argv = argv, .folder = build_, .log = log_path_, .seconds_max = seconds_max});
  return {end.ok(), log().find("ninja: no work to do") != std::string::npos, end.seconds};
}

ProcessEnd Workbench::Run(const Check& check, double seconds_max) {
  std::vector<std::string> argv = check.argv;
  argv[0] = build_ + "/" + argv[0];
  if (check.is_gtest) {
    for (const char* flag : {"--gtest_fail_fast", "--gtest_brief=1"}) argv.emplace_back(flag);
  }
  const std::string& folder = check.in_sources ? source_ : build_;
  return RunProcess({.argv = argv, .folder = folder, .log = log_path_, .seconds_max = seconds_max});
}

std::string Workbench::log() const { return ReadWholeTextFile(log_path_); }

}  // namespace lockstep::mutation
