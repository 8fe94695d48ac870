// `lockstep verify --matrix`, as a user calls it: every axis in the JSON, the exit codes, the
// pictures, and what is refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "ci/lockstep/test_process.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// The smallest matrix that has everything: one model, three caches.
std::vector<std::string> SmallMatrix(std::initializer_list<std::string> more) {
  std::vector<std::string> args = {"verify",  "--matrix", "--synthetic", "tiny-gqa-9x3-q8_0",
                                   "-n",      "3",        "--cache",     "simple",
                                   "--cache", "paged/4",  "--cache",     "quantized/q8_0+q4_0/w4"};
  args.insert(args.end(), more);
  return args;
}

std::string FileText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::string WriteText(std::string_view name, const std::string& text) {
  return WriteTestFile(name, std::as_bytes(std::span(text)));
}

// What ci/probe.cc prints in this build.
std::string ProbeLines() {
  return RunLockstepCommand({"verify", "--matrix", "--digests", "--probe", "--isa", "scalar"}).out;
}

// A build that agrees with this one, and one that was made to differ, as ci/compilers writes them.
std::string CompilerTable() {
  const std::string lines = ProbeLines();
  json row = {{"compiler", "c++ 1"}, {"flags", "-O1"}, {"control", false}};
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin);
    row["lines"].push_back(lines.substr(begin, end - begin));
    begin = end + 1;
  }
  json control = row;
  control["control"] = true;
  std::string line = control["lines"][0];
  line.back() = line.back() == '0' ? '1' : '0';
  control["lines"][0] = line;
  return row.dump() + "\n" + control.dump() + "\n";
}

const json* Axis(const json& object, const std::string& name) {
  for (const json& axis : object["axes"]) {
    if (axis["axis"] == name) return &axis;
  }
  return nullptr;
}

TEST(MatrixCommandTest, EveryModelIsRunAsItIsAndWithAnAdapter) {
  const auto run = [](std::initializer_list<std::string> more) {
    std::vector<std::string> args = {"verify", "--matrix", "--axis",  "fork",  "-n",    "1",
                                     "--json", "--cache",  "paged/4", "--isa", "scalar"};
    args.insert(args.end(), more);
    return RunLockstepCommand(args);
  };
  const ProcessResult every = run({"--every-model"});
  EXPECT_EQ(every.exit_code, 0) << every.err;
  const json object = json::parse(every.out);
  std::set<std::string> names;
  for (const json& model : object["models"]) names.insert(model["name"].get<std::string>());
  EXPECT_EQ(names.size(), object["models"].size());
  EXPECT_TRUE(names.contains("tiny-mixtral-4x2-q8_0"));
  EXPECT_TRUE(names.contains("tiny-mixtral-4x2-q8_0 with an adapter"));
  EXPECT_GT(names.size(), 60u);
  // Each model's logits of two steps, rows and bytes, by two values of the axis.
  EXPECT_EQ(object["comparisons"], 8 * object["models"].size());
  EXPECT_THAT(object["command"].get<std::string>(), HasSubstr(" --every-model"));

  const std::string adapter = WriteTestFile("a.gguf", {});
  ASSERT_EQ(RunLockstepCommand(
                {"synth", "--preset", "tiny-gqa-9x3-q8_0", "--lora", "3", "--out", adapter})
                .exit_code,
            0);
  const std::initializer_list<std::string> given = {"--synthetic", "tiny-gqa-9x3-q8_0", "--lora",
                                                    adapter};
  const ProcessResult with = run(given);
  EXPECT_EQ(with.exit_code, 0) << with.err;
  const ProcessResult without = run({"--synthetic", "tiny-gqa-9x3-q8_0"});
  const auto digest = [](const ProcessResult& result) {
    return json::parse(result.out)["axes"][0]["cells"][0]["digest"].get<std::string>();
  };
  EXPECT_NE(digest(with), digest(without));

  EXPECT_EQ(run({"--every-model", "--synthetic", "tiny-gqa-9x3-q8_0"}).exit_code, 2);
  EXPECT_EQ(run({"--every-model", "--lora", adapter}).exit_code, 2);
  EXPECT_EQ(RunLockstepCommand({"verify", "--every-model"}).exit_code, 2);
}

