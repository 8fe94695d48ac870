// Keeps caches/CONTRACT.md true: clauses, tests and what headers cite must agree.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <ranges>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "caches/test_paths.h"

namespace lockstep::contract {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

std::string ReadText(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The first group of every match.
std::vector<std::string> Matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) {
    found.push_back((*it)[1]);
  }
  return found;
}

// Tests are "Suite.Name".
struct Sources {
  // Of every folder, each with the clause ids that its file cites.
  std::map<std::string, std::vector<std::string>> tests;
  std::set<std::string> own;       // of caches/contract/
  std::vector<std::string> cited;  // clause ids in the headers of caches/
};

std::set<std::string> TestsIn(const std::string& text) {
  std::set<std::string> tests;
  const std::regex regex(R"(\bTEST(?:_P|_F)?\(\s*(\w+)\s*,\s*(\w+)\s*\))");
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) {
    tests.insert(fmt::format("{}.{}", (*it)[1].str(), (*it)[2].str()));
  }
  return tests;
}

// Clause ids as headers cite them: "[U1]", "[R2, R3]".
std::vector<std::string> CitedIn(const std::string& text) {
  std::vector<std::string> ids;
  for (const std::string& list : Matches(text, R"(\[([A-Z]\d(?:, [A-Z]\d)*)\])")) {
    for (const std::string& id : Matches(list, R"(([A-Z]\d))")) ids.push_back(id);
  }
  return ids;
}

Sources ReadSources(const std::filesystem::path& root) {
  Sources sources;
  for (const char* folder :
       {"caches", "engine", "oracle", "properties", "golden", "reports", "ci"}) {
    if (!std::filesystem::exists(root / folder)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const std::string path = entry.path().string();
      if (path.ends_with("_test.cc")) {
        const std::string text = ReadText(path);
        const auto tests = TestsIn(text);
        for (const std::string& test : tests) sources.tests[test] = CitedIn(text);
        if (path.find("caches/contract/") != path.npos)
          sources.own.insert(tests.begin(), tests.end());
      } else if (path.ends_with(".h") && std::string(folder) == "caches") {
        std::ranges::copy(CitedIn(ReadText(path)), std::back_inserter(sources.cited));
      }
    }
  }
  return sources;
}

// The clause that a test is named after, as "U1" of "UpdateTest.U1_ErrorsChangeNothing", or "".
std::string ClauseOf(const std::string& test) {
  const std::string name = test.substr(test.find('.') + 1);
  const bool named = name.size() > 2 && std::isupper(static_cast<unsigned char>(name[0])) != 0 &&
                     std::isdigit(static_cast<unsigned char>(name[1])) != 0 &&
                     std::isdigit(static_cast<unsigned char>(name[2])) == 0;
  return named ? name.substr(0, 2) : "";
}

// From one heading to the next: id -> text.
std::map<std::string, std::string> Clauses(const std::string& text,
                                           std::vector<std::string>* faults) {
  std::map<std::string, std::string> clauses;
  const std::regex heading(R"((^|\n)### ([A-Z]\d)\. )");
  for (std::sregex_iterator it(text.begin(), text.end(), heading), end; it != end; ++it) {
    const auto start = static_cast<size_t>(it->position() + it->length());
    const std::string body = text.substr(start, text.find("\n##", start) - start);
    if (!clauses.emplace((*it)[2], body).second) {
      faults->push_back(fmt::format("clause {} stands twice", (*it)[2].str()));
    }
  }
  return clauses;
}

std::vector<std::string> TestNamesIn(const std::string& text) {
  return Matches(text, "`(\\w+Test\\.\\w+)`");
}

// One sentence for each fault.
std::vector<std::string> FaultsOf(const std::string& contract, const Sources& sources) {
  std::vector<std::string> faults;
  const auto clauses = Clauses(contract, &faults);
  for (const std::string& test : TestNamesIn(contract)) {
    if (!sources.tests.contains(test)) faults.push_back(fmt::format("{} does not exist", test));
  }
  for (const auto& [id, body] : clauses) {
    const auto names = TestNamesIn(body);
    const auto after_id = [&id = id](const std::string& test) { return ClauseOf(test) == id; };
    const auto cites = [&, &id = id](const std::string& test) {
      const auto found = sources.tests.find(test);
      return found != sources.tests.end() && std::ranges::count(found->second, id) > 0;
    };
    const bool checked = std::ranges::any_of(names, after_id) || std::ranges::any_of(names, cites);
    const bool excused = body.find("Not checked yet: ") != body.npos;
    if (excused && std::ranges::any_of(sources.tests | std::views::keys, after_id)) {
      faults.push_back(fmt::format("{} is said not to be checked, but a test names it", id));
    } else if (!checked && !excused) {
      faults.push_back(fmt::format("{} has no test that is named after it", id));
    }
    for (const std::string& test : sources.own) {
      if (after_id(test) && !excused && std::ranges::count(names, test) == 0) {
        faults.push_back(fmt::format("{} is not listed under {}", test, id));
      }
    }
  }
  for (const std::string& test : sources.own) {
    const std::string id = ClauseOf(test);
    if (!id.empty() && !clauses.contains(id)) faults.push_back(fmt::format("{}: no clause", test));
    if (test.starts_with("KnownWrong") && contract.find("`" + test + "`") == contract.npos) {
      faults.push_back(fmt::format("{} is not in the table of wrong answers", test));
    }
  }
  for (const std::string& row : Matches(contract, R"(\n\| ([a-z0-9-][^\n]*) \|(?=\n))")) {
    if (row.starts_with("wrong answer") || row.starts_with("---")) continue;
    if (TestNamesIn(row).empty()) faults.push_back(fmt::format("no test for: {}", row));
  }
  for (const std::string& id : sources.cited) {
    if (!clauses.contains(id)) faults.push_back(fmt::format("a header cites {}", id));
  }
  return faults;
}

