#include <gtest/gtest.h>

#include "ci/tidy/test_trees.h"

namespace lockstep::tidy {
namespace {

std::string Repeat(std::string_view text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

TEST(TidyShapeTest, ColumnsAreCountedInCodePoints) {
  const std::string fits = Repeat("x", kColumnsMax) + "\n";
  const std::string umlauts = Repeat("\xc3\xa4", kColumnsMax) + "\n";
  const std::string too_long = fmt::format("\n{}\n", Repeat("x", kColumnsMax + 1));
  EXPECT_EQ(Places(CheckLines, TreeOf({{"ci/a.cc", fits}, {"ci/b.cc", umlauts}})), "");
  EXPECT_EQ(Places(CheckLines, TreeOf({{"ci/a.cc", too_long}})), "ci/a.cc:2 line-length\n");
  EXPECT_EQ(Places(CheckLines, TreeOf({{"CMakeLists.txt", too_long}})),
            "CMakeLists.txt:2 line-length\n");
  EXPECT_EQ(Places(CheckLines, TreeOf({{"README.md", too_long}})), "");
  EXPECT_EQ(
      Places(CheckLines, TreeOf({{"ci/a.cc", fmt::format("// https://{}", too_long.substr(1))}})),
      "");
}

TEST(TidyShapeTest, BlanksAtTheEndTabsAndCarriageReturns) {
  EXPECT_EQ(Places(CheckLines, TreeOf({{"ci/a.cc", "a \n\tb\nc\r\nd\n"}})),
            "ci/a.cc:1 whitespace\nci/a.cc:2 whitespace\nci/a.cc:3 whitespace\n");
}

TEST(TidyShapeTest, FileLength) {
  EXPECT_EQ(Places(CheckFileLength, TreeOf({{"ci/a.cc", Repeat("\n", kFileLinesMax)}})), "");
  EXPECT_EQ(Places(CheckFileLength, TreeOf({{"ci/a.cc", Repeat("\n", kFileLinesMax + 1)}})),
            "ci/a.cc:0 file-length\n");
}

// A function of `lines` lines, its signature and closing brace among them.
std::string FunctionOf(size_t lines) {
  return fmt::format("int F(int a,\n      int b) {{\n{}}}\n", Repeat("  a += b;\n", lines - 3));
}

TEST(TidyShapeTest, FunctionLengthCountsSignatureAndBraces) {
  EXPECT_EQ(Places(CheckFunctionLength, TreeOf({{"ci/a.cc", FunctionOf(kFunctionLinesMax)}})), "");
  EXPECT_EQ(Places(CheckFunctionLength, TreeOf({{"ci/a.cc", FunctionOf(kFunctionLinesMax + 1)}})),
            "ci/a.cc:1 function-length\n");
}

TEST(TidyShapeTest, FunctionLengthInsideNamespacesAfterDeclarations) {
  const std::string text =
      "#define M(x) {\\\n  x\nnamespace a {\nnamespace {\n\nint Declared(int a,\n             int "
      "b);\n"
      "const int kTable[] = {\n    1,\n};\n// comment\n" +
      FunctionOf(kFunctionLinesMax + 1) + FunctionOf(10) + "}  // namespace\n}\n";
  EXPECT_EQ(Places(CheckFunctionLength, TreeOf({{"ci/a.cc", text}})),
            "ci/a.cc:12 function-length\n");
}

TEST(TidyShapeTest, LongTablesAndClassesAreNoFunctions) {
  const std::string table = "const int kTable[] = {\n" + Repeat("    1,\n", 90) + "};\n";
  const std::string type = "class A {\n" + Repeat("  int F() { return 1; }\n", 90) + "};\n";
  EXPECT_EQ(Places(CheckFunctionLength, TreeOf({{"ci/a.h", table + type}})), "");
}

TEST(TidyShapeTest, BracesInLiteralsAndCommentsDoNotCount) {
  const std::string text =
      "void F() {\n  Print(\"{\", '{');  // {\n}\n\n" + FunctionOf(kFunctionLinesMax + 1);
  EXPECT_EQ(Places(CheckFunctionLength, TreeOf({{"ci/a.cc", text}})),
            "ci/a.cc:5 function-length\n");
}

}  // namespace
}  // namespace lockstep::tidy