// The lines that a second process printed, by way of how many digests were equal.
TEST(MatrixCommandTest, TheSecondProcessHasTheAdaptersToo) {
  const auto comparisons = [](std::initializer_list<std::string> more) {
    std::vector<std::string> args = {"verify",  "--matrix", "--axis", "process", "--json",
                                     "--cache", "paged/4",  "--isa",  "scalar"};
    args.insert(args.end(), more);
    const ProcessResult run = RunLockstepCommand(args);
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
    const json object = json::parse(run.out);
    EXPECT_EQ(object["axes"][0]["cells"].size(), 2u) << run.out;
    return std::pair(object["comparisons"].get<size_t>(), object["models"].size());
  };
  // Two processes, logits and rows of each model.
  const auto [every, models] = comparisons({"--every-model"});
  EXPECT_EQ(every, 4 * models);
  const std::string adapter = WriteTestFile("p.gguf", {});
  ASSERT_EQ(RunLockstepCommand(
                {"synth", "--preset", "tiny-gqa-9x3-q8_0", "--lora", "3", "--out", adapter})
                .exit_code,
            0);
  EXPECT_EQ(comparisons({"--synthetic", "tiny-gqa-9x3-q8_0", "--lora", adapter}).first, 4u);
  const auto lines = [&](std::initializer_list<std::string> more) {
    std::vector<std::string> args = {
        "verify",  "--matrix", "--digests", "--synthetic", "tiny-gqa-9x3-q8_0",
        "--cache", "simple",   "--isa",     "scalar"};
    args.insert(args.end(), more);
    return RunLockstepCommand(args).out;
  };
  EXPECT_NE(lines({}), lines({"--lora", adapter}));
}

// A slice of what runs every night: one family, in a type with blocks of 256 and in one without.
std::vector<std::string> EveryType(std::initializer_list<std::string> more) {
  std::vector<std::string> args = {"verify", "--matrix", "--every-type", "--json"};
  args.insert(args.end(), more);
  return args;
}

TEST(MatrixCommandTest, AFamilyIsRunInEveryTypeOnEveryRowWithAndWithoutAnAdapter) {
  const ProcessResult run =
      RunLockstepCommand(EveryType({"--synthetic", "tiny-qwen3-5x1-f16", "--axis", "chunking"}));
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  const json object = json::parse(run.out);
  ASSERT_EQ(object["rows"].size(), 15u);
  std::set<std::string> digests, types;
  for (const json& row : object["rows"]) {
    EXPECT_EQ(row["combinations"], 8 * 2) << row.dump();
    EXPECT_EQ(row["verdict"], "equal") << row.dump();
    // Chunks of five kinds, of each the logits of three steps, the rows and the bytes.
    EXPECT_EQ(row["comparisons"], 8 * 2 * 5 * 5) << row.dump();
    digests.insert(row["digest"].get<std::string>());
    types.insert(row["weights"].get<std::string>());
  }
  EXPECT_EQ(digests.size(), 15u);
  EXPECT_EQ(types.size(), 15u);
  EXPECT_EQ(object["combinations"], 15 * 16);
  EXPECT_THAT(object["verdict"].get<std::string>(), HasSubstr("240 combinations"));
}

TEST(MatrixCommandTest, EveryFamilyAndTypeIsACaseOfSomeShard) {
  const ProcessResult run = RunLockstepCommand(EveryType({"--shard", "38/100"}));
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  const json object = json::parse(run.out);
  EXPECT_GE(object["rows"].size(), 2u) << object["rows"].dump();
  // Write paths, chunks, places in a batch, numbers of threads, and a kernel table at least.
  for (const json& row : object["rows"]) EXPECT_GE(row["cells"], 4 + 5 + 4 + 3 + 1);
}

TEST(MatrixCommandTest, EveryTypeFindsAPlantedControlAndRepeatsIt) {
  for (const std::string control : {"nudged-commit", "token-count", "unfused-rope"}) {
    const ProcessResult run = RunLockstepCommand(EveryType(
        {"--synthetic", "tiny-granite-6x3-q8_0", "--weights", "q3_k", "--control", control}));
    EXPECT_EQ(run.exit_code, 1) << control << run.out << run.err;
    const json object = json::parse(run.out);
    EXPECT_EQ(object["rows"][0]["verdict"], "DIFFERS");
    EXPECT_THAT(object["rows"][0]["command"].get<std::string>(),
                HasSubstr("--every-type --weights q3_k --control " + control));
  }
}

