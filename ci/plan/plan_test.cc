#include "ci/plan/plan.h"

#include <gmock/gmock.h>

#include "caches/error.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr std::string_view kWhole = R"(
ignore = ["docs/*"]
[[tier]]
name = "smoke"
minutes = 2
select = "diff"
[[part]]
name = "scripts"
run = "lockstep fuzz"
proof = "holds"
tiers = ["smoke"]
minutes = 1
paths = ["caches/*"]
)";

std::string With(std::string_view from, std::string_view to) {
  std::string text(kWhole);
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

std::string RefusalOf(const std::string& text) {
  try {
    ParsePlan(text, "lockstep.toml");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Plan, IsReadWhole) {
  const Plan plan = ParsePlan(kWhole, "lockstep.toml");
  EXPECT_EQ(plan.ignore, std::vector<std::string>{"docs/*"});
  ASSERT_EQ(plan.tiers.size(), 1);
  EXPECT_EQ(plan.tiers[0].minutes, 2);
  EXPECT_TRUE(plan.tiers[0].by_diff);
  ASSERT_EQ(plan.parts.size(), 1);
  EXPECT_EQ(plan.parts[0].run, "lockstep fuzz");
  EXPECT_EQ(plan.parts[0].proof, "holds");
  EXPECT_EQ(plan.parts[0].paths, std::vector<std::string>{"caches/*"});
}

TEST(Plan, AMisspeltKeyIsRefusedWithTheOneThatIsMeant) {
  EXPECT_THAT(RefusalOf(With("paths =", "path =")),
              HasSubstr("lockstep.toml, line 13: 'path' is not known here; is 'paths' meant?"));
  EXPECT_THAT(RefusalOf(With("ignore =", "ignored =")), HasSubstr("is 'ignore' meant?"));
  EXPECT_THAT(RefusalOf(With("[[part]]", "[[parts]]")), HasSubstr("is 'part' meant?"));
  EXPECT_THAT(RefusalOf(With("tiers = [\"smoke\"]", "tiers = [\"smokes\"]")),
              HasSubstr("line 11: there is no tier 'smokes'; is 'smoke' meant?"));
  EXPECT_THAT(RefusalOf(With("proof =", "xyzzy = 1\nproof =")),
              HasSubstr("'xyzzy' is not known here ("));
}

TEST(Plan, WhatCannotBeMeantIsRefused) {
  EXPECT_THAT(RefusalOf(With("proof = \"holds\"\n", "")), HasSubstr("'proof' is missing"));
  EXPECT_THAT(RefusalOf(With("\"diff\"", "\"some\"")), HasSubstr("neither diff nor all"));
  EXPECT_THAT(RefusalOf(With("\"scripts\"", "\"../up\"")), HasSubstr("is no name of letters"));
  EXPECT_THAT(RefusalOf(With("minutes = 2", "minutes = 0")), HasSubstr("from 1 to 1440"));
  EXPECT_THAT(RefusalOf(With("[[tier]]",
                             "[[tier]]\nname = \"deep\"\nminutes = 1\nselect = "
                             "\"all\"\n[[tier]]")),
              HasSubstr("no part is in the tier 'deep'"));
  EXPECT_THAT(RefusalOf(std::string(kWhole) + std::string(kWhole.substr(kWhole.find("[[part]]")))),
              HasSubstr("the name 'scripts' is there twice"));
  EXPECT_THAT(RefusalOf(""), HasSubstr("there is no [[tier]]"));
  EXPECT_THAT(RefusalOf("a = ["), HasSubstr("correct the TOML"));
}

// kWhole with more at its end.
std::string And(std::string_view more) { return std::string(kWhole) + std::string(more); }

constexpr std::string_view kPlugin = R"([[plugin]]
name = "cache"
library = "libcache.so"
)";

TEST(Plan, APlugInIsAPartThatConforms) {
  const Plan plain = ParsePlan(And(kPlugin), "lockstep.toml");
  ASSERT_EQ(plain.parts.size(), 2);
  const PlanPart& part = plain.parts[1];
  EXPECT_EQ(part.name, "conform-cache");
  EXPECT_EQ(part.run,
            "lockstep conform './libcache.so' --seed {seed} --json-file {out}/conform.json "
            "--html {out}/conform.html");
  EXPECT_EQ(part.proof, "CONFORMS");
  EXPECT_EQ(part.tiers, std::vector<std::string>{"smoke"}) << "all of them";
  EXPECT_EQ(part.minutes, 5);
  EXPECT_TRUE(part.paths.empty());

  const std::string all = And(kPlugin) +
                          "build = \"make; true\"\nlevel = 1\ntiers = [\"smoke\"]\n"
                          "minutes = 3\npaths = [\"src/*\"]\n[[part]]\nname = \"last\"\n"
                          "run = \"true\"\nproof = \"x\"\ntiers = [\"smoke\"]\nminutes = 1\n";
  const Plan plan = ParsePlan(all, "lockstep.toml");
  ASSERT_EQ(plan.parts.size(), 3);
  EXPECT_EQ(plan.parts[2].name, "last") << "in the order of the file";
  EXPECT_EQ(plan.parts[1].run,
            "(make; true) && lockstep conform './libcache.so' --level 1 --seed {seed} "
            "--json-file {out}/conform.json --html {out}/conform.html");
  EXPECT_EQ(plan.parts[1].minutes, 3);
  EXPECT_EQ(plan.parts[1].paths, std::vector<std::string>{"src/*"});
}

TEST(Plan, APlugInThatCannotBeMeantIsRefused) {
  const auto refusal = [](std::string_view from, std::string_view to) {
    std::string text(kPlugin);
    return RefusalOf(And(text.replace(text.find(from), from.size(), to)));
  };
  EXPECT_EQ(refusal("cache", "cache"), "accepted");
  EXPECT_THAT(refusal("library", "libary"), HasSubstr("line 14: 'library' is missing"));
  EXPECT_THAT(refusal("library", "levl = 1\nlibrary"),
              HasSubstr("line 16: 'levl' is not known here; is 'level' meant?"));
  EXPECT_THAT(refusal("library", "run = \"true\"\nlibrary"), HasSubstr("'run' is not known here"));
  EXPECT_THAT(refusal("library", "level = 5\nlibrary"),
              HasSubstr("'level' is no whole number from 0"));
  EXPECT_THAT(refusal("library", "tiers = [\"smoek\"]\nlibrary"),
              HasSubstr("line 16: there is no tier 'smoek'; is 'smoke' meant?"));
  EXPECT_THAT(refusal("\"cache\"", "\"a b\""), HasSubstr("'a b' is no name of letters"));
  EXPECT_THAT(RefusalOf(And(kPlugin) + std::string(kPlugin)),
              HasSubstr("line 18: the name 'conform-cache' is there twice"));
  EXPECT_THAT(RefusalOf(With("\"scripts\"", "\"conform-cache\"") + std::string(kPlugin)),
              HasSubstr("the name 'conform-cache' is there twice"));
  EXPECT_THAT(refusal("[[plugin]]", "[[plugins]]"), HasSubstr("is 'plugin' meant?"));
  EXPECT_THAT(refusal("[[plugin]]", "[plugin]"), HasSubstr("'plugin' is no list of tables"));
}

TEST(Plan, WhatMayBeSkippedIsWrittenOnce) {
  const auto with = [](std::string_view may_skip, std::string_view skips) {
    return And("may_skip = " + std::string(may_skip) + "\n" + std::string(skips));
  };
  constexpr std::string_view kSkips = "[skips]\nmachine = [\"Gpu.*\", \"Large.*\"]\n";
  const Plan plan = ParsePlan(with(R"(["A.*", "@machine", "B.*"])", kSkips), "lockstep.toml");
  EXPECT_EQ(plan.parts[0].may_skip, (std::vector<std::string>{"A.*", "Gpu.*", "Large.*", "B.*"}));

  EXPECT_THAT(RefusalOf(with(R"(["@machin"])", kSkips)),
              HasSubstr("line 14: [skips] has no 'machin'; is 'machine' meant?"));
  EXPECT_THAT(RefusalOf(with(R"(["@machine"])", "")), HasSubstr("[skips] has no 'machine' ("));
  EXPECT_THAT(RefusalOf(with(R"(["@machine", "Gpu.*"])", kSkips)),
              HasSubstr("line 14: 'may_skip' has 'Gpu.*' twice"));
  EXPECT_THAT(RefusalOf(with(R"(["A.*"])", kSkips)),
              HasSubstr("no part may skip '@machine'; take the list out"));
  EXPECT_THAT(RefusalOf(with(R"(["@a"])", "[skips]\na = [\"@b\"]\nb = [\"B.*\"]\n")),
              HasSubstr("line 16: '@b' names a list in a list"));
  EXPECT_THAT(RefusalOf(with(R"(["@a"])", "[skips]\na = \"A.*\"\n")),
              HasSubstr("'a' is no list of texts"));
  EXPECT_THAT(RefusalOf(with(R"(["A.*"])", "[[skips]]\na = [\"A.*\"]\n")),
              HasSubstr("'skips' is no table [skips]"));
}

TEST(Plan, TheBuiltInOneIsSoundAndHasThreeTiers) {
  const Plan plan = ParsePlan(DefaultPlan(), "built-in");
  EXPECT_EQ(plan.tiers.size(), 3);
  for (const PlanTier& tier : plan.tiers) {
    int32_t minutes = 0;
    for (const PlanPart& part : plan.parts) {
      const bool has_it = std::ranges::find(part.tiers, tier.name) != part.tiers.end();
      if (has_it) minutes += part.minutes;
    }
    // Each part may use up its limit, and the tier's may still be kept nearly.
    EXPECT_LE(minutes, tier.minutes + 2) << tier.name;
  }
  EXPECT_THROW(FindTier(plan, "smok"), Error);
}

}  // namespace
}  // namespace lockstep
