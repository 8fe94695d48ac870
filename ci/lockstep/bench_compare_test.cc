// `lockstep bench compare` as a user calls it: files of any project, executables, exit codes, and
// what it writes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "ci/lockstep/test_process.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

// A file as Google Benchmark writes it, with 20 repetitions of each benchmark.
std::string GoogleFile(const std::string& name, const std::vector<std::string>& benchmarks,
                       double factor, const std::string& label = "") {
  json root = {{"context", {{"host_name", "box"}, {"num_cpus", 2}}}, {"benchmarks", json::array()}};
  for (const std::string& benchmark : benchmarks) {
    for (int i = 0; i < 20; ++i) {
      root["benchmarks"].push_back({{"name", benchmark},
                                    {"run_name", benchmark},
                                    {"run_type", "iteration"},
                                    {"real_time", factor * (100 + i % 5 * 0.1)},
                                    {"cpu_time", 50 + i % 5 * 0.1},
                                    {"time_unit", "us"},
                                    {"label", label}});
    }
  }
  const std::string text = root.dump();
  return WriteTestFile(name, std::as_bytes(std::span(text)));
}

ProcessResult CompareCommand(std::vector<std::string> args) {
  args.insert(args.begin(), {"bench", "compare"});
  return RunLockstepCommand(args);
}

// Rounds in which the machine changed are left out, so that a restless one may decide nothing.
const auto kNoFailure = testing::AnyOf(0, 3);

// An executable that answers as one of Google Benchmark: each of its benchmarks takes a millisecond
// and has `counters`, members of a JSON object.
std::string StandIn(const std::string& benchmarks, const std::string& counters = "") {
  return fmt::format(R"sh(#!/bin/sh
for word in "$@"; do
  case "$word" in
    --benchmark_list_tests) printf '%s\n' {0}; exit 0 ;;
    --benchmark_filter=*) name=${{word#*=^}}; name=${{name%\$}} ;;
    --benchmark_out=*) out=${{word#*=}} ;;
  esac
done
printf '{{"context": {{}}, "benchmarks": [{{"name": "%s", ' "$name" > "$out"
printf '"run_name": "%s", ' "$name" >> "$out"
printf '"run_type": "iteration", "time_unit": "ms", "real_time": 1, "cpu_time": 1{1}}}]}}' >> "$out"
)sh",
                     benchmarks, counters);
}

std::string WriteExecutable(const std::string& name, const std::string& text) {
  const std::string path = WriteTestFile(name, std::as_bytes(std::span(text)));
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

// A repository whose commit and whose tree build stand-ins; the current folder is in it.
class BenchOfACommitTest : public testing::Test {
 protected:
  BenchOfACommitTest() : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder_.path());
    WriteWholeTextFile("CMakeLists.txt",
                       "cmake_minimum_required(VERSION 3.20)\n"
                       "project(stand_in NONE)\n"
                       "add_custom_target(lockstep_bench COMMAND install -m 755\n"
                       "  ${CMAKE_SOURCE_DIR}/bench.sh ${CMAKE_BINARY_DIR}/lockstep_bench)\n");
  }
  ~BenchOfACommitTest() override { std::filesystem::current_path(before_); }

  static void Commit(const std::string& script) {
    WriteWholeTextFile("bench.sh", script);
    ASSERT_EQ(std::system("git init -q . && git add CMakeLists.txt bench.sh && "
                          "git -c user.name=T -c user.email=t@example.org commit -qm a"),
              0);
  }

  static ProcessResult CompareTree(const std::string& script, std::vector<std::string> more = {}) {
    WriteWholeTextFile("bench.sh", script);
    std::vector<std::string> args = {"--base", "HEAD",        "--no-count", "--rounds",
                                     "3",      "--sample-ms", "1",          "--github"};
    args.insert(args.end(), more.begin(), more.end());
    return CompareCommand(args);
  }

 private:
  const TemporaryFolder folder_;
  const std::filesystem::path before_;
};

