#include "ci/mutation/explained.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "caches/error.h"
#include "caches/file_io.h"

namespace lockstep::mutation {
namespace {

constexpr double kBuildSecondsMax = 1800;
constexpr double kExplainSecondsMax = 600;

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

Check ExplainCheck(const std::string& root, int goldens) {
  return {.name = "explain",
          .targets = {"lockstep"},
          .argv = {"lockstep", "golden", "explain", "--json", "--most", fmt::format("{}", goldens),
                   "--folder", root + "/golden/cases"}};
}

}  // namespace

std::string ExpectedPlace(const Fault& fault) { return PlaceOf(fault.layer, fault.stage); }

ExplainedFault JudgeExplanations(const Fault& fault, std::string_view output) {
  ExplainedFault result{.fault = fault};
  const size_t begin = output.find('{');
  const auto json = begin == output.npos
                        ? nlohmann::json()
                        : nlohmann::json::parse(output.substr(begin), nullptr, false);
  if (!json.is_object() || !json.contains("explanations")) {
    result.problem = "it printed no explanation";
    return result;
  }
  std::map<std::string, int> places, causes;
  std::map<std::string, std::string> evidence;
  for (const auto& e : json["explanations"]) {
    if (e["holds"]) continue;
    ++result.goldens;
    ++places[PlaceIn(e["first"])];
    const std::string cause = e["cause"]["class"];
    ++causes[cause];
    evidence.emplace(cause, e["cause"]["evidence"]);
  }
  if (result.goldens == 0) {
    result.problem = "no golden file differs";
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
      workbench.Run(check, kExplainSecondsMax);
      result = JudgeExplanations(planting.fault, workbench.log());
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
