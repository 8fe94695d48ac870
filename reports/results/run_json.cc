#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "caches/error.h"
#include "caches/file_io.h"
#include "reports/results.h"
#include "reports/results/json_schema.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// The members of a state, in one list for reading and writing.
struct StateMember {
  const char* name;
  std::optional<double> MachineState::*member;
};
constexpr StateMember kStateMembers[] = {
    {"read_bandwidth_one", &MachineState::read_bandwidth_one},
    {"read_bandwidth_all", &MachineState::read_bandwidth_all},
    {"barrier_seconds", &MachineState::barrier_seconds},
    {"others", &MachineState::others},
    {"steal", &MachineState::steal},
};

// Texts that are left out when they are empty.
struct TextMember {
  const char* name;
  std::string BenchRun::*member;
};
constexpr TextMember kTextMembers[] = {
    {"toolchain", &BenchRun::toolchain}, {"commit", &BenchRun::commit},
    {"build", &BenchRun::build},         {"command", &BenchRun::command},
    {"started", &BenchRun::started},
};

ordered_json SampleJson(const BenchSample& sample) {
  ordered_json out = {{"value", sample.value}};
  if (sample.round >= 0) out["round"] = sample.round;
  if (sample.limit) out["limit"] = *sample.limit;
  for (const StateMember& member : kStateMembers) {
    const auto& value = sample.state.*member.member;
    if (value) out["state"][member.name] = *value;
  }
  return out;
}

ordered_json ResultJson(const BenchResult& result) {
  ordered_json out = {
      {"name", result.name}, {"unit", result.unit}, {"better", DirectionName(result.direction)}};
  if (!result.bound.empty()) out["bound"] = result.bound;
  if (!result.limit_of.empty()) out["limit_of"] = result.limit_of;
  if (!result.digest.empty()) out["digest"] = result.digest;
  for (const auto& [name, value] : result.counters) out["counters"][name] = value;
  out["samples"] = ordered_json::array();
  for (const BenchSample& sample : result.samples) out["samples"].push_back(SampleJson(sample));
  return out;
}

BenchSample SampleOf(const json& in) {
  BenchSample sample = {.value = in["value"], .round = in.value("round", -1)};
  if (in.contains("limit")) sample.limit = in["limit"].get<double>();
  if (!in.contains("state")) return sample;
  for (const StateMember& member : kStateMembers) {
    if (in["state"].contains(member.name)) {
      sample.state.*member.member = in["state"][member.name].get<double>();
    }
  }
  return sample;
}

BenchResult ResultOf(const json& in) {
  BenchResult result = {
      .name = in["name"],
      .unit = in["unit"],
      .direction = in["better"] == "lower" ? Direction::kLowerIsBetter : Direction::kHigherIsBetter,
      .digest = in.value("digest", ""),
      .bound = in.value("bound", ""),
      .limit_of = in.value("limit_of", "")};
  if (in.contains("counters")) {
    for (const auto& [name, value] : in["counters"].items()) result.counters[name] = value;
  }
  for (const json& sample : in["samples"]) result.samples.push_back(SampleOf(sample));
  return result;
}

BenchRun RunOf(const json& in, const std::string& where) {
  const json& machine = in["machine"];
  BenchRun run;
  run.machine = {.processor = machine["processor"],
                 .processors = machine["processors"],
                 .memory_mib = machine["memory_mib"],
                 .system = machine.value("system", "")};
  if (machine["fingerprint"] != run.machine.Fingerprint()) {
    throw Error({where + ": machine/fingerprint",
                 fmt::format("is not that of the machine described beside it, {}",
                             run.machine.Fingerprint()),
                 "use the file as it was written"});
  }
  for (const TextMember& member : kTextMembers) run.*member.member = in.value(member.name, "");
  if (in.contains("seed")) {
    // The schema's library reads integers with a sign.
    if (!in["seed"].is_number_unsigned()) {
      throw Error({where + ": seed", "is negative", "use the file as it was written"});
    }
    run.seed = in["seed"];
  }
  std::set<std::string> names;
  for (const json& result : in["benchmarks"]) {
    run.benchmarks.push_back(ResultOf(result));
    if (names.insert(run.benchmarks.back().name).second) continue;
    throw Error({where, fmt::format("has two benchmarks '{}'", run.benchmarks.back().name),
                 "give each its own name"});
  }
  return run;
}

}  // namespace

std::string RunJson(const BenchRun& run) {
  const BenchMachine& machine = run.machine;
  ordered_json out = {{"format", "lockstep-bench-run"},
                      {"version", 1},
                      {"machine",
                       {{"processor", machine.processor},
                        {"processors", machine.processors},
                        {"memory_mib", machine.memory_mib},
                        {"fingerprint", machine.Fingerprint()}}}};
  if (!machine.system.empty()) out["machine"]["system"] = machine.system;
  for (const TextMember& member : kTextMembers) {
    if (!(run.*member.member).empty()) out[member.name] = run.*member.member;
  }
  out["seed"] = run.seed;
  out["benchmarks"] = ordered_json::array();
  for (const BenchResult& result : run.benchmarks) out["benchmarks"].push_back(ResultJson(result));
  return out.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

BenchRun ParseRun(const std::string& text, const std::string& where) {
  const json parsed = json::parse(text, nullptr, false);
  if (parsed.is_discarded()) {
    throw Error({where, "is no JSON", "give what `lockstep bench compare --json-file` wrote"});
  }
  if (const auto finding = internal::CheckSchema(text, RunSchema())) {
    throw Error({fmt::format("{}: {}", where, finding->place.empty() ? "." : finding->place),
                 finding->what, "`lockstep bench schema` prints what it has to follow"});
  }
  return RunOf(parsed, where);
}

BenchRun ReadRun(const std::string& path, const GoogleBenchmarkOptions& options) {
  const std::string text = ReadWholeTextFile(path);
  const json parsed = json::parse(text, nullptr, false);
  const bool own = parsed.is_object() && parsed.contains("format");
  return own ? ParseRun(text, path) : ParseGoogleBenchmark(text, path, options);
}

}  // namespace lockstep
