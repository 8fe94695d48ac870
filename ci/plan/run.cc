#include "ci/plan/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "caches/error.h"
#include "caches/file_io.h"
#include "engine/stopwatch.h"
#include "reports/run_process.h"

namespace lockstep {
namespace {

void ReplaceAll(std::string* text, std::string_view from, std::string_view to) {
  for (size_t at = text->find(from); at != text->npos; at = text->find(from, at + to.size())) {
    text->replace(at, from.size(), to);
  }
}

// The last line that says something, without the command that repeats it and the digest.
std::string LastLine(const std::string& log) {
  std::string last;
  for (size_t begin = 0; begin < log.size();) {
    const size_t end = std::min(log.find('\n', begin), log.size());
    const std::string line = log.substr(begin, end - begin);
    begin = end + 1;
    const bool tells = line.find_first_not_of(" \t\r") != line.npos &&
                       !line.starts_with("repeat: ") && !line.starts_with("digest ");
    if (tells) last = line;
  }
  constexpr size_t kLongest = 160;
  return last.size() > kLongest ? last.substr(0, kLongest - 3) + "..." : last;
}

// What a run of ctest lists as "Skipped", "Not Run" or "Disabled", but for what may be.
std::string UnexpectedlySkipped(const std::string& log, const std::vector<std::string>& may_skip) {
  static const std::regex line(R"(\d+ - (.+) \((Skipped|Not Run|Disabled)\))");
  std::string names;
  int32_t count = 0;
  for (auto it = std::sregex_iterator(log.begin(), log.end(), line); it != std::sregex_iterator();
       ++it) {
    const std::string name = (*it)[1];
    if (FirstMatch(may_skip, name) != nullptr) continue;
    constexpr int32_t kNamed = 5;
    if (++count <= kNamed) names += (names.empty() ? "" : ", ") + name;
  }
  return names.empty() ? "" : fmt::format("skipped {} tests that may not be: {}", count, names);
}

// How a part ended, with the proof that it owes.
void Judge(const ProcessEnd& end, const PlanPart& part, const std::string& log,
           PartResult* result) {
  const std::string last = LastLine(log);
  const std::string told = last.empty() ? "" : ": " + last;
  result->verdict = PartVerdict::kInconclusive;
  switch (end.kind) {
    case ProcessEnd::Kind::kTimeout:
      result->what = fmt::format("passed its limit of {:.0f} s{}", end.seconds, told);
      return;
    case ProcessEnd::Kind::kMemory:
      result->what = "took too much memory" + told;
      return;
    case ProcessEnd::Kind::kStopped:
      result->verdict = PartVerdict::kNotRun;
      result->what = "interrupted" + told;
      return;
    case ProcessEnd::Kind::kSignal:
      result->verdict = PartVerdict::kFailed;
      result->what = fmt::format("ended by signal {}{}", end.code, told);
      return;
    case ProcessEnd::Kind::kExited:
      break;
  }
  if (end.code == 0 && log.find(part.proof) != log.npos) {
    result->verdict = PartVerdict::kHolds;
    result->what = last;
    const std::string skipped =
        part.may_skip ? UnexpectedlySkipped(log, *part.may_skip) : std::string();
    if (skipped.empty()) return;
    result->verdict = PartVerdict::kInconclusive;
    result->what = skipped;
  } else if (end.code == 0) {
    result->what = fmt::format("exit code 0, but it did not print '{}'{}", part.proof, told);
  } else {
    constexpr int kInconclusiveCode = 3;
    if (end.code != kInconclusiveCode) result->verdict = PartVerdict::kFailed;
    result->what = fmt::format("exit code {}{}", end.code, told);
  }
}

PartResult RunPart(const PlanPart& part, const RunPlanOptions& options, double seconds_left) {
  const std::string folder = options.folder + "/" + part.name;
  PartResult result{
      .name = part.name, .what = {}, .reason = {}, .command = part.run, .log = folder + "/log"};
  ReplaceAll(&result.command, "{seed}", options.seed);
  ReplaceAll(&result.command, "{out}", folder);
  ReplaceAll(&result.command, "{bin}", options.bin);
  const Stopwatch watch;
  try {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    const ProcessEnd end =
        RunProcess({.argv = {"/bin/sh", "-c", "PATH=\"$1:$PATH\"; export PATH; " + result.command,
                             "sh", options.bin},
                    .folder = ".",
                    .log = result.log,
                    .seconds_max = std::min(60.0 * part.minutes, seconds_left),
                    .bytes_max = 0,
                    .on_wait = options.on_wait});
    Judge(end, part, ReadWholeTextFile(result.log), &result);
  } catch (const std::exception& error) {
    result.verdict = PartVerdict::kInconclusive;
    result.what = error.what();
  }
  result.seconds = watch.seconds();
  return result;
}

}  // namespace

std::string_view PartVerdictName(PartVerdict verdict) {
  switch (verdict) {
    case PartVerdict::kHolds:
      return "holds";
    case PartVerdict::kUnaffected:
      return "unaffected";
    case PartVerdict::kInconclusive:
      return "INCONCLUSIVE";
    case PartVerdict::kNotRun:
      return "NOT RUN";
    case PartVerdict::kFailed:
      return "FAILED";
  }
  return "";
}

bool PlanResult::Has(PartVerdict wanted) const {
  return std::ranges::find(parts, wanted, &PartResult::verdict) != parts.end();
}

PartVerdict PlanResult::verdict() const {
  if (Has(PartVerdict::kFailed)) return PartVerdict::kFailed;
  const bool open =
      parts.empty() || interrupted || Has(PartVerdict::kInconclusive) || Has(PartVerdict::kNotRun);
  return open ? PartVerdict::kInconclusive : PartVerdict::kHolds;
}

PlanResult RunPlan(const std::vector<Selected>& parts, const RunPlanOptions& options) {
  PlanResult plan;
  const Stopwatch watch;
  for (const Selected& selected : parts) {
    PartResult result{.name = selected.part->name,
                      .verdict = PartVerdict::kUnaffected,
                      .what = selected.reason,
                      .reason = {},
                      .command = {},
                      .log = {}};
    const double seconds_left = options.seconds_max - watch.seconds();
    if (selected.runs && plan.interrupted) {
      result.verdict = PartVerdict::kNotRun;
      result.what = "interrupted before";
    } else if (selected.runs && seconds_left <= 0) {
      result.verdict = PartVerdict::kNotRun;
      result.what = fmt::format("the tier's {:.0f} s had passed", options.seconds_max);
    } else if (selected.runs) {
      if (options.on_start) options.on_start(selected);
      result = RunPart(*selected.part, options, seconds_left);
      plan.interrupted = result.verdict == PartVerdict::kNotRun;
    }
    result.reason = selected.reason;
    if (options.on_result) options.on_result(result);
    plan.parts.push_back(std::move(result));
  }
  plan.seconds = watch.seconds();
  return plan;
}

}  // namespace lockstep
