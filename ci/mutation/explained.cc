#include "ci/mutation/explained.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "caches/error.h"
#include "caches/file_io.h"

namespace lockstep::mutation {
namespace {

constexpr double kBuildSecondsMax = 1800;
constexpr double kExplainSecondsMax = 180;
constexpr double kCaseSecondsMax = 10;

std::string PlaceOf(std::string_view layer, std::string_view stage) {
  return layer.empty() ? std::string(stage) : fmt::format("layer {}, {}", layer, stage);
}

// The fact without what stands behind '@' or '[': "gate" of any cache.
std::string PlaceIn(const nlohmann::json& first) {
  const std::string fact = first["fact"];
  const std::string layer =
      first.contains("layer") ? fmt::format("{}", first["layer"].get<int>()) : "";
  return PlaceOf(layer, fact.substr(0, fact.find_first_of("@[")));
}

std::string MostNamed(const std::map<std::string, int>& counts) {
  const auto most =
      std::ranges::max_element(counts, {}, [](const auto& named) { return named.second; });
  return most == counts.end() ? "" : most->first;
}

// What one call printed, behind what it said of cases that it cannot run.
std::optional<nlohmann::json> ExplanationsIn(const std::string& output) {
  const size_t begin = output.find('{');
  if (begin == output.npos) return std::nullopt;
  const auto json = nlohmann::json::parse(output.substr(begin), nullptr, false);
  if (!json.is_object() || !json.contains("explanations")) return std::nullopt;
  return json["explanations"];
}

std::vector<std::string> CasesOf(const std::string& root) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(root + "/golden/cases")) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

// All that `lockstep` says of the golden files; where a fault ends it, case by case.
std::vector<std::string> Explain(Workbench* workbench, const Check& check,
                                 const std::string& root) {
  workbench->Run(check, kExplainSecondsMax);
  std::vector<std::string> outputs = {workbench->log()};
  if (ExplanationsIn(outputs[0])) return outputs;
  for (const std::string& name : CasesOf(root)) {
    Check one = check;
    one.argv.push_back(name);
    workbench->Run(one, kCaseSecondsMax);
    outputs.push_back(workbench->log());
  }
  return outputs;
}

Check ExplainCheck(const std::string& root, int goldens) {
  return {.name = "explain",
          .targets = {"lockstep"},
          .argv = {"lockstep", "golden", "explain", "--json", "--most", fmt::format("{}", goldens),
                   "--folder", root + "/golden/cases"}};
}

}  // namespace

std::string ExpectedPlace(const Fault& fault) { return PlaceOf(fault.layer, fault.stage); }

ExplainedFault JudgeExplanations(const Fault& fault, std::span<const std::string> outputs) {
  ExplainedFault result{.fault = fault};
  std::map<std::string, int> places, causes;
  std::map<std::string, std::string> evidence;
  bool any = false;
  for (const std::string& output : outputs) {
    const std::optional<nlohmann::json> json = ExplanationsIn(output);
    any = any || json;
    for (const auto& e : json.value_or(nlohmann::json::array())) {
      if (e["holds"]) continue;
      ++result.goldens;
      ++places[PlaceIn(e["first"])];
      const std::string cause = e["cause"]["class"];
      ++causes[cause];
      evidence.emplace(cause, e["cause"]["evidence"]);
    }
  }
  if (result.goldens == 0) {
    result.problem = any ? "no golden file differs" : "it printed no explanation";
    return result;
  }
  result.place = MostNamed(places);
  result.cause = MostNamed(causes);
  result.evidence = evidence[result.cause];
  result.right_place = result.place == ExpectedPlace(fault);
  result.right_cause = result.cause == fault.cause;
  return result;
}

std::vector<ExplainedFault> ExplainFaults(const std::vector<Fault>& faults,
                                          const ExplainFaultsOptions& options) {
  const std::vector<Planting> plantings = PlantAll(faults, options.workbench.root);
  Workbench workbench(options.workbench);
  const Check check = ExplainCheck(options.workbench.root, options.goldens_max);
  if (!workbench.Build(check.targets, 0, false).ok) {
    throw Error({options.workbench.root, "does not build: " + workbench.log(), "correct it first"});
  }
  if (!workbench.Run(check, kExplainSecondsMax).ok()) {
    throw Error({options.workbench.root, "has golden files that do not hold: " + workbench.log(),
                 "let lockstep golden check hold first"});
  }
  std::vector<ExplainedFault> results;
  for (const Planting& planting : plantings) {
    ExplainedFault result{.fault = planting.fault};
    workbench.Overwrite(planting.fault.edit.file, planting.edited);
    if (!workbench.Build(check.targets, kBuildSecondsMax, true).ok) {
      result.problem = "it does not build";
    } else {
      result =
          JudgeExplanations(planting.fault, Explain(&workbench, check, options.workbench.root));
    }
    workbench.Restore(planting.fault.edit.file);
    if (options.on_result) options.on_result(result);
    results.push_back(std::move(result));
  }
  return results;
}

std::string ExplainedLine(const ExplainedFault& r) {
  const auto mark = [](bool right) { return right ? "right" : "WRONG"; };
  if (!r.problem.empty())
    return fmt::format("{:<6} {:<6} {}: {}", "-", "-", r.fault.name, r.problem);
  return fmt::format("{:<6} {:<6} {}: {}, {} ({} goldens): {}", mark(r.right_place),
                     mark(r.right_cause), r.fault.name, r.place, r.cause, r.goldens, r.evidence);
}

Table ExplainedTable(const std::vector<ExplainedFault>& results) {
  Table table{{"fault", "goldens", "place", "", "cause", ""}};
  const auto said = [](const std::string& expected, const std::string& named) {
    if (named.empty()) return expected + ", not explained";
    return named == expected ? expected : fmt::format("{}, said {}", expected, named);
  };
  for (const ExplainedFault& r : results) {
    table.rows.push_back({r.fault.name, fmt::format("{}", r.goldens),
                          said(ExpectedPlace(r.fault), r.place), r.right_place ? "right" : "wrong",
                          said(r.fault.cause, r.cause), r.right_cause ? "right" : "wrong"});
  }
  return table;
}

std::string ExplainedScore(const std::vector<ExplainedFault>& results) {
  return fmt::format("{} faults explained: the place is right for {}, the cause for {}\n",
                     results.size(),
                     std::ranges::count(results, true, &ExplainedFault::right_place),
                     std::ranges::count(results, true, &ExplainedFault::right_cause));
}

}  // namespace lockstep::mutation