TEST(MatrixCommandTest, EveryTypeRefusesWhatItWouldNotUse) {
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--axis", "fork"},
                                               {"--weights", "q9_0"},
                                               {"--every-model"},
                                               {"--svg", "a.svg"},
                                               {"-n", "3"},
                                               {"--story", "q8_0"},
                                               {"--digests"}}) {
    std::vector<std::string> args = EveryType({});
    args.insert(args.end(), more.begin(), more.end());
    const ProcessResult run = RunLockstepCommand(args);
    EXPECT_EQ(run.exit_code, 2) << more[0] << run.out;
    EXPECT_THAT(run.err, HasSubstr(more[0] == "--weights" ? "choose one of f32" : "--"));
  }
  EXPECT_EQ(RunLockstepCommand(SmallMatrix({"--weights", "q8_0"})).exit_code, 2);
}

TEST(MatrixCommandTest, EveryAxisIsInTheJson) {
  const std::string table = WriteText("table.json", CompilerTable());
  const ProcessResult run =
      RunLockstepCommand(SmallMatrix({"--json", "--compilers", table, "--isa", "scalar"}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const json object = json::parse(run.out);
  EXPECT_EQ(object["outcome"], "equal") << object["verdict"];
  EXPECT_EQ(object["seed"], 1);
  for (const std::string name : {"write-path", "cache", "chunking", "batch", "threads", "isa",
                                 "compiler", "process", "rollback", "save", "fork"}) {
    const json* axis = Axis(object, name);
    ASSERT_NE(axis, nullptr) << name;
    EXPECT_TRUE((*axis)["control_caught"]) << axis->dump(2);
    for (const json& cell : (*axis)["cells"]) {
      const bool here = cell["verdict"] != "not available here";
      EXPECT_EQ(here, cell.contains("digest")) << cell.dump();
      EXPECT_EQ(here, cell["comparisons"] > 0) << cell.dump();
      EXPECT_TRUE(here || cell.contains("detail")) << cell.dump();
    }
  }
  EXPECT_EQ((*Axis(object, "threads"))["cells"].size(), 6u);
  EXPECT_EQ((*Axis(object, "compiler"))["cells"].size(), 1u);
}

TEST(MatrixCommandTest, APlantedControlIsADifferenceAndNamesTheCommandThatRepeatsIt) {
  const ProcessResult run = RunLockstepCommand(
      SmallMatrix({"--axis", "rollback", "--axis", "fork", "--control", "stale-row"}));
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_TRUE(run.out.starts_with("lockstep verify --matrix: seed 1\n")) << run.out;
  EXPECT_THAT(run.out, HasSubstr("rollback 1 rejected: DIFFERS"));
  EXPECT_THAT(run.out, Not(HasSubstr("fork fork: DIFFERS")));
  const std::string last = "--control stale-row --axis rollback\n";
  EXPECT_TRUE(run.out.ends_with(last)) << run.out;
  EXPECT_EQ(run.err, "") << "progress is for a terminal";
}

TEST(MatrixCommandTest, TheSecondProcessIsComparedAndItsControlFound) {
  const ProcessResult holds = RunLockstepCommand(SmallMatrix({"--axis", "process"}));
  EXPECT_EQ(holds.exit_code, 0) << holds.out << holds.err;
  EXPECT_THAT(holds.out, HasSubstr("process-id caught"));
  const ProcessResult planted =
      RunLockstepCommand(SmallMatrix({"--axis", "process", "--control", "process-id"}));
  EXPECT_EQ(planted.exit_code, 1) << planted.out << planted.err;
}

TEST(MatrixCommandTest, NothingToCompareIsUnproved) {
  const ProcessResult run = RunLockstepCommand(SmallMatrix(
      {"--axis", "write-path", "--cache", "quantized/q8_0+q8_0/w0", "--isa", "scalar"}));
  EXPECT_EQ(run.exit_code, 0) << run.out;
  const ProcessResult refusing =
      RunLockstepCommand({"verify", "--matrix", "--synthetic", "tiny-gqa-9x3-q8_0", "--axis",
                          "write-path", "--cache", "quantized/q8_0+q8_0/w0"});
  EXPECT_EQ(refusing.exit_code, 3) << "no commit, so its control cannot be seen\n" << refusing.out;
}

TEST(MatrixCommandTest, BuildsThatDifferAreFound) {
  std::string table = CompilerTable();
  const size_t digit = table.find("\",", table.find("\"lines\"")) - 1;
  table[digit] = table[digit] == '0' ? '1' : '0';
  const ProcessResult run = RunLockstepCommand(
      SmallMatrix({"--axis", "compiler", "--compilers", WriteText("bad.json", table)}));
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("compiler c++ 1 -O1: DIFFERS"));
}

TEST(MatrixCommandTest, AnotherMachinesDigestsAreValuesOfTheIsaAxis) {
  std::string lines = ProbeLines();
  const auto run = [&](const std::string& text) {
    return RunLockstepCommand(SmallMatrix({"--axis", "isa", "--aarch64", WriteText("arm", text)}));
  };
  EXPECT_EQ(run(lines).exit_code, 0);
  EXPECT_THAT(run(lines).out, HasSubstr("aarch64 scalar"));
  lines[lines.find('\n') - 1] ^= 1;
  EXPECT_EQ(run(lines).exit_code, 1);
  EXPECT_EQ(run("no digest\n").exit_code, 2);
}

TEST(MatrixCommandTest, PicturesAreWholeAndNeedNothingElse) {
  const std::string svg = WriteText("m.svg", ""), html = WriteText("m.html", "");
  const std::string file = WriteText("m.json", "");
  const ProcessResult run = RunLockstepCommand(
      SmallMatrix({"--axis", "fork", "--svg", svg, "--html", html, "--json-file", file}));
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  const std::string picture = FileText(svg);
  EXPECT_TRUE(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
  EXPECT_THAT(picture, HasSubstr("<title>fork, fork: equal"));
  EXPECT_THAT(picture, HasSubstr("prefers-color-scheme: dark"));
  const std::string page = FileText(html);
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  EXPECT_THAT(page, HasSubstr("<h1>Determinism matrix</h1>"));
  EXPECT_THAT(page, HasSubstr("<span class=\"outcome good\">EQUAL: "));
  EXPECT_THAT(page, HasSubstr("lockstep verify --matrix "));
  // The picture's boxes, and none of what the page says itself.
  const auto boxes = [](const std::string& text) {
    int count = 0;
    for (size_t at = 0; (at = text.find("<rect x=", at)) != text.npos; ++at) ++count;
    return count;
  };
  EXPECT_EQ(boxes(page), boxes(picture));
  EXPECT_GT(boxes(page), 4) << "the legend has four";
  EXPECT_THAT(page, Not(HasSubstr("class=\"title\"")));
  for (const char* foreign : {"<script", "<link", "src=", "@import", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(foreign)));
  }
  EXPECT_EQ(json::parse(FileText(file))["outcome"], "equal");
}

TEST(MatrixCommandTest, WrongUseNamesTheFlag) {
  EXPECT_EQ(RunLockstepCommand(SmallMatrix({"--axis", "weather"})).exit_code, 2);
  EXPECT_EQ(RunLockstepCommand(SmallMatrix({"--control", "weather"})).exit_code, 2);
  EXPECT_EQ(RunLockstepCommand(SmallMatrix({"--plant", "swap-kv:layer=0"})).exit_code, 2);
  EXPECT_EQ(RunLockstepCommand(SmallMatrix({"--compilers", "absent.json"})).exit_code, 2);
  const ProcessResult bad =
      RunLockstepCommand(SmallMatrix({"--compilers", WriteText("bad", "{\"compiler\": 1}\n")}));
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr("line 1"));
  const ProcessResult alone = RunLockstepCommand({"verify", "--axis", "fork"});
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("--axis"));
}

}  // namespace
}  // namespace lockstep::cli
