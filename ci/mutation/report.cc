#include "ci/mutation/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "caches/check.h"

namespace lockstep::mutation {
namespace {

void CountDetection(const FaultResult& result, Score* score, std::vector<double>* seconds) {
  score->expected += result.expected ? 1 : 0;
  score->by_reference += result.reference_catches ? 1 : 0;
  score->scripts += result.script_ops > 0 ? 1 : 0;
  score->scripts_to_6_ops += result.script_ops > 0 && result.script_ops <= 6 ? 1 : 0;
  if (result.verdict == Verdict::kCaught) {
    ++score->caught;
    seconds->push_back(result.seconds_of_checks);
  }
  score->timed_out += result.verdict == Verdict::kTimedOut ? 1 : 0;
}

void FinishSeconds(std::vector<double>* seconds, Score* score) {
  if (seconds->empty()) return;
  std::ranges::sort(*seconds);
  score->seconds_median = (*seconds)[seconds->size() / 2];
  score->seconds_max = seconds->back();
}

std::string Percent(int part, int whole) {
  return whole == 0 ? "-" : fmt::format("{:.0f} %", 100.0 * part / whole);
}

// "7 of 48 checks of the suite: tidy, golden, ..."; of all there is no more to say than that.
std::string ChecksText(const CampaignResult& campaign) {
  if (campaign.checks.size() == campaign.checks_of_suite) {
    return fmt::format("all {} checks of the suite", campaign.checks_of_suite);
  }
  return fmt::format("{} of {} checks of the suite: {}", campaign.checks.size(),
                     campaign.checks_of_suite, fmt::join(campaign.checks, ", "));
}

std::string Operations(const FaultResult& result) {
  return result.script_ops > 0 ? fmt::format("{}", result.script_ops) : "";
}

}  // namespace

std::string ResultLine(const FaultResult& result) {
  const std::string by =
      result.check.empty()
          ? ""
          : fmt::format(" by {}{}{}", result.check, result.test.empty() ? "" : " ", result.test);
  return fmt::format("{:<14} {:<4} {}{} ({:.1f} s of checks, {:.1f} s of builds{}{})",
                     VerdictName(result.verdict), result.fault.class_name, result.fault.name, by,
                     result.seconds_of_checks, result.seconds_of_builds,
                     result.script_ops > 0 ? fmt::format(", {} operations", result.script_ops) : "",
                     result.reference_catches ? ", reference catches it" : "");
}

Score ScoreOf(const std::vector<FaultResult>& faults) {
  Score score;
  std::vector<double> seconds;
  for (const FaultResult& result : faults) {
    ++score.total;
    score.does_not_build += result.verdict == Verdict::kDoesNotBuild ? 1 : 0;
    CountDetection(result, &score, &seconds);
  }
  FinishSeconds(&seconds, &score);
  return score;
}

const EquivalentMutant* FindEquivalent(const Fault& mutant,
                                       const std::vector<EquivalentMutant>& list) {
  for (const EquivalentMutant& entry : list) {
    if (entry.file == mutant.edit.file && entry.line == mutant.edit.before &&
        entry.after == mutant.edit.after) {
      return &entry;
    }
  }
  return nullptr;
}

Score ScoreOfMutants(const std::vector<FaultResult>& mutants,
                     const std::vector<EquivalentMutant>& equivalent) {
  Score score;
  std::vector<double> seconds;
  for (const FaultResult& result : mutants) {
    if (result.verdict == Verdict::kDoesNotBuild) {
      ++score.does_not_build;
    } else if (result.verdict == Verdict::kMissed &&
               FindEquivalent(result.fault, equivalent) != nullptr) {
      ++score.equivalent;
    } else {
      ++score.total;
      CountDetection(result, &score, &seconds);
    }
  }
  FinishSeconds(&seconds, &score);
  return score;
}

Table FaultTable(const std::vector<FaultResult>& results) {
  Table table{.header = {"fault", "class", "stands for", "what it makes wrong", "verdict",
                         "caught by", "seconds", "script", "reference"}};
  for (const FaultResult& r : results) {
    std::string by = r.check;
    if (!r.test.empty() && by.find(':') == by.npos) by += ": " + r.test;
    table.rows.push_back({r.fault.name, r.fault.class_name, r.fault.stands_for, r.fault.says,
                          std::string(VerdictName(r.verdict)), by,
                          fmt::format("{:.1f}", r.seconds_of_checks), Operations(r),
                          r.reference_catches ? "caught" : "missed"});
  }
  return table;
}

Table MutantTable(const std::vector<FaultResult>& results,
                  const std::vector<EquivalentMutant>& equivalent) {
  Table table{.header = {"mutant", "operator", "what changes", "verdict", "caught by"}};
  for (const FaultResult& r : results) {
    if (r.verdict == Verdict::kDoesNotBuild) continue;
    std::string by = r.test.empty() ? r.check : fmt::format("{}: {}", r.check, r.test);
    const EquivalentMutant* known = FindEquivalent(r.fault, equivalent);
    if (r.verdict == Verdict::kMissed && known != nullptr) by = "equivalent: " + known->why;
    table.rows.push_back(
        {r.fault.name, r.fault.class_name, r.fault.says, std::string(VerdictName(r.verdict)), by});
  }
  return table;
}

Table ClassTable(const std::vector<FaultResult>& results) {
  Table table{.header = {"class", "faults", "caught", "by the reference's suite"}};
  for (const FaultClass& known : FaultClasses()) {
    std::vector<FaultResult> its;
    for (const FaultResult& result : results) {
      if (result.fault.class_name == known.name) its.push_back(result);
    }
    if (its.empty()) continue;
    const Score score = ScoreOf(its);
    table.rows.push_back({fmt::format("{} {}", known.name, known.meaning),
                          fmt::format("{}", score.total), fmt::format("{}", score.caught),
                          fmt::format("{}", score.by_reference)});
  }
  return table;
}

std::string ScoreText(const Score& score, const CampaignResult& campaign) {
  std::string text = fmt::format(
      "{} of {} caught ({}), {} timed out, {} do not build\n{}\n"
      "checks until caught: median {:.1f} s, longest {:.1f} s; all of them without a fault: "
      "{:.0f} s on one core\n",
      score.caught, score.total, Percent(score.caught, score.total), score.timed_out,
      score.does_not_build, ChecksText(campaign), score.seconds_median, score.seconds_max,
      campaign.seconds_of_suite);
  if (campaign.asked_reference) {
    text += fmt::format("the reference's suite catches {} ({})\n", score.by_reference,
                        Percent(score.by_reference, score.total));
  }
  if (score.equivalent > 0) {
    text += fmt::format("{} more are equivalent, see properties/faults/equivalent.toml\n",
                        score.equivalent);
  }
  if (score.scripts > 0) {
    text += fmt::format(
        "{} found by cache scripts, {} of them ({}) shrunk to at most 6 operations\n",
        score.scripts, score.scripts_to_6_ops, Percent(score.scripts_to_6_ops, score.scripts));
  }
  return text;
}

std::string ResultsJson(const std::vector<FaultResult>& results) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const FaultResult& r : results) {
    json.push_back({{"name", r.fault.name},
                    {"class", r.fault.class_name},
                    {"stands_for", r.fault.stands_for},
                    {"file", r.fault.edit.file},
                    {"before", r.fault.edit.before},
                    {"after", r.fault.edit.after},
                    {"verdict", VerdictName(r.verdict)},
                    {"check", r.check},
                    {"expected_catcher", r.fault.catcher},
                    {"test", r.test},
                    {"seconds_of_checks", r.seconds_of_checks},
                    {"seconds_of_builds", r.seconds_of_builds},
                    {"script_operations", r.script_ops},
                    {"reference_catches", r.reference_catches}});
  }
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::mutation
