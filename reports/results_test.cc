// The model of results: written and read back equal, refused where it does not follow its schema,
// and filled from the JSON of Google Benchmark.
#include "reports/results.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "caches/error.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

BenchRun MadeRun() {
  BenchRun run;
  run.machine = {
      .processor = "Some \"CPU\"", .processors = 2, .memory_mib = 23999, .system = "X 1"};
  run.toolchain = "g++ 12";
  run.commit = "abc";
  run.build = "0123";
  run.command = "bench";
  run.started = "2031-05-03T10:20:30Z";
  run.seed = 0xffffffffffffffffu;
  run.benchmarks.push_back(
      {.name = "decode",
       .samples = {{.value = 0.1,
                    .round = 0,
                    .limit = 0.07,
                    .state = {.read_bandwidth_one = 4e10, .barrier_seconds = 3e-7, .others = 0.0}},
                   {.value = 1.0 / 3, .round = 1}},
       .counters = {{"bytes", 46080}, {"instructions", 123456789}},
       .digest = "5d7d8fc23b1d6df5",
       .bound = "memory",
       .limit_of = "all"});
  run.benchmarks.push_back(
      {.name = "tokens", .unit = "tokens/s", .direction = Direction::kHigherIsBetter});
  return run;
}

std::string RefusalOf(const std::string& text) {
  try {
    ParseRun(text, "run.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ResultsTest, WhatIsWrittenIsReadBackEqual) {
  EXPECT_EQ(ParseRun(RunJson(MadeRun()), "run.json"), MadeRun());
  EXPECT_EQ(ParseRun(RunJson(BenchRun()), "run.json"), BenchRun());
}

TEST(ResultsTest, WhatDoesNotFollowTheSchemaIsRefusedWithItsPlace) {
  const auto changed = [](const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json json = nlohmann::json::parse(RunJson(MadeRun()));
    change(json);
    return RefusalOf(json.dump());
  };
  EXPECT_THAT(RefusalOf("{"), HasSubstr("run.json: is no JSON"));
  EXPECT_THAT(RefusalOf("[]"), HasSubstr("run.json: .: does not have the type \"object\""));
  EXPECT_THAT(changed([](auto& j) { j["benchmarks"][0]["samples"][1]["value"] = "0.1"; }),
              HasSubstr("run.json: benchmarks/0/samples/1/value: does not have the type"));
  EXPECT_THAT(changed([](auto& j) { j["benchmarks"][0]["samples"][1]["value"] = 0; }),
              HasSubstr("benchmarks/0/samples/1/value: does not have the minimum 0, exclusive"));
  EXPECT_THAT(changed([](auto& j) { j["benchmarks"][1].erase("unit"); }),
              HasSubstr("benchmarks/1: does not have the required [\"name\",\"unit\","));
  EXPECT_THAT(changed([](auto& j) { j["benchmarks"][1]["colour"] = 1; }),
              HasSubstr("benchmarks/1/colour: is not known"));
  const std::string deep = std::string(1000000, '[') + std::string(1000000, ']');
  EXPECT_THAT(RefusalOf("{\"machine\": " + deep + "}"), HasSubstr("machine: does not have"));
  EXPECT_THAT(changed([](auto& j) { j["seed"] = -1; }), HasSubstr("seed: is negative"));
  EXPECT_THAT(changed([](auto& j) { j["version"] = 2; }), HasSubstr("version"));
  EXPECT_THAT(changed([](auto& j) { j["benchmarks"][1]["name"] = "decode"; }),
              HasSubstr("has two benchmarks 'decode'"));
  EXPECT_THAT(changed([](auto& j) { j["machine"]["processors"] = 3; }),
              HasSubstr("machine/fingerprint"));
}

TEST(ResultsTest, FingerprintIsOfTheHardwareAlone) {
  BenchMachine a = MadeRun().machine;
  const std::string before = a.Fingerprint();
  a.system = "X 2";
  a.memory_mib -= 40;
  EXPECT_EQ(a.Fingerprint(), before);
  a.processors = 4;
  EXPECT_NE(a.Fingerprint(), before);
  EXPECT_GT(ThisMachine().memory_mib, 0);
  EXPECT_GT(ThisMachine().processors, 0);
}

// What version 1.7.1 writes, shortened.
constexpr const char* kGoogle = R"({
  "context": {"date": "2031-05-03T10:20:30+00:00", "host_name": "box", "executable": "./bench",
              "num_cpus": 2, "mhz_per_cpu": 2100, "cpu_scaling_enabled": false, "caches": [],
              "load_avg": [1.5], "library_build_type": "release"},
  "benchmarks": [
    {"name": "BM_Copy/64", "family_index": 0, "run_name": "BM_Copy/64", "run_type": "iteration",
     "repetitions": 2, "repetition_index": 0, "threads": 1, "iterations": 1000,
     "real_time": 250, "cpu_time": 200, "time_unit": "us", "bytes": 64, "gb": 3.5,
     "label": "bound=memory limit=all digest=ab12"},
    {"name": "BM_Copy/64", "run_name": "BM_Copy/64", "run_type": "iteration",
     "repetitions": 2, "repetition_index": 1, "threads": 1, "iterations": 1000,
     "real_time": 260, "cpu_time": 210, "time_unit": "us", "bytes": 64, "gb": 3.25,
     "label": "bound=memory digest=ab12"},
    {"name": "BM_Copy/64_mean", "run_name": "BM_Copy/64", "run_type": "aggregate",
     "repetitions": 2, "threads": 1, "aggregate_name": "mean", "iterations": 2,
     "real_time": 255, "cpu_time": 205, "time_unit": "us"},
    {"name": "BM_Tick", "run_name": "BM_Tick", "run_type": "iteration", "repetitions": 1,
     "repetition_index": 0, "threads": 1, "iterations": 5, "real_time": 4, "cpu_time": 3,
     "time_unit": "ns"}
  ]
})";

