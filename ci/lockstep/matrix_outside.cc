#include "ci/lockstep/matrix_outside.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "caches/error.h"
#include "caches/file_io.h"

namespace lockstep::cli {
namespace {

// This binary, as the system knows it.
constexpr const char* kSelf = "/proc/self/exe";

// `given`, or the first of these beside the binary that exists; else empty.
std::string FindBeside(const std::string& given, std::initializer_list<const char*> names) {
  if (!given.empty()) return given;
  std::error_code error;
  const auto folder = std::filesystem::read_symlink(kSelf, error).parent_path();
  for (const char* name : names) {
    const auto path = folder / name;
    if (std::filesystem::is_regular_file(path, error)) return path.string();
  }
  return "";
}

// What this build computes for the probe. Which table does not matter: the matrix compares them.
const std::vector<DigestLine>& ProbeLines() {
  static const std::vector<DigestLine> lines = [] {
    const KernelTable* best = AvailableKernels().back();
    return LinesOfPresets({&best, 1});
  }();
  return lines;
}

OutsideDigests ParseCompilerRow(const std::string& where, const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("compiler") || !json.contains("lines")) {
    throw Error({where, "is no row of ci/compilers", "run ci/compilers again"});
  }
  try {
    OutsideDigests row{.axis = MatrixAxis::kCompiler};
    row.value = fmt::format("{} {}", json.at("compiler").get<std::string>(),
                            json.at("flags").get<std::string>());
    row.control = json.at("control").get<bool>();
    for (const auto& line : json.at("lines")) {
      const auto parsed = ParseDigestLines(where, line.get<std::string>());
      row.lines.insert(row.lines.end(), parsed.begin(), parsed.end());
    }
    row.expected = ProbeLines();
    return row;
  } catch (const nlohmann::json::exception& error) {
    throw Error({where, error.what(), "run ci/compilers again"});
  }
}

class Pipe {
 public:
  Pipe() {
    if (pipe(ends_.data()) != 0) throw Error({"second process", "no pipe is left", ""});
  }
  ~Pipe() {
    close(ends_[0]);
    CloseWriteEnd();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void CloseWriteEnd() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  std::array<int, 2> ends_ = {-1, -1};
};

std::vector<char*> Pointers(std::vector<std::string>* strings) {
  std::vector<char*> pointers;
  for (std::string& text : *strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string ReadAll(int from) {
  std::string text;
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t count = read(from, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer.data(), static_cast<size_t>(count));
  }
}

}  // namespace

std::vector<OutsideDigests> CompilerRows(const std::string& path) {
  const std::string file = FindBeside(path, {"compilers/table.json", "../compilers/table.json"});
  if (file.empty()) {
    return {{.axis = MatrixAxis::kCompiler, .value = "any", .unavailable = "run ci/compilers"}};
  }
  std::vector<OutsideDigests> rows;
  std::string_view text_left;
  const std::string text = ReadWholeTextFile(file);
  text_left = text;
  for (int number = 1; !text_left.empty(); ++number) {
    const std::string line(text_left.substr(0, text_left.find('\n')));
    text_left.remove_prefix(std::min(text_left.size(), line.size() + 1));
    rows.push_back(ParseCompilerRow(fmt::format("{}, line {}", file, number), line));
  }
  return rows;
}

std::vector<OutsideDigests> Aarch64Rows(const std::string& path) {
  const std::string file = FindBeside(path, {"aarch64/probe.aarch64", "../aarch64/probe.aarch64"});
  if (file.empty()) {
    return {{.axis = MatrixAxis::kIsa, .value = "aarch64", .unavailable = "run ci/aarch64"}};
  }
  std::map<std::string, std::vector<DigestLine>> by_kernels;
  for (DigestLine& line : ParseDigestLines(file, ReadWholeTextFile(file))) {
    by_kernels[line.kernels].push_back(line);
  }
  std::vector<OutsideDigests> rows;
  for (auto& [kernels, lines] : by_kernels) {
    rows.push_back({.axis = MatrixAxis::kIsa,
                    .value = "aarch64 " + kernels,
                    .lines = std::move(lines),
                    .expected = ProbeLines()});
  }
  if (rows.empty()) throw Error({file, "has no digest", "run ci/aarch64 again"});
  return rows;
}

std::vector<DigestLine> LinesHere(const std::vector<MatrixModel>& models,
                                  std::span<const KernelTable* const> kernels,
                                  std::span<const CacheSpec> caches) {
  std::vector<DigestLine> lines;
  for (const MatrixModel& model : models) {
    std::string name = model.name;  // a line is cut at blanks
    std::ranges::replace(name, ' ', '-');
    for (const CacheSpec& cache : caches) {
      if (!Misfit(cache, model.model->config().geometry(1)).empty()) continue;
      for (const KernelTable* table : kernels) {
        lines.push_back(LineOf(name, model.model, *table, cache, model.adapters));
      }
    }
  }
  return lines;
}

std::string OutputOfSecondProcess(const std::vector<std::string>& args, bool other_memory) {
  std::vector<std::string> argv = {kSelf};
  argv.insert(argv.end(), args.begin(), args.end());
  std::vector<std::string> env;
  if (other_memory) {
    env.emplace_back("MALLOC_PERTURB_=165");  // glibc: what fresh memory is filled with
    env.emplace_back("LOCKSTEP_PADDING=" + std::string(12345, 'x'));
  }
  for (char** entry = environ; *entry != nullptr; ++entry) env.emplace_back(*entry);

  Pipe pipe;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe.write_end(), STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, pipe.read_end());
  pid_t child = 0;
  const int failed =
      posix_spawn(&child, kSelf, &actions, nullptr, Pointers(&argv).data(), Pointers(&env).data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw Error({"second process", "lockstep cannot start itself", ""});
  pipe.CloseWriteEnd();
  std::string text = ReadAll(pipe.read_end());
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw Error({"second process", fmt::format("lockstep ended with status {}", status), ""});
  }
  return text;
}

}  // namespace lockstep::cli
