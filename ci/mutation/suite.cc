#include "ci/mutation/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "caches/error.h"
#include "caches/file_io.h"
#include "properties/script.h"

namespace lockstep::mutation {
namespace {

// A generous budget: the time to detection is what is reported.
std::vector<Check> Commands() {
  return {
      {"fuzz", {"lockstep"}, {"lockstep", "fuzz", "--seconds", "10", "--seed", "1"}},
      {"verify", {"lockstep"}, {"lockstep", "verify"}},
      {"matrix", {"lockstep"}, {"lockstep", "verify", "--matrix"}},
      {"conform",
       {"lockstep", "lockstep_example_contiguous"},
       {"lockstep", "conform", "properties/liblockstep_example_contiguous.so"}},
  };
}

bool IsOperation(std::string_view word) {
  for (int kind = 0; kind < kScriptOpKinds; ++kind) {
    if (word == ScriptOpName(static_cast<ScriptOpKind>(kind))) return true;
  }
  return false;
}

std::string_view FolderOf(std::string_view path) { return path.substr(0, path.find('/')); }

}  // namespace

std::vector<Check> ReadSuite(const std::string& checks_file) {
  std::vector<Check> suite;
  std::istringstream lines(ReadWholeTextFile(checks_file));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const size_t blank = line.find(' ');
    if (blank == line.npos) {
      throw Error({checks_file, fmt::format("'{}' is no target and path", line),
                   "configure the build again"});
    }
    const std::string target = line.substr(0, blank);
    suite.push_back({target, {target}, {line.substr(blank + 1)}, true});
  }
  if (suite.empty())
    throw Error({checks_file, "lists no test", "configure with LOCKSTEP_TESTS=ON"});
  const auto has_lockstep = [](const Check& check) { return check.name == "lockstep_test"; };
  if (std::ranges::any_of(suite, has_lockstep)) {
    for (const Check& command : Commands()) suite.push_back(command);
    suite.push_back({"tidy", {"tidy"}, {"ci/tidy", "."}});
  }
  return suite;
}

std::vector<Check> ReferenceSuite(const std::vector<Check>& suite) {
  std::vector<Check> checks;
  for (const std::string_view catcher :
       {"caches_contract_test:ReferenceSlotTest.*", "oracle_test:*ParityTest.*"}) {
    checks.push_back(FindCheck(suite, catcher));
  }
  return checks;
}

Check FindCheck(const std::vector<Check>& suite, std::string_view catcher) {
  const size_t colon = catcher.find(':');
  const std::string_view name = catcher.substr(0, colon);
  const auto found = std::ranges::find(suite, name, &Check::name);
  if (found == suite.end() || (colon != catcher.npos && !found->is_gtest)) {
    std::string names;
    for (const Check& check : suite) names += (names.empty() ? "" : ", ") + check.name;
    throw Error({std::string(catcher), "is no check", "the checks are " + names});
  }
  Check check = *found;
  if (colon != catcher.npos) {
    check.name = std::string(catcher);
    check.argv.push_back("--gtest_filter=" + std::string(catcher.substr(colon + 1)));
  }
  return check;
}

std::vector<Check> InOrder(const std::vector<Check>& suite, std::string_view file,
                           std::string_view first) {
  std::vector<Check> checks = suite;
  std::ranges::stable_sort(checks, [&](const Check& a, const Check& b) {
    const bool a_near = FolderOf(a.argv[0]) == FolderOf(file);
    const bool b_near = FolderOf(b.argv[0]) == FolderOf(file);
    return a_near != b_near ? a_near : a.seconds < b.seconds;
  });
  if (!first.empty()) checks.insert(checks.begin(), FindCheck(suite, first));
  return checks;
}

Failure ReadFailure(std::string_view log) {
  Failure failure;
  bool in_script = false;
  bool script_seen = false;
  std::istringstream lines{std::string(log)};
  for (std::string line; std::getline(lines, line);) {
    constexpr std::string_view kFailed = "[  FAILED  ] ";
    if (failure.test.empty() && line.starts_with(kFailed)) {
      failure.test = line.substr(kFailed.size());
      failure.test = failure.test.substr(0, failure.test.find_first_of(" ,"));
    }
    if (!script_seen && line.starts_with("cache ") && line.find(" layers=") != line.npos) {
      in_script = script_seen = true;
      continue;
    }
    in_script = in_script && IsOperation(line.substr(0, line.find(' ')));
    failure.script_ops += in_script ? 1 : 0;
  }
  return failure;
}

}  // namespace lockstep::mutation