std::string GoogleRefusal(const std::function<void(nlohmann::json&)>& change) {
  nlohmann::json json = nlohmann::json::parse(kGoogle);
  change(json);
  try {
    ParseGoogleBenchmark(json.dump(), "g.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(GoogleBenchmarkTest, RepetitionsAreSamplesInSecondsAndAggregatesAreNot) {
  const BenchRun run = ParseGoogleBenchmark(kGoogle, "g.json");
  ASSERT_EQ(run.benchmarks.size(), 2u);
  const BenchResult& copy = run.benchmarks[0];
  EXPECT_EQ(copy.name, "BM_Copy/64");
  ASSERT_EQ(copy.samples.size(), 2u);
  EXPECT_DOUBLE_EQ(copy.samples[0].value, 250e-6);
  EXPECT_DOUBLE_EQ(copy.samples[1].value, 260e-6);
  EXPECT_EQ(copy.counters, (std::map<std::string, double>{{"bytes", 64}}));
  EXPECT_EQ(copy.digest, "ab12");
  EXPECT_EQ(copy.bound, "memory");
  EXPECT_EQ(copy.limit_of, "all");
  EXPECT_DOUBLE_EQ(run.benchmarks[1].samples.at(0).value, 4e-9);
  EXPECT_EQ(run.machine.processor, "box");
  EXPECT_EQ(run.machine.processors, 2);
  const BenchRun cpu = ParseGoogleBenchmark(kGoogle, "g.json", {.cpu_time = true});
  EXPECT_DOUBLE_EQ(cpu.benchmarks[0].samples[0].value, 200e-6);
}

TEST(GoogleBenchmarkTest, NumbersThatJsonDoesNotHaveAreReadAsWritten) {
  const auto with = [](const std::string& before, const std::string& after) {
    std::string text = kGoogle;
    const size_t at = text.find(before);
    EXPECT_NE(at, text.npos) << before;
    return text.replace(at, before.size(), after);
  };
  // The relative deviation of a counter that is zero.
  const BenchRun run = ParseGoogleBenchmark(
      with("\"real_time\": 255", "\"allocations\": -NaN, \"gb\": Infinity, \"real_time\": NaN"),
      "g");
  EXPECT_EQ(run, ParseGoogleBenchmark(kGoogle, "g"));
  // Inside of a text they are letters.
  const BenchRun named = ParseGoogleBenchmark(with("\"box\"", R"("a\"NaN\\")"), "g");
  EXPECT_EQ(named.machine.processor, "a\"NaN\\");
  // A sample that is none is refused, not left out.
  EXPECT_THROW(ParseGoogleBenchmark(with("\"real_time\": 250", "\"real_time\": NaN"), "g"), Error);
}

TEST(GoogleBenchmarkTest, WhatCannotBeComparedIsRefused) {
  EXPECT_EQ(GoogleRefusal([](auto&) {}), "");
  EXPECT_THAT(GoogleRefusal([](auto& j) { j.erase("benchmarks"); }),
              HasSubstr("no JSON of Google"));
  EXPECT_THAT(GoogleRefusal([](auto& j) { j["benchmarks"][3]["run_type"] = "aggregate"; }),
              HasSubstr("'BM_Tick': has aggregates alone"));
  EXPECT_THAT(GoogleRefusal([](auto& j) {
                j["benchmarks"][3]["error_occurred"] = true;
                j["benchmarks"][3]["error_message"] = "no file";
              }),
              HasSubstr("failed: no file"));
  EXPECT_THAT(GoogleRefusal([](auto& j) { j["benchmarks"][1]["bytes"] = 65; }),
              HasSubstr("counter 'bytes' differs"));
  EXPECT_THAT(GoogleRefusal([](auto& j) { j["benchmarks"][1]["label"] = "digest=ff"; }),
              HasSubstr("computed ab12, and ff"));
  EXPECT_THAT(GoogleRefusal([](auto& j) { j["benchmarks"][0]["time_unit"] = "h"; }),
              HasSubstr("times in 'h'"));
  EXPECT_THAT(GoogleRefusal([](auto& j) { j["benchmarks"][0]["real_time"] = 0; }),
              HasSubstr("took no time"));
  EXPECT_THAT(GoogleRefusal([](auto& j) { j["benchmarks"][0].erase("real_time"); }),
              HasSubstr("no number 'real_time'"));
}

}  // namespace
}  // namespace lockstep
