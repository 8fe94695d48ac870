#include <gtest/gtest.h>

#include "ci/tidy/test_trees.h"

namespace lockstep::tidy {
namespace {

std::string In(std::string_view name, std::string_view text) {
  return fmt::format("namespace {} {{\n\n{}\n\n}}  // namespace {}\n", name, text, name);
}

TEST(TidyNamesTest, ATypeIsDefinedOnce) {
  const std::string one = In("lockstep", "struct Side {\n  int a = 0;\n};");
  EXPECT_EQ(Places(CheckTypeNames, TreeOf({{"ci/a.h", one}, {"ci/b.h", one}})),
            "ci/b.h:3 one-definition\n");
  for (const char* other : {"enum class Side : int { kA };", "class Side final : public X {\n};",
                            "struct Side {};", "union Side {\n};"}) {
    EXPECT_EQ(Places(CheckTypeNames, TreeOf({{"ci/a.h", one}, {"ci/b.cc", In("lockstep", other)}})),
              "ci/b.cc:3 one-definition\n")
        << other;
  }
}

TEST(TidyNamesTest, WhatNobodyElseSeesIsFree) {
  const std::string one = In("lockstep", "struct Side {\n};");
  for (const std::string& other :
       {In("lockstep::cli", "struct Side {\n};"), In("lockstep", "struct Side;"),
        In("lockstep", "namespace {\n\nstruct Side {\n};\n\n}  // namespace"),
        In("lockstep", "struct Outer {\n  struct Side {\n  };\n};"),
        In("lockstep", "class Outer::Side final {\n};\nclass Side::Inner {\n};"),
        In("lockstep", "void F(struct Side* side);\nconst char* k = \"struct Side {\";"),
        In("lockstep", "namespace {\nint a;\n}  // namespace\nstruct Other {\n};")}) {
    EXPECT_EQ(Places(CheckTypeNames, TreeOf({{"ci/a.h", one}, {"ci/b.cc", other}})), "") << other;
  }
  // Behind an unnamed namespace the named one goes on.
  EXPECT_EQ(Places(CheckTypeNames, TreeOf({{"ci/a.h", one},
                                           {"ci/b.cc", In("lockstep",
                                                          "namespace {\nint a;\n}  // namespace\n"
                                                          "struct Side {\n};")}})),
            "ci/b.cc:6 one-definition\n");
  EXPECT_EQ(Places(CheckTypeNames, TreeOf({{"ci/a.h", one}, {"ci/b_test.cc", one}})), "");
}

}  // namespace
}  // namespace lockstep::tidy
