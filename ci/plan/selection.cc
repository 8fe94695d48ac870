#include "ci/plan/selection.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <functional>
#include <set>

#include "caches/check.h"
#include "caches/error.h"
#include "reports/run_program.h"

namespace lockstep {
namespace {

// Why any part runs whose patterns do not say so: a file that nobody wrote a pattern for.
std::string UnknownFile(const Plan& plan, const std::vector<std::string>& changed) {
  for (const std::string& file : changed) {
    const auto knows = [&](const PlanPart& part) {
      return FirstMatch(part.paths, file) != nullptr;
    };
    if (FirstMatch(plan.ignore, file) == nullptr && std::ranges::none_of(plan.parts, knows))
      return file;
  }
  return {};
}

std::string ReasonToRun(const Plan& plan, const PlanPart& part,
                        const std::vector<std::string>& changed) {
  for (const std::string& file : changed) {
    if (FirstMatch(plan.ignore, file) != nullptr) continue;
    if (part.paths.empty()) return fmt::format("{} changed", file);
    if (const std::string* pattern = FirstMatch(part.paths, file)) {
      return fmt::format("{} matches {}", file, *pattern);
    }
  }
  return {};
}

// What git prints, by NUL.
std::vector<std::string> Git(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "git");
  const ProgramEnd end = RunProgram(arguments, 60);
  if (end.exit_code != 0) {
    throw Error({"git",
                 fmt::format("{} failed: {}", arguments[1], end.err.substr(0, end.err.find('\n'))),
                 "run this in a git repository that has the base, or use --all"});
  }
  const std::string& text = end.out;
  std::vector<std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end_of_word = std::min(text.find('\0', begin), text.size());
    words.push_back(text.substr(begin, end_of_word - begin));
    begin = end_of_word + 1;
  }
  return words;
}

}  // namespace

const std::string* FirstMatch(const std::vector<std::string>& patterns, const std::string& text) {
  const auto found = std::ranges::find_if(patterns, [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
  });
  return found == patterns.end() ? nullptr : &*found;
}

std::vector<Selected> SelectParts(const Plan& plan, std::string_view tier, bool by_diff,
                                  const std::vector<std::string>& changed) {
  const std::string unknown = by_diff ? UnknownFile(plan, changed) : "";
  std::vector<Selected> selected;
  for (const PlanPart& part : plan.parts) {
    if (std::ranges::find(part.tiers, tier) == part.tiers.end()) continue;
    Selected one{.part = &part, .runs = true, .reason = "every part runs"};
    if (by_diff) {
      one.reason = ReasonToRun(plan, part, changed);
      if (one.reason.empty() && !unknown.empty()) {
        one.reason = fmt::format("{} matches no part's paths", unknown);
      }
      one.runs = !one.reason.empty();
      if (!one.runs)
        one.reason = fmt::format("none of {} changed files affects it", changed.size());
    }
    selected.push_back(std::move(one));
  }
  return selected;
}

void KeepPartsOfShard(std::vector<Selected>* parts, int32_t index, int32_t count) {
  LS_CHECK(1 <= index && index <= count, "shard {} of {}", index, count);
  std::vector<const PlanPart*> by_minutes;
  for (const Selected& one : *parts) by_minutes.push_back(one.part);
  std::ranges::stable_sort(by_minutes, std::ranges::greater{}, &PlanPart::minutes);
  std::vector<int32_t> minutes(static_cast<size_t>(count));
  std::set<const PlanPart*> kept;
  for (const PlanPart* part : by_minutes) {
    const auto least = std::ranges::min_element(minutes);
    *least += part->minutes;
    if (least - minutes.begin() == index - 1) kept.insert(part);
  }
  std::erase_if(*parts, [&](const Selected& one) { return !kept.contains(one.part); });
}

std::vector<std::string> ChangedFiles(const std::string& base) {
  std::set<std::string> files;
  const std::vector<std::string> merge_base = Git({"merge-base", "HEAD", base});
  const std::string commit = merge_base.at(0).substr(0, merge_base.at(0).find('\n'));
  // From the root of the repository, wherever this runs.
  for (const std::string& file : Git({"diff", "-z", "--name-only", "--no-renames", commit})) {
    files.insert(file);
  }
  for (const std::string& file :
       Git({"ls-files", "-z", "--others", "--exclude-standard", "--full-name", ":/"})) {
    files.insert(file);
  }
  return {files.begin(), files.end()};
}

std::string HeadCommit() {
  try {
    const std::string line = Git({"rev-parse", "HEAD"}).at(0);
    return line.substr(0, line.find('\n'));
  } catch (const Error&) {
    return {};
  }
}

}  // namespace lockstep
