#include <gtest/gtest.h>

#include "ci/tidy/test_trees.h"

namespace lockstep::tidy {
namespace {

struct Planted {
  std::string_view path;
  std::string_view line;
};

// One plant for each banned word, and for each alternative of its pattern that differs in kind.
TEST(TidyWordsTest, EveryBannedWordIsCaught) {
  constexpr Planted kPlants[] = {
      {"ci/a.cc", "std::random_device seed;"},
      {"ci/a.cc", "std::mt19937_64 rng(1);"},
      {"ci/a.cc", "std::default_random_engine rng;"},
      {"ci/a_test.cc", "std::uniform_int_distribution<int> d(0, 9);"},
      {"ci/a.cc", "std::normal_distribution d;"},
      {"ci/a.cc", "std::shuffle(a.begin(), a.end(), rng);"},
      {"ci/a.cc", "int x = rand();"},
      {"ci/a.cc", "srand (1);"},
      {"ci/a.cc", "int x = std::rand();"},
      {"engine/a.cc", "y = std::exp(x);"},
      {"caches/a.cc", "y = std::pow(x, 2);"},
      {"engine/a.h", "y = std::sin(x) + std::cos(x);"},
      {"engine/a.cc", "y = std::log2(x);"},
      {"engine/a.cc", "y = std::atan2(x, z);"},
      {"engine/a.cc", "y = std::tanh(x);"},
      {"engine/a.cc", "y = exp(x);"},
      {"engine/a.cc", "y = pow (x, 2);"},
      {"engine/a.cc", "y = expf(x);"},
      {"engine/a.cc", "y = ::sinf(x);"},
      {"engine/a.cc", "std::reduce(a.begin(), a.end());"},
      {"engine/a.cc", "std::atomic<float> sum;"},
      {"engine/a.cc", "const auto t = std::chrono::steady_clock::now();"},
      {"oracle/a.cc", "time(nullptr);"},
      {"oracle/a.cc", "std::cout << 1;"},
      {"oracle/a.cc", "#include <iostream>"},
      {"oracle/a.cc", "assert(x > 0);"},
      {"oracle/a_test.cc", "#include <cassert>"},
      {"oracle/a.cc", "std::format(\"{}\", 1);"},
      {"oracle/a.h", "#pragma once"},
      {"oracle/a.h", "using namespace lockstep;"},
      {"ci/a_test.cc", "const std::string path = testing::TempDir() + name;"},
      {"ci/a.cc", "auto path = std::filesystem::temp_directory_path();"},
      {"ci/a.cc", "mkdtemp(name.data());"},
      {"ci/a.cc", "::mkstemp(name.data());"},
      {"ci/CMakeLists.txt", "file(GLOB sources *.cc)"},
      {"ci/CMakeLists.txt", "file(GLOB_RECURSE sources *.cc)"},
      {"ci/CMakeLists.txt", "include(FetchContent)"},
      {"ci/CMakeLists.txt", "ExternalProject_Add(x)"},
      {"ci/CMakeLists.txt", "add_compile_options(-ffast-math)"},
      {"ci/build", "#!/bin/sh\nflags='-O3 -fassociative-math'"},
      {"CMakePresets.json", "\"CMAKE_CXX_FLAGS\": \"-Ofast\""},
      {"ci/build", "#!/bin/sh\ncmake -DCMAKE_CXX_FLAGS=-march=native"},
      {"ci/CMakeLists.txt", "add_compile_options(-ffp-contract=fast)"},
      {"ci/a.cc",
       "// FIX"
       "ME: later"},
      {"README.md",
       "XX"
       "X"},
      {"ci/a.cc",
       "// TO"
       "DO(me): later"},
      {"ci/a.cc",
       "open(\"/ho"
       "me/me/model.gguf\");"},
      {"README.md",
       "cd /wo"
       "rk/main"},
      {"ci/a.cc",
       "open(\"/t"
       "mp/x\");"},
  };
  for (const Planted& plant : kPlants) {
    const std::string found = Places(CheckBannedWords, TreeOf({{plant.path, plant.line}}));
    EXPECT_NE(found.find("banned-word"), std::string::npos) << plant.path << ": " << plant.line;
  }
}

TEST(TidyWordsTest, LooksLikeABannedWordAndIsNone) {
  constexpr Planted kInnocent[] = {
      {"ci/a.cc", "// std::random_device differs between machines"},
      {"ci/a.cc", "Print(\"std::shuffle\");"},
      {"ci/a.cc", "operand(1); brand(2); x.rand(); p->rand();"},
      {"engine/a.cc", "y = CanonicalExp(x); table.exp(x); z = table->pow(1);"},
      {"engine/a.h", "std::span<const float> cos(int32_t position) const;"},
      {"engine/a.cc", "y = std::fma(a, b, c) + std::sqrt(d) + std::exp_table;"},
      {"engine/a_test.cc", "y = std::exp(x) + expf(x);"},
      {"oracle/a.cc", "y = std::exp(x);"},
      {"engine/stopwatch.h", "std::chrono::steady_clock::now();"},
      {"caches/temporary_folder.cc", "mkdtemp(name.data());"},
      {"oracle/a.cc", "uptime(1); lifetime(2); x.time();"},
      {"oracle/a.cc", "static_assert(x > 0);"},
      {"oracle/a.cc", "using namespace std::literals;"},
      {"ci/aarch64", "#!/bin/sh\nreorder='-O3;-fassociative-math'"},
      {"ci/CMakeLists.txt", "# no file(GLOB), no FetchContent, no -ffast-math"},
      {"ci/CMakeLists.txt", "target_compile_options(x PRIVATE -mavx2 -ffp-contract=off)"},
      {"ci/a.cc",
       "// a/ho"
       "me/b and x.t"
       "mp and XX"
       "XY"},
      {"ci/a_test.cc",
       "open(\"/t"
       "mp/x\");"},
  };
  for (const Planted& plant : kInnocent) {
    EXPECT_EQ(Places(CheckBannedWords, TreeOf({{plant.path, plant.line}})), "") << plant.line;
  }
}

TEST(TidyWordsTest, MessageNamesTheReplacement) {
  Findings findings;
  CheckBannedWords(TreeOf({{"ci/a.cc", "\n  std::random_device d;\n"}}), &findings);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].line, 2u);
  EXPECT_EQ(findings[0].message,
            "'std::random_device' has no place here; use lockstep::Random with a printed seed");
}

