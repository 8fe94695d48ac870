#include "ci/mutation/campaign.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "caches/error.h"
#include "caches/file_io.h"

namespace lockstep::mutation {
namespace {

constexpr double kBuildSecondsMax = 900;
constexpr std::string_view kScripts = "fuzz";  // the check that prints a shrunk script
constexpr std::string_view kLint = "tidy";

// What a campaign asks.
struct Checks {
  std::vector<Check> suite;
  std::vector<Check> reference;  // empty: it is not scored
};

std::vector<std::string> TargetsOf(const Checks& checks) {
  std::vector<std::string> targets;
  for (const std::vector<Check>* list : {&checks.suite, &checks.reference}) {
    for (const Check& check : *list) {
      targets.insert(targets.end(), check.targets.begin(), check.targets.end());
    }
  }
  return targets;
}

// One copy of the tree, and the faults that are planted in it.
class Bench {
 public:
  Bench(const WorkbenchOptions& workbench, const CampaignOptions& options)
      : options_(options), workbench_(workbench) {}

  // Every check that there is.
  std::vector<Check> WholeSuite() const {
    return ReadSuite(workbench_.build_folder() + "/checks.txt");
  }

  // Builds everything and runs every check without a fault, and measures them. The failing check,
  // or nothing.
  std::string Baseline(Checks* checks) {
    Note("building without a fault");
    if (!workbench_.Build(TargetsOf(*checks), 0, false).ok) return "the build: " + workbench_.log();
    for (std::vector<Check>* list : {&checks->suite, &checks->reference}) {
      for (Check& check : *list) {
        Note("without a fault: " + check.name);
        const ProcessEnd end = workbench_.Run(check, 600);
        if (!end.ok()) return check.name + ": " + workbench_.log();
        check.seconds = end.seconds;
      }
    }
    return "";
  }

  // Builds what Baseline of another bench has measured.
  void Prepare(const Checks& checks) {
    if (workbench_.Build(TargetsOf(checks), 0, false).ok) return;
    throw Error({"the copy of the tree", "does not build a second time", workbench_.log()});
  }

  FaultResult Judge(const Planting& planting, const Checks& checks) {
    const Fault& fault = planting.fault;
    result_ = {};
    result_.fault = fault;
    changed_.clear();
    workbench_.Overwrite(fault.edit.file, planting.edited);
    const bool builds = RunSuite(checks.suite);
    if (builds) AskReference(checks.reference);
    if (builds && options_.asks_scripts && HasCheck(checks.suite, kScripts) &&
        fault.edit.file.starts_with("caches/") && result_.script_ops == 0 &&
        result_.check != kScripts) {
      AskScripts(checks.suite);
    }
    workbench_.Restore(fault.edit.file);
    return std::move(result_);
  }

 private:
  enum class Answer { kPasses, kFails, kHangs, kDoesNotBuild };

  void Note(const std::string& text) const {
    if (options_.on_note) options_.on_note(text);
  }

  // Checks that the fault cannot reach, because nothing of them had to be built, pass.
  Answer Ask(const Check& check) {
    const std::string key = fmt::format("{}", fmt::join(check.targets, " "));
    if (!changed_.contains(key)) {
      const Workbench::Built built = workbench_.Build(check.targets, kBuildSecondsMax, true);
      result_.seconds_of_builds += built.seconds;
      if (!built.ok) return Answer::kDoesNotBuild;
      changed_[key] = !built.up_to_date;
    }
    // The lint reads the sources themselves; golden files are none that a fault edits.
    if (!changed_[key] && check.name != kLint) return Answer::kPasses;
    const ProcessEnd end = workbench_.Run(check, options_.seconds_of_patience + 8 * check.seconds);
    seconds_ = end.seconds;
    if (end.ok()) return Answer::kPasses;
    const bool hangs =
        end.kind == ProcessEnd::Kind::kTimeout || end.kind == ProcessEnd::Kind::kMemory;
    return hangs ? Answer::kHangs : Answer::kFails;
  }

  // False when the fault does not build.
  bool RunSuite(const std::vector<Check>& suite) {
    const std::string& catcher = result_.fault.catcher;
    const std::string first = HasCheck(suite, catcher) ? catcher : "";
    bool hung = false;
    for (const Check& check : InOrder(suite, result_.fault.edit.file, first)) {
      seconds_ = 0;
      const Answer answer = Ask(check);
      result_.seconds_of_checks += seconds_;
      hung = hung || answer == Answer::kHangs;
      if (answer == Answer::kDoesNotBuild) {
        result_.verdict = Verdict::kDoesNotBuild;
        return false;
      }
      if (answer != Answer::kFails) continue;
      const Failure failure = ReadFailure(workbench_.log());
      result_.verdict = Verdict::kCaught;
      result_.check = check.name;
      result_.expected = check.name == first;
      result_.test = failure.test;
      result_.script_ops = failure.script_ops;
      return true;
    }
    result_.verdict = hung ? Verdict::kTimedOut : Verdict::kMissed;
    return true;
  }

