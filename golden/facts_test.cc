#include "golden/facts.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "caches/error.h"
#include "caches/random.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string AnyDigest(Random* random) { return Digest{random->Next(), random->Next()}.Hex(); }

// Any legal file: facts of random places, each once, in order.
GoldenFile AnyGolden(uint64_t seed) {
  Random random(seed);
  constexpr std::string_view kNames[] = {"run",
                                         "input",
                                         "embedding",
                                         "attn_norm",
                                         "cache_key",
                                         "ffn_out",
                                         "logits",
                                         "top5",
                                         "outcome",
                                         "length",
                                         "rows",
                                         "stored",
                                         "gate[simple]",
                                         "gate[quantized/q8_0+q4_0/w4]",
                                         "cache_value@3:17"};
  GoldenFile golden;
  golden.header = {.scenario = {random.Next(), random.Next()},
                   .model = {random.Next(), random.Next()},
                   .rows = "q8_0+q4_0-w4",
                   .arithmetic = random.Between(0, 9),
                   .recorded_by = "lockstep 0.1.0"};
  const int32_t count = random.Between(0, 40);
  for (int32_t i = 0; i < count; ++i) {
    Fact fact;
    fact.op = random.Between(0, 12);
    fact.step = random.Between(-1, 120);
    fact.sequence = random.Between(-1, 3);
    fact.layer = random.Between(-1, 30);
    fact.name = kNames[random.Below(std::size(kNames))];
    fact.value = random.Below(2) == 0 ? AnyDigest(&random)
                                      : fmt::format("at=0..{} it's \"x\"  y", random.Between(0, 9));
    golden.facts.push_back(std::move(fact));
  }
  std::ranges::sort(golden.facts, FactBefore);
  const auto twice = std::ranges::unique(golden.facts, [](const Fact& a, const Fact& b) {
    return !FactBefore(a, b) && !FactBefore(b, a);
  });
  golden.facts.erase(twice.begin(), twice.end());
  return golden;
}

// A step of one layer with its sums, as a recording has them.
GoldenFile Small() {
  GoldenFile golden;
  golden.header = {.scenario = {1, 2},
                   .model = {3, 4},
                   .rows = "f32",
                   .arithmetic = 1,
                   .recorded_by = "lockstep 0.1.0"};
  std::vector<Fact>& facts = golden.facts;
  facts = {{.op = 0, .name = "run", .value = "prefill cuts=1"},
           {.op = 0, .step = 0, .sequence = 0, .name = "input", .value = "at=0 ids=7"},
           {.op = 0, .step = 0, .sequence = 0, .layer = 0, .name = "attn_norm", .value = "aa"},
           {.op = 0, .step = 0, .sequence = 0, .layer = 0, .name = "cache_key", .value = "bb"}};
  facts.push_back({.op = 0, .step = 0, .sequence = 0, .layer = 0, .name = "sum", .value = {}});
  facts.back().value = SumOfFacts(std::span(facts).subspan(2, 2));
  facts.push_back({.op = 0, .step = 0, .sequence = 0, .name = "logits", .value = "cc"});
  facts.push_back({.op = 0, .step = 0, .sequence = 0, .name = "sum", .value = {}});
  facts.back().value = SumOfFacts(std::span(facts).subspan(1, 5));
  facts.push_back({.op = 0, .name = "outcome", .value = "done"});
  facts.push_back({.op = 0, .sequence = 0, .name = "length", .value = "1"});
  facts.push_back({.op = 0, .sequence = 0, .name = "gate[paged/4]", .value = "granted=1"});
  facts.push_back({.op = 0, .sequence = 0, .name = "gate[simple]", .value = "granted=1"});
  return golden;
}

std::string ErrorOf(const std::string& text) {
  try {
    ParseGoldenFile(text, "f32.golden");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(FactsTest, EveryFileParsesBack) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const GoldenFile golden = AnyGolden(seed);
    EXPECT_EQ(ParseGoldenFile(golden.Text(), "any"), golden) << golden.Text();
  }
  EXPECT_EQ(ParseGoldenFile(Small().Text(), "small"), Small());
}

