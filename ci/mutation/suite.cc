#include "ci/mutation/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "caches/error.h"
#include "caches/file_io.h"
#include "properties/script.h"

namespace lockstep::mutation {
namespace {

// Cache scripts get a generous budget, since the time to detection is what is reported; the other
// fuzz targets, which cost as much each, what the gate gives them.
std::vector<Check> Commands() {
  std::vector<Check> commands = {
      {"fuzz", {"lockstep"}, {"lockstep", "fuzz", "--seconds", "10", "--seed", "1"}},
      {"verify", {"lockstep"}, {"lockstep", "verify"}},
      {"matrix", {"lockstep"}, {"lockstep", "verify", "--matrix"}},
      {"conform",
       {"lockstep", "lockstep_example_contiguous"},
       {"lockstep", "conform", "properties/liblockstep_example_contiguous.so"}},
      // What differs stays beside the build, not among the golden files of the copy.
      {.name = "golden",
       .targets = {"lockstep"},
       .argv = {"lockstep", "golden", "check", "--pending-dir", "build/copy/golden-pending"},
       .in_sources = true},
      {.name = "tidy", .targets = {"tidy"}, .argv = {"ci/tidy", "."}, .in_sources = true},
  };
  for (const std::string target : {"engine", "gguf", "tokenizer", "plugin"}) {
    commands.push_back({"fuzz-" + target,
                        {"lockstep"},
                        {"lockstep", "fuzz", "--seconds", "5", "--seed", "1", "--target", target}});
  }
  return commands;
}

// Which checks are a part of ci/lockstep.toml.
struct PartChecks {
  std::string_view part;
  std::vector<std::string> checks;
};
const std::vector<PartChecks>& KnownParts() {
  static const std::vector<PartChecks> kParts = {
      {"tidy", {"tidy"}},
      {"quick-tests", {std::string(kQuickTests)}},
      {"golden", {"golden"}},
      {"verify", {"verify"}},
      {"matrix", {"matrix"}},
      {"scripts", {"fuzz"}},
      {"targets", {"fuzz-engine", "fuzz-gguf", "fuzz-tokenizer", "fuzz-plugin"}}};
  return kParts;
}

bool IsOperation(std::string_view word) {
  for (int kind = 0; kind < kScriptOpKinds; ++kind) {
    if (word == ScriptOpName(static_cast<ScriptOpKind>(kind))) return true;
  }
  return false;
}

// In a filter all that follows the first "-" is left out.
std::string FilterFlag(std::string_view filter, const std::string& left_out) {
  if (left_out.empty()) return fmt::format("--gtest_filter={}", filter);
  return fmt::format("--gtest_filter={}{}{}", filter, filter.find('-') == filter.npos ? '-' : ':',
                     left_out);
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
  if (!HasCheck(suite, catcher)) {
    std::string names;
    for (const Check& check : suite) names += (names.empty() ? "" : ", ") + check.name;
    throw Error({std::string(catcher), "is no check", "the checks are " + names});
  }
  Check check = *found;
  if (colon != catcher.npos) {
    check.name = std::string(catcher);
    check.argv = {check.argv[0], FilterFlag(catcher.substr(colon + 1), check.left_out)};
  }
  return check;
}

std::vector<std::string> ChecksOfTier(const Plan& plan, std::string_view tier) {
  FindTier(plan, tier);  // throws
  std::vector<std::string> names;
  for (const PlanPart& part : plan.parts) {
    if (std::ranges::count(part.tiers, tier) == 0) continue;
    const auto known = std::ranges::find(KnownParts(), part.name, &PartChecks::part);
    if (known == KnownParts().end()) {
      throw Error({fmt::format("tier '{}'", tier),
                   fmt::format("its part '{}' is no check of the suite", part.name),
                   "choose checks by --check, or a tier whose parts are lockstep commands"});
    }
    names.insert(names.end(), known->checks.begin(), known->checks.end());
  }
  return names;
}

std::string ReadSlowTests(const std::string& file) {
  std::string patterns;
  std::istringstream lines(ReadWholeTextFile(file));
  for (std::string line; std::getline(lines, line);) {
    const size_t end = line.find_last_not_of(" \t", line.find('#') - 1);
    if (line.starts_with('#') || end == line.npos) continue;
    patterns += fmt::format("{}{}", patterns.empty() ? "" : ":", line.substr(0, end + 1));
  }
  if (patterns.empty()) throw Error({file, "names no test", "its first lines say what it is for"});
  return patterns;
}

std::vector<Check> ChosenChecks(const std::vector<Check>& suite,
                                const std::vector<std::string>& names,
                                const std::string& slow_tests) {
  if (names.empty()) return suite;
  std::vector<Check> chosen;
  const auto choose = [&chosen](const Check& check) {
    if (std::ranges::find(chosen, check.name, &Check::name) == chosen.end()) {
      chosen.push_back(check);
    }
  };
  for (const std::string& name : names) {
    if (name != kQuickTests) {
      choose(FindCheck(suite, name));
      continue;
    }
    for (Check check : suite) {
      if (!check.is_gtest) continue;
      check.left_out = slow_tests;
      check.argv.push_back(FilterFlag("", slow_tests));
      choose(check);
    }
  }
  return chosen;
}

bool HasCheck(const std::vector<Check>& suite, std::string_view catcher) {
  const size_t colon = catcher.find(':');
  return std::ranges::any_of(suite, [&](const Check& check) {
    return check.name == catcher.substr(0, colon) && (colon == catcher.npos || check.is_gtest);
  });
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