  void AskReference(const std::vector<Check>& reference) {
    for (const Check& check : reference) {
      if (Ask(check) != Answer::kFails) continue;
      result_.reference_catches = true;
      return;
    }
  }

  void AskScripts(const std::vector<Check>& suite) {
    if (Ask(FindCheck(suite, kScripts)) != Answer::kFails) return;
    result_.script_ops = ReadFailure(workbench_.log()).script_ops;
  }

  const CampaignOptions& options_;
  Workbench workbench_;
  FaultResult result_;
  std::map<std::string, bool> changed_;  // by targets: whether the fault reaches them
  double seconds_ = 0;
};

// Hands out faults to the benches, one thread each.
class Queue {
 public:
  Queue(const std::vector<Planting>& plantings, const CampaignOptions& options,
        CampaignResult* result)
      : plantings_(plantings), options_(options), result_(*result) {
    result_.results.resize(plantings.size());
  }

  void Work(Bench* bench, const Checks& checks, bool is_first) {
    try {
      if (!is_first) bench->Prepare(checks);
      for (size_t i = next_++; i < plantings_.size(); i = next_++) {
        const FaultResult result = bench->Judge(plantings_[i], checks);
        const std::scoped_lock lock(mutex_);
        result_.results[i] = result;
        if (options_.on_result) options_.on_result(result);
      }
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      next_ = plantings_.size();
    }
  }

  void Rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  const std::vector<Planting>& plantings_;
  const CampaignOptions& options_;
  CampaignResult& result_;
  std::atomic<size_t> next_ = 0;
  std::mutex mutex_;
  std::exception_ptr failure_;
};

}  // namespace

std::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kCaught:
      return "caught";
    case Verdict::kMissed:
      return "MISSED";
    case Verdict::kDoesNotBuild:
      return "DOES NOT BUILD";
    case Verdict::kTimedOut:
      return "TIMED OUT";
  }
  return "?";
}

std::vector<Planting> PlantAll(const std::vector<Fault>& faults, const std::string& root) {
  std::vector<Planting> plantings;
  for (const Fault& fault : faults) {
    plantings.push_back(
        {fault, ApplyEdit(fault.edit, ReadWholeTextFile(root + "/" + fault.edit.file))});
  }
  return plantings;
}

CampaignResult RunCampaign(const std::vector<Planting>& plantings, const CampaignOptions& options) {
  const auto jobs = std::min(static_cast<size_t>(std::max(options.jobs, 1)),
                             std::max<size_t>(plantings.size(), 1));
  std::vector<std::unique_ptr<Bench>> benches;
  for (size_t job = 0; job < jobs; ++job) {
    WorkbenchOptions workbench = options.workbench;
    workbench.folder += fmt::format("/{}", job + 1);
    benches.push_back(std::make_unique<Bench>(workbench, options));
  }
  CampaignResult result;
  result.asked_reference = options.asks_reference;
  const std::vector<Check> whole = benches[0]->WholeSuite();
  for (const Planting& planting : plantings) {
    const std::string& catcher = planting.fault.catcher;
    if (!catcher.empty()) FindCheck(whole, catcher);  // throws for an unknown one
  }
  Checks checks{.suite = ChosenChecks(whole, options.checks, options.slow_tests), .reference = {}};
  if (options.asks_reference) checks.reference = ReferenceSuite(whole);
  result.checks_of_suite = whole.size();
  for (const Check& check : checks.suite) result.checks.push_back(check.name);
  result.baseline_failure = benches[0]->Baseline(&checks);
  if (!result.baseline_failure.empty()) return result;
  for (const Check& check : checks.suite) result.seconds_of_suite += check.seconds;

  Queue queue(plantings, options, &result);
  std::vector<std::thread> threads;
  for (size_t job = 1; job < jobs; ++job) {
    threads.emplace_back([&, job] { queue.Work(benches[job].get(), checks, false); });
  }
  queue.Work(benches[0].get(), checks, true);
  for (std::thread& thread : threads) thread.join();
  queue.Rethrow();
  return result;
}

}  // namespace lockstep::mutation