// Lines taken away, doubled, exchanged or changed in one character: never another file than the
// one that it was. A change of `recorded-by` alone stays one.
TEST(FactsTest, WhatIsNoFileOfOursIsRefused) {
  const std::string text = Small().Text();
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    lines.push_back(text.substr(at, text.find('\n', at) + 1 - at));
  }
  const auto joined = [](const std::vector<std::string>& all) {
    std::string whole;
    for (const std::string& line : all) whole += line;
    return whole;
  };
  const auto expect_refused = [&](const std::string& edited) {
    if (edited == text) return;
    EXPECT_THAT(ErrorOf(edited), HasSubstr("f32.golden, line ")) << edited;
  };
  for (size_t i = 0; i < lines.size(); ++i) {
    auto edited = lines;
    edited.erase(edited.begin() + static_cast<int64_t>(i));
    expect_refused(joined(edited));
    edited = lines;
    edited.insert(edited.begin() + static_cast<int64_t>(i), lines[i]);
    expect_refused(joined(edited));
    if (i > 0) {
      edited = lines;
      std::swap(edited[i], edited[i - 1]);
      expect_refused(joined(edited));
    }
  }
  for (size_t cut = 0; cut < text.size(); ++cut) expect_refused(text.substr(0, cut));
  // Behind the header every character counts; in it, the digits do, which are compared.
  for (size_t at = text.find("\n\n"); at < text.size(); ++at) {
    for (const char c : {'0', ' ', '\n', '\x01', 'z'}) {
      std::string edited = text;
      edited[at] = c;
      expect_refused(edited);
    }
  }
}

TEST(FactsTest, ErrorsNameTheLineAndTheTrouble) {
  const std::string text = Small().Text();
  EXPECT_THAT(
      ErrorOf(Replaced(text, "op0 outcome done\n", "<<<<<<< ours\nop0 outcome done\n")),
      AllOf(HasSubstr("line 15"), HasSubstr("merge-conflict marker"), HasSubstr("take one side")));
  for (const std::string_view marker : {"=======", ">>>>>>> theirs", "||||||| base"}) {
    EXPECT_THAT(ErrorOf(fmt::format("{}\n{}", marker, text)),
                AllOf(HasSubstr("line 1"), HasSubstr("merge-conflict marker")));
  }
  EXPECT_THAT(ErrorOf(Replaced(text, "golden 1\n", "golden 2\n")), HasSubstr("has format 2"));
  EXPECT_THAT(ErrorOf(Replaced(text, "layer0 attn_norm aa", "layer0 attn_norm ab")),
              AllOf(HasSubstr("line 12"), HasSubstr("sum does not fit")));
  EXPECT_THAT(ErrorOf(Replaced(text, "outcome done", "outcome dune")),
              AllOf(HasSubstr("line 19"), HasSubstr("edited or merged by hand")));
  EXPECT_THAT(ErrorOf(Replaced(text, "attn_norm", "atn_norm")),
              AllOf(HasSubstr("line 10"), HasSubstr("'atn_norm' names no fact")));
  EXPECT_THAT(ErrorOf(Replaced(text, "op0 outcome", "outcome")), HasSubstr("line 15"));
  EXPECT_THAT(ErrorOf(text + "op1 run x\n"), HasSubstr("stands behind the end"));
  EXPECT_THAT(ErrorOf(""), AllOf(HasSubstr("line 1"), HasSubstr("cut off")));
}

TEST(FactsTest, ComparesInOrderOfComputationAndLeavesSumsOut) {
  const GoldenFile before = Small();
  GoldenFile after = Small();
  EXPECT_TRUE(CompareGoldens(before, after).empty());
  after.header.recorded_by = "lockstep 9";
  EXPECT_TRUE(CompareGoldens(before, after).empty());
  EXPECT_EQ(before.Identity(), after.Identity());

  after.header.arithmetic = 2;
  after.facts[3].value = "xx";  // cache_key
  after.facts[4].value = "its sum";
  after.facts.erase(after.facts.begin() + 8);  // length
  after.facts.push_back({.op = 1, .name = "run", .value = "decode n=1"});
  EXPECT_NE(before.Identity(), after.Identity());
  std::vector<std::string> sentences;
  for (const FactChange& change : CompareGoldens(before, after)) {
    sentences.push_back(change.Sentence());
  }
  EXPECT_THAT(
      sentences,
      ElementsAre("arithmetic: 2 instead of 1", "op0 step0 seq0 layer0 cache_key: xx instead of bb",
                  "op0 seq0 length: is gone, it was 1", "op1 run: is new: decode n=1"));
}

TEST(FactsTest, EachCacheHasItsOwnGates) {
  const auto names = [](const GoldenFile& golden) {
    std::vector<std::string> gates;
    for (const Fact& fact : golden.facts) {
      if (fact.base_name() == "gate") gates.push_back(fact.name);
    }
    return gates;
  };
  EXPECT_THAT(names(FactsOfCache(Small(), "simple")), ElementsAre("gate[simple]"));
  EXPECT_TRUE(names(FactsOfCache(Small(), "")).empty());
  EXPECT_EQ(FactsOfCache(Small(), "").facts.size(), Small().facts.size() - 2);
}

TEST(FactsTest, ElementsShowBitsAndDecimals) {
  EXPECT_EQ(ElementText(-0.5f), "0xbf000000 -0.5");
  EXPECT_EQ(ElementText(-0.0f), "0x80000000 -0");
  EXPECT_EQ(ElementText(-std::numeric_limits<float>::quiet_NaN()), "0x7fc00000 nan");
}

}  // namespace
}  // namespace lockstep
