#include "ci/doc_commands/trial.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "caches/error.h"
#include "caches/file_io.h"
#include "reports/run_process.h"
#include "reports/run_program.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr double kSecondsMax = 120;

std::string EndOf(const ProcessEnd& end) {
  switch (end.kind) {
    case ProcessEnd::Kind::kExited:
      return fmt::format("exit code {}", end.code);
    case ProcessEnd::Kind::kSignal:
      return fmt::format("signal {}", end.code);
    case ProcessEnd::Kind::kTimeout:
      return fmt::format("runs for more than {:g} s", kSecondsMax);
    case ProcessEnd::Kind::kMemory:
      return "takes too much memory";
    case ProcessEnd::Kind::kStopped:
      break;
  }
  return "stopped";
}

}  // namespace

DocScratch::DocScratch(const std::string& folder, const std::string& root, const std::string& bin)
    : folder_(fs::absolute(folder)), bin_(fs::absolute(bin)) {
  try {
    fs::remove_all(folder_);
    fs::create_directories(folder_ + "/build");
    fs::create_directory_symlink(bin_, folder_ + "/build/gate");
    for (const auto& entry : fs::directory_iterator(fs::absolute(root))) {
      const std::string name = entry.path().filename();
      if (name == "build" || name == ".git") continue;
      if (name == "docs") {
        fs::copy(entry.path(), folder_ + "/docs", fs::copy_options::recursive);
      } else {
        fs::create_symlink(entry.path(), folder_ + "/" + name);
      }
    }
  } catch (const fs::filesystem_error& error) {
    throw Error({folder_, error.what(), "name a folder that can be written"});
  }
  const End made =
      Run("git init -q && git -c user.name=reader -c user.email=reader@localhost "
          "commit -q --allow-empty -m 'What a reader has'",
          {});
  if (!made.fault.empty()) {
    throw Error({folder_, "no repository: " + made.fault, "see " + made.log});
  }
}

DocScratch::End DocScratch::Run(const std::string& line, const DocRule& rule) const {
  const std::string path = std::getenv("PATH") == nullptr ? "/usr/bin:/bin" : std::getenv("PATH");
  End end{.log = folder_ + "/last.log"};
  const ProcessEnd process =
      RunProcess({.argv = {"env", fmt::format("PATH={}:{}", bin_, path), "bash", "--noprofile",
                           "--norc", "-eo", "pipefail", "-c", line},
                  .folder = folder_,
                  .log = end.log,
                  .seconds_max = kSecondsMax});
  end.seconds = process.seconds;
  const bool exited = process.kind == ProcessEnd::Kind::kExited;
  if (!exited || process.code != rule.exit_code) {
    end.fault = EndOf(process);
    if (exited) end.fault += fmt::format(" instead of {}", rule.exit_code);
  } else if (!rule.prints.empty() &&
             ReadWholeTextFile(end.log).find(rule.prints) == std::string::npos) {
    end.fault = fmt::format("does not print '{}'", rule.prints);
  }
  return end;
}

std::map<std::string, std::string> TestCommands(const std::string& bin) {
  const ProgramEnd listed =
      RunProgram({"ctest", "--test-dir", bin, "--show-only=json-v1"}, /*timeout_seconds=*/60);
  std::map<std::string, std::string> commands;
  try {
    const auto list = nlohmann::json::parse(listed.out);
    for (const auto& test : list.at("tests")) {
      std::string& command = commands[test.at("name").get<std::string>()];
      if (!test.contains("command")) continue;
      for (const auto& word : test.at("command")) command += word.get<std::string>() + " ";
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error({bin, fmt::format("ctest does not list its tests: {}", error.what()),
                 "name a build folder with tests"});
  }
  return commands;
}

}  // namespace lockstep
