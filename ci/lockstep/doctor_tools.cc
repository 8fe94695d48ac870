#include "ci/lockstep/doctor_tools.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "reports/run_process.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kBuilds = "ci/install";
constexpr std::string_view kLints = "ci/install --lint";
constexpr std::string_view kPages = "ci/install --pages";
constexpr std::string_view kNvcc = "nvcc";

constexpr Tool kTools[] = {
    {"g++", "g++", kBuilds},
    {"clang++", "clang", kBuilds},
    {"cmake", "cmake", kBuilds},
    {"ninja", "ninja-build", kBuilds},
    {"git", "git", kBuilds},
    {"valgrind", "valgrind", kBuilds},
    {"parallel", "parallel", kBuilds},
#if defined(__x86_64__)
    {"aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu", kBuilds},
    {"qemu-aarch64", "qemu-user", kBuilds},
#endif
    {"clang-format", "clang-format", kLints},
    {"clang-tidy", "clang-tidy", kLints},
    {"shellcheck", "shellcheck", kLints},
    {"chromium", "chromium", kPages},
    {"node", "nodejs", kPages},
    {"npm", "npm", kPages},
    {kNvcc, "", "the CUDA Toolkit, 12.0 or later, with nvcc in PATH or CUDA_PATH"},
};

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The first program of that name in a list of folders; empty when there is none.
std::string FindProgram(std::string_view name, std::string_view folders) {
  while (!folders.empty()) {
    const size_t colon = std::min(folders.find(':'), folders.size());
    const std::string folder(folders.substr(0, colon));
    folders.remove_prefix(std::min(colon + 1, folders.size()));
    if (folder.empty()) continue;
    std::string path = folder + "/" + std::string(name);
    std::error_code error;
    if (std::filesystem::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0) {
      return path;
    }
  }
  return {};
}

// The first number with a dot in it, else the first number: "aarch64-linux-gnu-g++ (Debian
// 12.2.0-14) 12.2.0" has 12.2.0, "GNU parallel 20221122" 20221122.
std::string VersionIn(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  std::string first;
  for (size_t at = text.find_first_of(kDigits); at != std::string_view::npos;) {
    size_t end = std::min(text.find_first_not_of("0123456789.", at), text.size());
    std::string_view number = text.substr(at, end - at);
    while (number.ends_with('.')) number.remove_suffix(1);
    if (number.find('.') != std::string_view::npos) return std::string(number);
    if (first.empty()) first = number;
    at = text.find_first_of(kDigits, end);
  }
  return first;
}

void AskVersion(FoundTool* found, double seconds_max) {
  const TemporaryFolder folder;
  const std::string log = folder.File("log");
  ProcessEnd end;
  try {
    end = RunProcess({.argv = {found->path, "--version"},
                      .folder = folder.path().string(),
                      .log = log,
                      .seconds_max = seconds_max});
  } catch (const Error& error) {
    found->fault = error.what();
    return;
  }
  if (end.kind == ProcessEnd::Kind::kTimeout) {
    found->fault = fmt::format("no answer in {:g} s", seconds_max);
  } else if (end.kind != ProcessEnd::Kind::kExited) {
    found->fault = "it crashes";
  } else if (end.code != 0) {
    found->fault = fmt::format("exit code {}", end.code);
  } else {
    found->version = VersionIn(ReadWholeTextFile(log));
    if (found->version.empty()) found->fault = "it prints no number";
  }
}

}  // namespace

std::span<const Tool> KnownTools() { return kTools; }

ToolSearch SearchOfThisProcess() {
  constexpr std::string_view kPrefix = "/usr/local";
  const std::string cuda = Variable("CUDA_PATH");
  std::string folders = cuda.empty() ? "" : cuda + "/bin:";
  folders += fmt::format("{0}/bin:{0}/cuda/bin", kPrefix);
  return {.path = Variable("PATH"), .cuda_folders = std::move(folders)};
}

std::vector<FoundTool> FindTools(const ToolSearch& search) {
  std::vector<FoundTool> tools;
  for (const Tool& tool : KnownTools()) {
    FoundTool found{.tool = tool, .path = FindProgram(tool.name, search.path)};
    if (found.path.empty() && tool.name == kNvcc) {
      found.path = FindProgram(tool.name, search.cuda_folders);
    }
    if (!found.path.empty()) AskVersion(&found, search.seconds_max);
    tools.push_back(std::move(found));
  }
  return tools;
}

std::string ToolsText(std::span<const FoundTool> tools) {
  std::string text;
  for (const FoundTool& found : tools) {
    if (found.path.empty()) continue;
    text += text.empty() ? "" : ", ";
    text += found.fault.empty()
                ? fmt::format("{} {}", found.tool.name, found.version)
                : fmt::format("{} (does not tell its version: {})", found.tool.name, found.fault);
  }
  return text.empty() ? "none" : text;
}

std::vector<std::string> LackingTexts(std::span<const FoundTool> tools) {
  std::vector<std::string_view> groups;
  std::vector<std::string> names;  // of each group
  for (const FoundTool& found : tools) {
    if (!found.path.empty()) continue;
    const auto known = std::ranges::find(groups, found.tool.get);
    if (known == groups.end()) {
      groups.push_back(found.tool.get);
      names.emplace_back(found.tool.name);
    } else {
      names[static_cast<size_t>(known - groups.begin())] += fmt::format(", {}", found.tool.name);
    }
  }
  std::vector<std::string> texts;
  for (size_t i = 0; i < groups.size(); ++i) {
    texts.push_back(fmt::format("{}: {}", names[i], groups[i]));
  }
  return texts;
}

}  // namespace lockstep::cli