TEST(TidyWordsTest, IterationOverUnorderedContainers) {
  constexpr std::string_view kMember =
      "class A {\n  std::unordered_map<std::string, std::vector<int>> index_;\n};\n";
  EXPECT_EQ(
      Places(CheckUnorderedIteration,
             TreeOf({{"ci/a.h", kMember},
                     {"ci/a.cc", "void F() {\n  for (const auto& x : index_) Use(x);\n}\n"}})),
      "ci/a.cc:2 unordered-iteration\n");
  EXPECT_EQ(Places(CheckUnorderedIteration,
                   TreeOf({{"ci/a.cc",
                            "std::unordered_set<int> ids;\nfor (int i : this->ids) {\n}\n"
                            "auto it = ids.begin();\n"
                            "for (auto x : std::unordered_set<int>{1, 2}) {\n}\n"}})),
            "ci/a.cc:2 unordered-iteration\nci/a.cc:5 unordered-iteration\n"
            "ci/a.cc:4 unordered-iteration\n");
}

TEST(TidyWordsTest, LookupsAndOrderedContainersAreFree) {
  EXPECT_EQ(Places(CheckUnorderedIteration,
                   TreeOf({{"ci/a.cc",
                            "std::unordered_map<int, int> ids;\nids.find(1) == ids.end();\n"
                            "std::vector<int> list;\nfor (int i : list) Use(ids.at(i));\n"
                            "for (int i = 0; i < 3; ++i) ids[i] = a ? b : c;\n"
                            "for (int i : other.list) {\n}\n"}})),
            "");
}

}  // namespace
}  // namespace lockstep::tidy
