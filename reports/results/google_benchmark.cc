#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "caches/error.h"
#include "reports/results.h"

namespace lockstep {
namespace {

using nlohmann::json;

// Google Benchmark prints numbers that JSON does not have (json_reporter.cc, FormatKV): "NaN" where
// a counter of zero has a relative deviation, "Infinity". null stands for them here; outside of
// strings, where alone they are numbers.
std::string WithNullForNonFinite(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  bool in_string = false;
  while (!text.empty()) {
    size_t length = 1;
    if (in_string && text.front() == '\\') {
      length = std::min<size_t>(2, text.size());
    } else if (text.front() == '"') {
      in_string = !in_string;
    } else if (!in_string) {
      for (const std::string_view word : {"-NaN", "NaN", "-Infinity", "Infinity"}) {
        if (!text.starts_with(word)) continue;
        clean += "null";
        text.remove_prefix(word.size());
        length = 0;
        break;
      }
    }
    clean += text.substr(0, length);
    text.remove_prefix(length);
  }
  return clean;
}

class GoogleReader {
 public:
  GoogleReader(const std::string& where, const GoogleBenchmarkOptions& options)
      : where_(where), options_(options) {}

  BenchRun Read(const std::string& text) {
    const json root = json::parse(WithNullForNonFinite(text), nullptr, false);
    if (!root.is_object() || !root.contains("benchmarks") || !root["benchmarks"].is_array()) {
      Fail("", "is no JSON of Google Benchmark",
           "write it with --benchmark_out=FILE --benchmark_out_format=json");
    }
    const auto context = root.find("context");
    if (context != root.end() && context->is_object()) ReadContext(*context);
    for (const json& entry : root["benchmarks"]) {
      if (!entry.is_object()) Fail("", "has an entry of 'benchmarks' that is no object", "");
      ReadEntry(entry);
    }
    for (const BenchResult& result : run_.benchmarks) {
      if (!result.samples.empty()) continue;
      Fail(result.name, "has aggregates alone",
           "measure without --benchmark_report_aggregates_only and _display_aggregates_only");
    }
    return std::move(run_);
  }

 private:
  [[noreturn]] void Fail(const std::string& name, const std::string& what,
                         const std::string& remedy) const {
    throw Error(
        {name.empty() ? where_ : fmt::format("{}: benchmark '{}'", where_, name), what, remedy});
  }

  // The machine as far as Google Benchmark tells it; its name stands in for the processor's.
  void ReadContext(const json& context) {
    const auto text = [&](const char* name) {
      const auto it = context.find(name);
      return it != context.end() && it->is_string() ? it->get<std::string>() : "";
    };
    run_.machine.processor = text("lockstep_processor");
    if (run_.machine.processor.empty()) run_.machine.processor = text("host_name");
    if (context.contains("num_cpus") && context["num_cpus"].is_number_integer()) {
      run_.machine.processors = context["num_cpus"];
    }
    run_.toolchain = text("lockstep_toolchain");
    if (run_.toolchain.empty() && !text("library_build_type").empty()) {
      run_.toolchain = "benchmark library: " + text("library_build_type");
    }
    run_.commit = text("commit");
    run_.command = text("executable");
    run_.started = text("date");
  }

  double NumberOf(const json& entry, const std::string& name, const char* member) const {
    const auto it = entry.find(member);
    if (it == entry.end() || !it->is_number() || !std::isfinite(it->get<double>())) {
      Fail(name, fmt::format("has no number '{}'", member), "write the file again");
    }
    return *it;
  }

  double SecondsOf(const json& entry, const std::string& name) const {
    const std::string unit = entry.value("time_unit", "ns");
    const double value = NumberOf(entry, name, options_.cpu_time ? "cpu_time" : "real_time");
    constexpr std::pair<std::string_view, double> kUnits[] = {
        {"ns", 1e9}, {"us", 1e6}, {"ms", 1e3}, {"s", 1}};
    for (const auto& [known, per_second] : kUnits) {
      if (unit != known) continue;
      if (value <= 0) Fail(name, "took no time", "give it more to do, or measure it longer");
      return value / per_second;
    }
    Fail(name, fmt::format("has times in '{}'", unit), "use ns, us, ms or s");
  }

  void ReadEntry(const json& entry) {
    const auto text = [&](const char* member) {
      const auto it = entry.find(member);
      return it != entry.end() && it->is_string() ? it->get<std::string>() : "";
    };
    // Versions before 1.5 have no run_name; their aggregates carry it with a suffix.
    const std::string name = text("run_name").empty() ? text("name") : text("run_name");
    if (name.empty()) Fail("", "has a benchmark without a name", "write the file again");
    if (entry.value("error_occurred", false)) {
      Fail(name, "failed: " + text("error_message"), "repair it first");
    }
    auto it = std::ranges::find(run_.benchmarks, name, &BenchResult::name);
    if (it == run_.benchmarks.end()) {
      run_.benchmarks.push_back({.name = name});
      it = run_.benchmarks.end() - 1;
    }
    if (text("run_type") == "aggregate") return;
    it->samples.push_back({.value = SecondsOf(entry, name)});
    ReadLabel(text("label"), &*it);
    for (const std::string& counter : options_.counters) {
      if (!entry.contains(counter)) continue;
      const double value = NumberOf(entry, name, counter.c_str());
      const auto [known, first] = it->counters.try_emplace(counter, value);
      // Google Benchmark averages over iterations in doubles, which rounds.
      if (first || std::abs(known->second - value) <= 1e-9 * std::abs(value)) continue;
      Fail(name,
           fmt::format("counter '{}' differs between repetitions, {} and {}", counter,
                       known->second, value),
           "leave it out of the counters that are compared exactly");
    }
  }

  void ReadLabel(const std::string& label, BenchResult* result) const {
    std::istringstream words(label);
    for (std::string word; words >> word;) {
      if (word.starts_with("bound=")) result->bound = word.substr(6);
      if (word == "limit=one" || word == "limit=all") result->limit_of = word.substr(6);
      if (!word.starts_with("digest=")) continue;
      const std::string digest = word.substr(7);
      if (!result->digest.empty() && result->digest != digest) {
        Fail(result->name,
             fmt::format("computed {}, and {} in another repetition", result->digest, digest),
             "repair it first: equal inputs have to give equal bits");
      }
      result->digest = digest;
    }
  }

  std::string where_;
  const GoogleBenchmarkOptions& options_;
  BenchRun run_;
};

}  // namespace

BenchRun ParseGoogleBenchmark(const std::string& text, const std::string& where,
                              const GoogleBenchmarkOptions& options) {
  return GoogleReader(where, options).Read(text);
}

}  // namespace lockstep
