#include <gtest/gtest.h>

#include "ci/tidy/test_trees.h"

namespace lockstep::tidy {
namespace {

TEST(TidyIncludesTest, FoldersBelowAndTheOwnOneAreFree) {
  const SourceTree tree = TreeOf({{"engine/a.cc",
                                   "#include \"engine/a.h\"\n"
                                   "#include \"engine/parts/b.h\"\n"
                                   "#include \"caches/kv.h\"\n"
                                   "#include <vector>\n"}});
  EXPECT_EQ(Places(CheckIncludeDirections, tree), "");
}

TEST(TidyIncludesTest, EveryFolderIsRefusedByThoseBelowIt) {
  for (size_t low = 0; low < std::size(kFolders); ++low) {
    for (size_t high = low + 1; high < std::size(kFolders); ++high) {
      const std::string path = fmt::format("{}/a.cc", kFolders[low]);
      const std::string upward = fmt::format("\n#include \"{}/b.h\"\n", kFolders[high]);
      EXPECT_EQ(Places(CheckIncludeDirections, TreeOf({{path, upward}})),
                path + ":2 include-direction\n");
      const std::string source = fmt::format("{}/a.cc", kFolders[high]);
      const std::string downward = fmt::format("#include \"{}/b.h\"\n", kFolders[low]);
      EXPECT_EQ(Places(CheckIncludeDirections, TreeOf({{source, downward}})), "");
    }
  }
}

TEST(TidyIncludesTest, PrivateHeaderOfAnotherFolder) {
  EXPECT_EQ(Places(CheckIncludeDirections,
                   TreeOf({{"oracle/a.cc", "#include \"engine/gguf/cursor.h\"\n"}})),
            "oracle/a.cc:1 include-private\n");
}

TEST(TidyIncludesTest, IncludeThatDoesNotStartAtTheRoot) {
  EXPECT_EQ(Places(CheckIncludeDirections,
                   TreeOf({{"oracle/a.cc", "#include \"b.h\"\n#include \"../engine/c.h\"\n"}})),
            "oracle/a.cc:1 include-root\noracle/a.cc:2 include-root\n");
}

TEST(TidyIncludesTest, IncludeInACommentIsNone) {
  EXPECT_EQ(
      Places(CheckIncludeDirections, TreeOf({{"caches/a.cc", "// #include \"engine/a.h\"\n"}})),
      "");
}

// A tree in which reports uses caches by way of engine, and by itself.
std::string PictureFindings(std::string_view picture) {
  return Places(CheckFolderPicture,
                TreeOf({{"ARCHITECTURE.md", picture},
                        {"engine/a.cc", "#include \"caches/a.h\"\n#include \"engine/b.h\"\n"},
                        {"reports/a.cc", "#include \"engine/a.h\"\n#include \"caches/a.h\"\n"}}));
}

TEST(TidyIncludesTest, ThePictureOfTheFoldersIsWhatTheyInclude) {
  EXPECT_EQ(PictureFindings("  reports --> engine\n  engine --> caches\n"), "");
  EXPECT_EQ(PictureFindings("reports --> engine\nengine --> caches\nreports --> caches\n"), "");
  // An arrow against the order, a way that is not there, and one of two arrows forgotten.
  EXPECT_EQ(PictureFindings("engine --> caches\ncaches --> engine\nreports --> engine\n"),
            "ARCHITECTURE.md:2 folder-picture\n");
  EXPECT_EQ(PictureFindings("reports --> engine\nengine --> caches\nci --> reports\n"),
            "ARCHITECTURE.md:3 folder-picture\n");
  EXPECT_EQ(PictureFindings("reports --> engine\nreports --> caches\n"),
            "ARCHITECTURE.md:0 folder-picture\n");
  EXPECT_EQ(PictureFindings("no picture\n"),
            "ARCHITECTURE.md:0 folder-picture\nARCHITECTURE.md:0 folder-picture\n"
            "ARCHITECTURE.md:0 folder-picture\n");
}

TEST(TidyIncludesTest, GuardMatchesThePath) {
  const std::string_view good =
      "// What it is.\n#ifndef LOCKSTEP_CACHES_DEEP_A_B_H_\n#define LOCKSTEP_CACHES_DEEP_A_B_H_\n"
      "#include <vector>\n#endif  // LOCKSTEP_CACHES_DEEP_A_B_H_\n";
  EXPECT_EQ(Places(CheckIncludeGuards, TreeOf({{"caches/deep/a_b.h", good}})), "");
  EXPECT_EQ(Places(CheckIncludeGuards, TreeOf({{"caches/deep/a_c.h", good}})),
            "caches/deep/a_c.h:1 include-guard\n");
  EXPECT_EQ(Places(CheckIncludeGuards, TreeOf({{"caches/a.h", "int x;\n"}})),
            "caches/a.h:1 include-guard\n");
}

TEST(TidyIncludesTest, GuardNeedsItsClosingComment) {
  EXPECT_EQ(Places(CheckIncludeGuards, TreeOf({{"ci/a.h",
                                                "#ifndef LOCKSTEP_CI_A_H_\n"
                                                "#define LOCKSTEP_CI_A_H_\n"
                                                "#endif\n"}})),
            "ci/a.h:1 include-guard\n");
}

TEST(TidyIncludesTest, MachineHeadersStayOutOfPublicHeaders) {
  for (const std::string_view header : {"immintrin.h", "arm_neon.h", "cuda_runtime.h"}) {
    const std::string text = fmt::format("#include <{}>\n", header);
    EXPECT_EQ(Places(CheckRestrictedHeaders, TreeOf({{"engine/a.h", text}})),
              "engine/a.h:1 machine-header\n");
    EXPECT_EQ(Places(CheckRestrictedHeaders,
                     TreeOf({{"engine/kernels/a.h", text}, {"engine/a.cc", text}})),
              "");
  }
}

TEST(TidyIncludesTest, OnlyOneFileIncludesCli11) {
  const std::string_view text = "#include <CLI/App.hpp>\n#include <CLI/Config.hpp>\n";
  EXPECT_EQ(Places(CheckRestrictedHeaders, TreeOf({{"ci/a.cc", text}})), "");
  EXPECT_EQ(Places(CheckRestrictedHeaders,
                   TreeOf({{"ci/a.cc", text}, {"ci/b.cc", "#include <CLI/App.hpp>\n"}})),
            "ci/b.cc:1 one-cli11\n");
}

}  // namespace
}  // namespace lockstep::tidy
