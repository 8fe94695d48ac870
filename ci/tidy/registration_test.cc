#include <gtest/gtest.h>

#include "ci/tidy/test_trees.h"

namespace lockstep::tidy {
namespace {

TEST(TidyRegistrationTest, ListedInTheOwnFolderOrAbove) {
  EXPECT_EQ(Places(CheckSourcesAreListed,
                   TreeOf({{"engine/CMakeLists.txt", "lockstep_test(t SOURCES a_test.cc b/c.cc)\n"},
                           {"engine/a_test.cc", ""},
                           {"engine/b/c.cc", ""}})),
            "");
}

TEST(TidyRegistrationTest, UnregisteredTestAndUnlistedSource) {
  EXPECT_EQ(Places(CheckSourcesAreListed,
                   TreeOf({{"caches/a_test.cc", ""}, {"caches/b.cc", ""}, {"caches/c.cu", ""}})),
            "caches/a_test.cc:0 unregistered-test\ncaches/b.cc:0 unlisted-source\n"
            "caches/c.cu:0 unlisted-source\n");
}

TEST(TidyRegistrationTest, AnotherNameACommentOrAnotherFolderIsNoListing) {
  EXPECT_EQ(Places(CheckSourcesAreListed,
                   TreeOf({{"caches/CMakeLists.txt", "x(aa_test.cc a_test.ccc)\n# a_test.cc\n"},
                           {"engine/CMakeLists.txt", "x(a_test.cc)\n"},
                           {"caches/a_test.cc", ""}})),
            "caches/a_test.cc:0 unregistered-test\n");
}

TEST(TidyRegistrationTest, HeaderThatNobodyIncludes) {
  EXPECT_EQ(Places(CheckHeadersAreIncluded, TreeOf({{"caches/a.cc", "#include \"caches/a.h\"\n"},
                                                    {"caches/a.h", ""},
                                                    {"caches/b.h", "#include \"caches/b.h\"\n"}})),
            "caches/b.h:0 unused-header\n");
}

TEST(TidyRegistrationTest, TopLevelEntriesAreThoseOfTheArchitecture) {
  EXPECT_EQ(Places(CheckTopLevel, TreeOf({{"README.md", ""},
                                          {".ci/run", ""},
                                          {"docs/a.md", ""},
                                          {"caches/a.cc", ""},
                                          {"ci/lockstep/a.cc", ""}})),
            "");
  EXPECT_EQ(
      Places(CheckTopLevel, TreeOf({{"util/a.cc", ""}, {"util/b.cc", ""}, {"notes.txt", ""}})),
      "util:0 top-level\nnotes.txt:0 top-level\n");
}

TEST(TidyRegistrationTest, AtMostSixBuildOptions) {
  const std::string six =
      "option(A \"\" ON)\noption(B \"\" ON)\noption(C \"\" ON)\n"
      "set(LOCKSTEP_D \"\" CACHE STRING \"\")\nset(LOCKSTEP_E \"x\"\n    CACHE PATH \"\")\n"
      "set(LOCKSTEP_G AUTO CACHE STRING \"\")\nset(LOCKSTEP_F \"\")\n# option(G)\n";
  EXPECT_EQ(Places(CheckBuildOptions, TreeOf({{"CMakeLists.txt", six}})), "");
  EXPECT_EQ(Places(CheckBuildOptions,
                   TreeOf({{"CMakeLists.txt", six}, {"ci/CMakeLists.txt", "option(H \"\" ON)\n"}})),
            "CMakeLists.txt:0 build-options\n");
}

constexpr std::string_view kContract = "- **V1** Reads.\n- **V12** and **U3** more.\n";

TEST(TidyRegistrationTest, EveryClauseIsInATestsName) {
  EXPECT_EQ(Places(CheckContractClauses, TreeOf({{"caches/CONTRACT.md", kContract},
                                                 {"caches/a_test.cc",
                                                  "TEST(ContractTest, V1_Reads) {}\n"
                                                  "TEST_F(ContractV12Test,\n       Longer) {}\n"
                                                  "TYPED_TEST(ContractTest, EmptyU3) {}\n"}})),
            "");
}

TEST(TidyRegistrationTest, ClauseWithoutATest) {
  EXPECT_EQ(Places(CheckContractClauses,
                   TreeOf({{"caches/CONTRACT.md", kContract},
                           {"caches/a_test.cc", "TEST(A, V12) {}\n// TEST(A, U3) {}\n"},
                           {"caches/a.cc", "TEST(A, U3)\n"}})),
            "caches/CONTRACT.md:1 untested-clause\ncaches/CONTRACT.md:2 untested-clause\n");
  EXPECT_EQ(Places(CheckContractClauses, TreeOf({{"caches/a_test.cc", ""}})), "");
}

}  // namespace
}  // namespace lockstep::tidy