TEST_F(BenchOfACommitTest, WhatItAddsIsNewAndWhatItDropsIsAnError) {
  Commit(StandIn("BM_A BM_B"));
  const ProcessResult added = CompareTree(StandIn("BM_A BM_B BM_C", ", \"bytes\": 64"));
  EXPECT_THAT(added.exit_code, kNoFailure) << added.out << added.err;
  EXPECT_THAT(added.out,
              HasSubstr("::notice title=BM_C::new: benchmark 'BM_C' (1 ms; bytes 64)\n"));
  EXPECT_THAT(added.out,
              HasSubstr("::notice title=BM_A#bytes::new: counter 'bytes' of 'BM_A' (64)"));
  EXPECT_THAT(added.out, HasSubstr("; 3 new\n"));
  const ProcessResult dropped = CompareTree(StandIn("BM_A BM_C"));
  EXPECT_EQ(dropped.exit_code, 2) << dropped.out;
  EXPECT_THAT(dropped.err, HasSubstr("'BM_B': is missing in the subject"));
  const ProcessResult renamed = CompareTree(StandIn("BM_A BM_C"), {"--gone", "BM_B"});
  EXPECT_THAT(renamed.exit_code, kNoFailure) << renamed.out << renamed.err;
  EXPECT_THAT(renamed.out, HasSubstr("::notice title=BM_B::gone: benchmark 'BM_B'\n"));
  // What the list says has to be so, and a new benchmark has to run.
  const ProcessResult late = CompareTree(StandIn("BM_A BM_B BM_C"), {"--gone", "BM_B"});
  EXPECT_EQ(late.exit_code, 2) << late.out;
  EXPECT_THAT(late.err, HasSubstr("--gone 'BM_B': is of no side alone"));
  std::string broken = StandIn("BM_A BM_B BM_C");
  broken.insert(broken.find("printf '{"), "if [ \"$name\" = BM_C ]; then exit 1; fi\n");
  const ProcessResult fails = CompareTree(broken);
  EXPECT_EQ(fails.exit_code, 2) << fails.out;
  EXPECT_THAT(fails.err, HasSubstr("benchmark 'BM_C': failed"));
}

TEST_F(BenchOfACommitTest, ACounterThatItDropsIsAnError) {
  Commit(StandIn("BM_A", ", \"bytes\": 64"));
  const ProcessResult dropped = CompareTree(StandIn("BM_A"));
  EXPECT_EQ(dropped.exit_code, 2) << dropped.out;
  EXPECT_THAT(dropped.err, HasSubstr("has the counter 'bytes' in the baseline alone"));
  const ProcessResult listed = CompareTree(StandIn("BM_A"), {"--gone", "BM_A#bytes"});
  EXPECT_THAT(listed.exit_code, kNoFailure) << listed.out << listed.err;
  EXPECT_THAT(listed.out, HasSubstr("gone: counter 'bytes' of 'BM_A' (64)"));
}

// Nobody said which of two is the newer.
TEST(BenchCompareTest, OfTwoBuildsNeitherHasAnythingAlone) {
  const std::string one = WriteExecutable("one", StandIn("BM_A BM_B"));
  const std::string two = WriteExecutable("two", StandIn("BM_A BM_C"));
  const auto compare = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {one, two, "--rounds", "3", "--sample-ms", "1"});
    return CompareCommand(more);
  };
  EXPECT_THAT(compare({}).err, HasSubstr("'BM_B': is missing in the subject"));
  EXPECT_THAT(compare({"--gone", "BM_B"}).err, HasSubstr("'BM_C': is missing in the baseline"));
  EXPECT_THAT(compare({"--new", "BM_C"}).err, HasSubstr("'BM_B': is missing in the subject"));
  const ProcessResult listed = compare({"--gone", "BM_B", "--new", "BM_C"});
  EXPECT_THAT(listed.exit_code, kNoFailure) << listed.out << listed.err;
  EXPECT_THAT(listed.out, HasSubstr(" --new BM_C --gone BM_B "));
  EXPECT_THAT(listed.out, HasSubstr("\ngone: benchmark 'BM_B'\nnew: benchmark 'BM_C' (1 ms)\n"));
}

