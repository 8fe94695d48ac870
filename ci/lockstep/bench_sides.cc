#include "ci/lockstep/bench_sides.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "caches/error.h"
#include "reports/run_program.h"

namespace lockstep::cli {
namespace {

constexpr int kGitSeconds = 120;
constexpr int kBuildSeconds = 3600;
constexpr const char* kBenchName = "lockstep_bench";

// What it printed, without the newline at its end. Throws Error when it fails.
std::string OutputOf(const std::vector<std::string>& argv, int timeout_seconds,
                     const std::string& remedy) {
  const ProgramEnd end = RunProgram(argv, timeout_seconds);
  if (end.exit_code != 0) {
    std::string line;
    for (const std::string& word : argv) line += (line.empty() ? "" : " ") + word;
    const std::string& said = end.err.empty() ? end.out : end.err;
    throw Error(
        {line,
         fmt::format("failed:\n{}", said.substr(said.size() - std::min<size_t>(said.size(), 2000))),
         remedy});
  }
  return end.out.substr(0, end.out.find_last_not_of('\n') + 1);
}

std::string Git(std::vector<std::string> words) {
  words.insert(words.begin(), "git");
  return OutputOf(words, kGitSeconds, "run it inside lockstep's repository");
}

void ConfigureAndBuild(const std::string& source, const std::string& build) {
  fmt::print(stderr, "building {} in {}\n", kBenchName, build);
  OutputOf({"cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"},
           kBuildSeconds, "run ci/install, or configure it by hand");
  OutputOf({"cmake", "--build", build, "--target", kBenchName}, kBuildSeconds,
           fmt::format("a base without {} can be compared with by its JSON alone", kBenchName));
}

}  // namespace

bool IsResultFile(const std::string& word) {
  return std::filesystem::path(word).extension() == ".json";
}

std::string BenchExecutable(const std::string& word) {
  if (!std::filesystem::is_directory(word)) return word;
  return (std::filesystem::path(word) / kBenchName).string();
}

BuiltBench BuildBench(const std::string& revision) {
  const std::filesystem::path root = Git({"rev-parse", "--show-toplevel"});
  const std::filesystem::path folder = root / "build" / "bench";
  if (revision.empty()) {
    ConfigureAndBuild(root.string(), (folder / "tree").string());
    return {(folder / "tree" / kBenchName).string(),
            Git({"-C", root.string(), "describe", "--always", "--dirty", "--abbrev=40",
                 "--exclude=*"})};
  }
  const std::string commit = Git({"rev-parse", "--verify", revision + "^{commit}"});
  const std::filesystem::path base = folder / commit.substr(0, 12);
  const std::filesystem::path source = base / "source", build = base / "build";
  if (!std::filesystem::exists(source / "CMakeLists.txt")) {
    Git({"-C", root.string(), "worktree", "prune"});
    Git({"-C", root.string(), "worktree", "add", "--detach", "--force", source.string(), commit});
  }
  ConfigureAndBuild(source.string(), build.string());
  return {(build / kBenchName).string(), commit};
}

}  // namespace lockstep::cli