TEST(ContractTextTest, AgreesWithTheTestsAndHeaders) {
  const std::filesystem::path root = SourceDir();
  const std::string contract = ReadText(root / "caches" / "CONTRACT.md");
  const Sources sources = ReadSources(root);
  EXPECT_GT(sources.own.size(), 60u);  // the sources were really read
  EXPECT_GT(sources.cited.size(), 20u);
  std::vector<std::string> faults;
  EXPECT_GE(Clauses(contract, &faults).size(), 33u);
  EXPECT_THAT(FaultsOf(contract, sources), IsEmpty());
}

// Every fault that the check is there for is found.
TEST(ContractTextTest, FindsPlantedFaults) {
  const std::string contract =
      "### U1. One\ntext\n\nTests: `UpdateTest.U1_Works`\n\n### U2. Two\n\nNot checked yet: "
      "later.\n\n"
      "## Known\n\n| wrong answer | clauses | test |\n|---|---|---|\n"
      "| a wrong answer | U1 | `KnownWrongTest.Answer` |\n";
  const Sources good = {.tests = {{"UpdateTest.U1_Works", {}}, {"KnownWrongTest.Answer", {}}},
                        .own = {"UpdateTest.U1_Works", "KnownWrongTest.Answer"},
                        .cited = {"U1", "U2"}};
  EXPECT_THAT(FaultsOf(contract, good), IsEmpty());

  Sources sources = good;
  sources.tests.erase("UpdateTest.U1_Works");
  EXPECT_THAT(FaultsOf(contract, sources), Contains("UpdateTest.U1_Works does not exist"));
  sources = good;
  sources.own.insert("UpdateTest.U1_More");
  EXPECT_THAT(FaultsOf(contract, sources), Contains("UpdateTest.U1_More is not listed under U1"));
  sources = good;
  sources.own.insert("OtherTest.X9_Unknown");
  EXPECT_THAT(FaultsOf(contract, sources), Contains("OtherTest.X9_Unknown: no clause"));
  sources = good;
  sources.tests["EngineTest.U2_Works"] = {};
  EXPECT_THAT(FaultsOf(contract, sources), Contains(HasSubstr("U2 is said not to be checked")));
  sources = good;
  sources.own.insert("KnownWrongTest.Other");
  EXPECT_THAT(FaultsOf(contract, sources), Contains(HasSubstr("KnownWrongTest.Other is not in")));
  sources = good;
  sources.cited.push_back("Z1");
  EXPECT_THAT(FaultsOf(contract, sources), Contains("a header cites Z1"));

  EXPECT_THAT(FaultsOf(contract + "### U1. Again\n", good), Contains("clause U1 stands twice"));
  EXPECT_THAT(FaultsOf(contract + "### U3. Three\n\nTests: `UpdateTest.U1_Works`\n", good),
              Contains("U3 has no test that is named after it"));
  sources = good;
  sources.tests["EngineTest.Works"] = {"U3"};
  EXPECT_THAT(FaultsOf(contract + "### U3. Three\n\nTests: `EngineTest.Works`\n", sources),
              IsEmpty());
  EXPECT_THAT(FaultsOf(contract + "| an untested answer | U1 | |\n", good),
              Contains(HasSubstr("no test for: an untested answer")));
}

TEST(ContractTextTest, ReadsTestsAndCitations) {
  EXPECT_THAT(TestsIn("TEST(A, B) {\nTEST_P(C, D_E) {}\nTEST_F(F,\n       G1) {"),
              testing::ElementsAre("A.B", "C.D_E", "F.G1"));
  EXPECT_THAT(CitedIn("see [U1] and [R2, R3], not [32] or [n, kv]"),
              testing::ElementsAre("U1", "R2", "R3"));
  EXPECT_EQ(ClauseOf("ATest.U1_Works"), "U1");
  EXPECT_EQ(ClauseOf("CodecTest.Q4GoldenBytes"), "Q4");
  EXPECT_EQ(ClauseOf("ATest.U12_Works"), "");
  EXPECT_EQ(ClauseOf("F16Test.Works"), "");
}

}  // namespace
}  // namespace lockstep::contract