TEST(BenchCompareTest, FilesOfAnyProjectAndTheirExitCodes) {
  const std::string base = GoogleFile("base.json", {"BM_A", "BM_B"}, 1);
  const std::string slow = GoogleFile("slow.json", {"BM_A", "BM_B"}, 1.2);
  const std::string fewer = GoogleFile("fewer.json", {"BM_A"}, 1);
  const ProcessResult same = CompareCommand({base, base});
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_TRUE(same.out.starts_with("seed 1\n"));
  EXPECT_THAT(same.out, HasSubstr("HOLDS: 2 of 2 benchmarks the same"));
  EXPECT_THAT(same.out, HasSubstr("not measured in turns"));
  const ProcessResult slower = CompareCommand({base, slow});
  EXPECT_EQ(slower.exit_code, 1) << slower.err;
  EXPECT_THAT(slower.out, HasSubstr("slower by 20.0 %"));
  EXPECT_EQ(CompareCommand({base, slow, "--cpu-time"}).exit_code, 0);
  EXPECT_EQ(CompareCommand({base, slow, "--within", "25"}).exit_code, 0);
  const ProcessResult near =
      CompareCommand({base, GoogleFile("near.json", {"BM_A", "BM_B"}, 1.031)});
  EXPECT_EQ(near.exit_code, 3) << near.out;
  EXPECT_THAT(near.out, HasSubstr("more round"));
  const ProcessResult missing = CompareCommand({base, fewer});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("'BM_B': is missing in the subject"));
  const ProcessResult more = CompareCommand({fewer, base});
  EXPECT_EQ(more.exit_code, 2) << more.out;
  EXPECT_THAT(more.err, HasSubstr("--new 'BM_B'"));
  EXPECT_EQ(CompareCommand({fewer, base, "--new", "BM_B"}).exit_code, 0);
  EXPECT_EQ(CompareCommand({base, fewer, "--gone", "BM_B"}).exit_code, 0);
  const std::string other = GoogleFile("bits.json", {"BM_A", "BM_B"}, 0.5, "digest=cd");
  const ProcessResult bits =
      CompareCommand({GoogleFile("was.json", {"BM_A", "BM_B"}, 1, "digest=ab"), other});
  EXPECT_EQ(bits.exit_code, 1) << "faster, but the bits changed";
  EXPECT_THAT(bits.out, HasSubstr("bits changed: ab -> cd"));
}

