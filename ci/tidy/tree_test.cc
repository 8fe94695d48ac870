#include "ci/tidy/tree.h"

#include <gtest/gtest.h>

#include "caches/error.h"
#include "caches/test_paths.h"
#include "ci/tidy/pattern.h"

namespace lockstep::tidy {
namespace {

TEST(TidyTreeTest, BlanksCommentsAndLiteralsAndKeepsColumns) {
  EXPECT_EQ(BlankCpp("a; // b\nc"), "a;     \nc");
  EXPECT_EQ(BlankCpp("a /* b\nc */ d"), "a     \n     d");
  EXPECT_EQ(BlankCpp(R"(f("a//b", 'c');)"), R"(f("    ", ' ');)");
  EXPECT_EQ(BlankCpp(R"("a\"b" c)"), R"("    " c)");
  EXPECT_EQ(BlankCpp(R"('\'' c)"), R"('  ' c)");
  EXPECT_EQ(BlankCpp("// it's\nint x;"), "       \nint x;");
}

TEST(TidyTreeTest, DigitSeparatorsOpenNoLiteral) {
  EXPECT_EQ(BlankCpp("x = 1'000'000; y;"), "x = 1'000'000; y;");
  EXPECT_EQ(BlankCpp("x = 0xff'ff; y;"), "x = 0xff'ff; y;");
  EXPECT_EQ(BlankCpp("c = u8'x'; y;"), "c = u8' '; y;");
}

TEST(TidyTreeTest, RawStringsEndAtTheirDelimiter) {
  EXPECT_EQ(BlankCpp("R\"(a\"b)\" c"), "R\"     \" c");
  EXPECT_EQ(BlankCpp("R\"x(a)\" b)x\" c"), "R\"         \" c");
}

TEST(TidyTreeTest, UnfinishedTextIsNoTrouble) {
  for (const std::string_view text : {"\"", "'", "/*", "//", "R\"", "R\"(", "\"\\", ""}) {
    EXPECT_EQ(BlankCpp(text).size(), text.size());
  }
}

TEST(TidyTreeTest, HashCommentsBeginAtAWord) {
  const SourceFile file = MakeSourceFile("ci/x", "#!/bin/sh\n$# a # b\n");
  EXPECT_EQ(file.language, Language::kShell);
  EXPECT_EQ(file.code[1], "$# a    ");
}

TEST(TidyTreeTest, KindsOfFiles) {
  EXPECT_TRUE(MakeSourceFile("a/b_test.cc", "").is_test());
  EXPECT_FALSE(MakeSourceFile("a/test.cc", "").is_test());
  EXPECT_TRUE(MakeSourceFile("a/b.h", "").is_header());
  EXPECT_EQ(MakeSourceFile("a/b/c.h", "").folder(), "a");
  EXPECT_EQ(MakeSourceFile("README.md", "").folder(), "");
  EXPECT_EQ(MakeSourceFile("a/CMakeLists.txt", "").language, Language::kCMake);
}

TEST(TidyTreeTest, ReadsThisCheckout) {
  const SourceTree tree = ReadTree(SourceDir());
  ASSERT_NE(tree.Find("CMakeLists.txt"), nullptr);
  ASSERT_NE(tree.Find("ci/tidy/tree_test.cc"), nullptr);
  EXPECT_EQ(tree.Find("ci/tidy"), nullptr);
  for (const SourceFile& file : tree.files) EXPECT_FALSE(file.path.starts_with("build/"));
}

TEST(TidyTreeTest, RefusesWhatIsNoFolder) {
  EXPECT_THROW(ReadTree(SourceDir() + "/CMakeLists.txt"), Error);
}

TEST(TidyPatternTest, FindsGroupsAndAllMatches) {
  const Pattern pattern("(a)(b)?");
  EXPECT_EQ(pattern.Find("xab").size(), 3u);
  EXPECT_EQ(pattern.Find("xab")[0], "ab");
  EXPECT_TRUE(pattern.Find("xyz").empty());
  EXPECT_EQ(pattern.FindAll("ab a ab", 0).size(), 3u);
  EXPECT_EQ(Pattern("x*").FindAll("axb", 0).size(), 4u);  // "", "x", "", ""
}

}  // namespace
}  // namespace lockstep::tidy
