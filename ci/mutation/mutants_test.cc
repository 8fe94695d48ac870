#include "ci/mutation/mutants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "ci/mutation/cpp_tokens.h"

namespace lockstep::mutation {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Every mutant of `text`, as the whole text.
std::vector<std::string> MutantsOf(const std::string& text) {
  std::vector<std::string> mutated;
  for (const Mutant& mutant : FindMutants(text)) mutated.push_back(ApplyMutant(mutant, text));
  return mutated;
}

TEST(MutantsTest, ComparisonsChange) {
  EXPECT_THAT(MutantsOf("return a < b;"), ElementsAre("return a <= b;"));
  EXPECT_THAT(MutantsOf("return a >= b;"), ElementsAre("return a > b;"));
  EXPECT_THAT(MutantsOf("return a == b;"), ElementsAre("return a != b;"));
  EXPECT_THAT(MutantsOf("std::vector<int> a, b;"), IsEmpty());
  EXPECT_THAT(MutantsOf("bool operator==(const A&, const A&);"), IsEmpty());
}

TEST(MutantsTest, WholeNumbersGoUpAndDown) {
  EXPECT_THAT(MutantsOf("return 7;"), ElementsAre("return 8;", "return 6;"));
  EXPECT_THAT(MutantsOf("return 0u;"), ElementsAre("return 1u;"));
  EXPECT_THAT(MutantsOf("return 1.5f + 0x10 + 1e3;"), IsEmpty());
}

TEST(MutantsTest, StatementsAreLeftOut) {
  EXPECT_THAT(MutantsOf("{ Clear(); }"), ElementsAre("{ ; }"));
  EXPECT_THAT(MutantsOf("{ a.b->Clear(c); }"), ElementsAre("{ ; }"));
  EXPECT_THAT(MutantsOf("{ a[i] = b; }"), ElementsAre("{ ; }"));
  EXPECT_THAT(MutantsOf("{ ++a; }"), ElementsAre("{ ; }"));
  EXPECT_THAT(MutantsOf("{ if (a) throw b; }"), ElementsAre("{ if (a) ; }"));
  EXPECT_THAT(MutantsOf("{ if (a) break; else b(); }"),
              ElementsAre("{ if (a) ; else b(); }", "{ if (a) break; else ; }"));
}

TEST(MutantsTest, DeclarationsAreNoStatements) {
  EXPECT_THAT(MutantsOf("{ int a = b; }"), IsEmpty());
  EXPECT_THAT(MutantsOf("{ Type& a = b(); }"), IsEmpty());
  EXPECT_THAT(MutantsOf("{ std::vector<int> a(b); }"), IsEmpty());
  EXPECT_THAT(MutantsOf("{ return a; }"), IsEmpty());
  EXPECT_THAT(MutantsOf("} A::A(int b) { return; }"), IsEmpty());
  EXPECT_THAT(MutantsOf("; } A::~A() { return; }"), IsEmpty());
  EXPECT_THAT(MutantsOf("for (; a; ++b) return;"), IsEmpty());
}

TEST(MutantsTest, TheFirstTwoArgumentsChangePlaces) {
  EXPECT_THAT(MutantsOf("return f(a + c, b(d, d));"), ElementsAre("return f(b(d, d), a + c);"));
  EXPECT_THAT(MutantsOf("return f(a, b, c);"), ElementsAre("return f(b, a, c);"));
  EXPECT_THAT(MutantsOf("void f(int a, int b);"), IsEmpty());
  EXPECT_THAT(MutantsOf("return f(a, a);"), IsEmpty());
}

TEST(MutantsTest, WhatIsNoBehaviourIsLeftAlone) {
  EXPECT_THAT(MutantsOf("// a < b\n/* 7 */ return \"a < 7\";"), IsEmpty());
  EXPECT_THAT(MutantsOf("#if A < 7\n#define B 7 \\\n  8\n#endif\n"), IsEmpty());
  EXPECT_THAT(MutantsOf("static_assert(sizeof(a) == 7);"), IsEmpty());
  EXPECT_THAT(MutantsOf("{ LS_CHECK(a < 7, \"a\"); }"), IsEmpty());
  EXPECT_THAT(MutantsOf("return R\"x(a < 7 )\" < 8)x\";"), IsEmpty());
}

TEST(MutantsTest, LinesAreCounted) {
  const std::string text = "/*\n*/\n\n  return a < b;  \n";
  const std::vector<Mutant> mutants = FindMutants(text);
  ASSERT_EQ(mutants.size(), 1u);
  EXPECT_EQ(mutants[0].line, 4);
  EXPECT_EQ(TrimmedLine(text, 4), "return a < b;");
  EXPECT_EQ(TrimmedLine(text, 3), "");
}

TEST(SampleTest, EachOnceInOrderAndByTheSeed) {
  EXPECT_THAT(Sample(3, 9, 1), ElementsAre(0u, 1u, 2u));
  const std::vector<size_t> sample = Sample(1000, 50, 7);
  EXPECT_EQ(sample.size(), 50u);
  EXPECT_TRUE(std::ranges::is_sorted(sample));
  EXPECT_EQ(std::set<size_t>(sample.begin(), sample.end()).size(), 50u);
  EXPECT_EQ(sample, Sample(1000, 50, 7));
  EXPECT_NE(sample, Sample(1000, 50, 8));
}

TEST(CppTokensTest, LiteralsEndWhereTheyEnd) {
  std::vector<std::string> texts;
  for (const Token& token : TokensOf(R"x(a"b\"c"'\''1'000u->d)x")) texts.emplace_back(token.text);
  EXPECT_THAT(texts, ElementsAre("a", R"("b\"c")", R"('\'')", "1'000u", "->", "d"));
}

}  // namespace
}  // namespace lockstep::mutation