TEST(BenchCompareTest, WritesEveryFormat) {
  const std::string base = GoogleFile("base.json", {"BM_A"}, 1);
  const std::string slow = GoogleFile("slow.json", {"BM_A"}, 1.2);
  const TemporaryFolder temporary;
  const std::string folder = temporary.File("compare.");
  const ProcessResult result =
      CompareCommand({base, slow, "--github", "--html", folder + "html", "--markdown",
                      folder + "md", "--junit", folder + "xml", "--json-file", folder + "json"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.out, StartsWith("::error title=BM_A::slower by 20.0 %25"));
  EXPECT_THAT(ReadWholeTextFile(folder + "html"), HasSubstr("<title>REGRESSION: 1 of 1"));
  EXPECT_THAT(ReadWholeTextFile(folder + "md"), StartsWith("**REGRESSION: 1 of 1"));
  EXPECT_THAT(ReadWholeTextFile(folder + "xml"), HasSubstr("failures=\"1\""));
  EXPECT_EQ(json::parse(ReadWholeTextFile(folder + "json"))["outcome"], "regression");
}

TEST(BenchCompareTest, OneExecutableIsSaidToBeOne) {
  const ProcessResult result =
      CompareCommand({LOCKSTEP_BENCH_BINARY, LOCKSTEP_BENCH_BINARY, "--filter", "attention"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("the same, byte for byte"));
}

// A real run: each sample has the machine's state beside it, counters and bits.
TEST(BenchCompareTest, MeasuresExecutablesInTurns) {
  const ProcessResult result =
      CompareCommand({LOCKSTEP_BENCH_BINARY, LOCKSTEP_BENCH_BINARY, "--aa", "--small", "--filter",
                      "engine/decode_deep/simple/threads_1|write/.*/135m/simple", "--rounds", "1",
                      "--sample-ms", "1", "--no-count", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;  // identical: it holds
  EXPECT_EQ(result.err, "") << "progress belongs on a terminal alone";
  const json object = json::parse(result.out);
  EXPECT_EQ(object["identical"], true);
  EXPECT_EQ(object["interleaved"], true);
  ASSERT_EQ(object["subject"]["benchmarks"].size(), 3u);
  const json& decode = object["subject"]["benchmarks"][0];
  EXPECT_EQ(decode["name"], "engine/decode_deep/simple/threads_1/manual_time");
  EXPECT_EQ(decode["samples"].size(), 2u);
  EXPECT_GT(decode["samples"][0]["state"]["read_bandwidth_one"], 0.0);
  EXPECT_GT(decode["samples"][0]["limit"], 0.0);
  EXPECT_EQ(decode["limit_of"], "one");
  // Of two tokens: read and written, and on the way over scratch memory once more.
  const json& update = object["subject"]["benchmarks"][1];
  EXPECT_EQ(update["name"], "write/update/135m/simple");
  EXPECT_EQ(update["counters"]["bytes"], 2 * 4 * 46080);
  const json& write = object["subject"]["benchmarks"][2];
  EXPECT_EQ(write["counters"]["bytes"], 2 * 2 * 46080);
  EXPECT_EQ(write["counters"]["allocations"], 0);
  EXPECT_EQ(write["digest"].get<std::string>().size(), 32u);
}

// Callgrind counts both sides, and of one executable the same.
TEST(BenchCompareTest, CountsInstructions) {
  if (std::system("command -v valgrind > /dev/null") != 0) {
    GTEST_SKIP() << "valgrind is not installed: nothing counts instructions";
  }
  const ProcessResult result =
      CompareCommand({LOCKSTEP_BENCH_BINARY, LOCKSTEP_BENCH_BINARY, "--aa", "--small", "--filter",
                      "^codec/", "--rounds", "1", "--sample-ms", "1", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(result.err, "");
  const json object = json::parse(result.out);
  const json& benchmarks = object["subject"]["benchmarks"];
  ASSERT_GT(benchmarks.size(), 1u);
  for (const json& benchmark : benchmarks) {
    EXPECT_GT(benchmark["counters"].value("instructions", 0.0), 100.0) << benchmark["name"];
  }
}

TEST(BenchCompareTest, WrongUse) {
  const std::string base = GoogleFile("base.json", {"BM_A"}, 1);
  const auto refused = [](const std::vector<std::string>& args, const char* part) {
    const ProcessResult result = CompareCommand(args);
    EXPECT_EQ(result.exit_code, 2) << result.out;
    EXPECT_THAT(result.err, HasSubstr(part));
  };
  refused({}, "0 sides are given");
  refused({base}, "1 sides are given");
  refused({base, LOCKSTEP_BENCH_BINARY}, "not of one kind");
  refused({"/absent", "/absent"}, "is no executable");
  refused({LOCKSTEP_BENCH_BINARY, LOCKSTEP_BENCH_BINARY, "--filter", "^nothing$"},
          "lists no benchmark");
  refused({base, base, "--noise", base}, "is no comparison");
  refused({base, base, "--within", "0"}, "--within");
  refused({"--base", "HEAD", base, base}, "--base and 2 sides");
}

// What it writes follows its schema, which is what --noise holds such a file against.
TEST(BenchCompareTest, ItsFileIsReadBackAndAWrongOneIsRefusedWithItsPlace) {
  const std::string one = WriteExecutable("aa", StandIn("BM_A", ", \"bytes\": 64"));
  const TemporaryFolder folder;
  const std::string file = folder.File("noise.json");
  const ProcessResult aa =
      CompareCommand({one, one, "--aa", "--rounds", "3", "--sample-ms", "1", "--json-file", file});
  EXPECT_EQ(aa.exit_code, 0) << aa.out << aa.err;
  const std::string base = GoogleFile("base.json", {"BM_A"}, 1);
  EXPECT_EQ(CompareCommand({base, base, "--noise", file}).exit_code, 0);
  const json written = json::parse(ReadWholeTextFile(file));
  const std::pair<const char*, json> edits[] = {{"outcome", "fine"}, {"new", 1}, {"more", true}};
  for (const auto& [member, value] : edits) {
    json other = written;
    other[member] = value;
    WriteWholeTextFile(file, other.dump());
    const ProcessResult refused = CompareCommand({base, base, "--noise", file});
    EXPECT_EQ(refused.exit_code, 2) << member;
    EXPECT_THAT(refused.err,
                HasSubstr("is no comparison of this version: '" + std::string(member)));
  }
}

TEST(BenchCompareTest, SchemaIsPrinted) {
  const ProcessResult result = RunLockstepCommand({"bench", "schema"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(json::parse(result.out)["title"], "lockstep benchmark run");
  const ProcessResult whole = RunLockstepCommand({"bench", "schema", "--comparison"});
  EXPECT_EQ(whole.exit_code, 0);
  EXPECT_EQ(json::parse(whole.out)["title"], "lockstep benchmark comparison");
}

}  // namespace
}  // namespace lockstep::cli
