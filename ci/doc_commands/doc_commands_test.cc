// The commands of a page are found, planned and judged as docs/commands.toml says.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <functional>
#include <optional>

#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "ci/doc_commands/markdown.h"
#include "ci/doc_commands/rules.h"
#include "ci/doc_commands/trial.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> TextsOf(std::string_view page) {
  std::vector<std::string> texts;
  for (const DocCommand& command : CommandsOf("page.md", page)) texts.push_back(command.text);
  return texts;
}

std::string ErrorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(CommandsOfTest, ShellBlocksGiveTheirLines) {
  EXPECT_THAT(TextsOf("`not this`\n```sh\na b\n\n  c   # why\n```\nnot this\n```sh\nd\n```\n"),
              ElementsAre("a b", "c", "d"));
  EXPECT_THAT(TextsOf("1. x\n\n   ```bash\n   a\n   ```\n"), ElementsAre("a"));
}

TEST(CommandsOfTest, OtherBlocksGiveWhatFollowsAPrompt) {
  EXPECT_THAT(TextsOf("```\n$ a b\nprinted\n$ c\n```\n```toml\nd = 1\n```\n$ e\n"),
              ElementsAre("a b", "c"));
}

TEST(CommandsOfTest, LinesGoOnAfterABackslash) {
  EXPECT_THAT(TextsOf("```sh\na \\\n  b \\\n  c  # why\nd\n```\n"), ElementsAre("a b c", "d"));
  EXPECT_THAT(TextsOf("```\n$ a \\\n  b\nprinted\n```\n"), ElementsAre("a b"));
  // One that the end of its block cuts off is a command all the same.
  EXPECT_THAT(TextsOf("```sh\na \\\n```\nb\n"), ElementsAre("a"));
}

TEST(CommandsOfTest, ANumberSignInsideAWordOrQuotesIsNoComment) {
  EXPECT_THAT(TextsOf("```sh\na#b 'c # d' \"e # f\" \\# g # h\n# i\n```\n"),
              ElementsAre("a#b 'c # d' \"e # f\" \\# g"));
}

TEST(CommandsOfTest, RowsOfTablesGiveWhatIsTypedHere) {
  EXPECT_THAT(TextsOf("| command | what |\n|---|---|\n| `ci/a --b` | says `ci/c` |\n"
                      "| `build/gate/d` | e |\n"),
              ElementsAre("ci/a --b", "build/gate/d"));
  // A name, a folder, two commands, a link, the second cell, a placeholder's row, and a block.
  EXPECT_THAT(
      TextsOf("| `f32` | a |\n| `ci/` | b |\n| `ci/a`, `ci/b` | c |\n| [`ci/a`](../ci/a) | b |\n"
              "| a | `ci/b` |\n| `lockstep a N` | b |\n| `ci/a\n```\n| `ci/a` | b |\n```\n"),
      IsEmpty());
}

TEST(CommandsOfTest, KnowsTheirPlaces) {
  EXPECT_THAT(CommandsOf("p.md", "x\n```sh\na \\\n b\nc\n```\n"),
              ElementsAre(DocCommand{"p.md", 3, "a b"}, DocCommand{"p.md", 5, "c"}));
}

TEST(CommandsBelowTest, ReadsEveryPageButBuildsAndHiddenFolders) {
  const TemporaryFolder folder;
  for (const std::string name : {"README.md", "docs/a.md", ".github/b.md", "build/c.md",
                                 ".git/d.md", "docs/deep/e.md", "docs/f.txt"}) {
    std::filesystem::create_directories(std::filesystem::path(folder.File(name)).parent_path());
    WriteWholeTextFile(folder.File(name), fmt::format("```sh\n{}\n```\n", name));
  }
  std::vector<std::string> texts;
  for (const DocCommand& command : CommandsBelow(folder.path())) {
    EXPECT_EQ(command.text, command.page);
    texts.push_back(command.text);
  }
  EXPECT_THAT(texts, ElementsAre(".github/b.md", "README.md", "docs/a.md", "docs/deep/e.md"));
}

DocRules Rules(const std::string& text) { return ParseDocRules(text, "rules.toml"); }

TEST(DocRulesTest, RefusesWhatNobodyReads) {
  const auto error = [](const std::string& text) { return ErrorOf([&] { Rules(text); }); };
  EXPECT_THAT(error("[[command]]\ntext = 'a'\nexit = 1\nexpect = 'b'\n"),
              HasSubstr("rules.toml, line 4: 'expect' is not known here"));
  EXPECT_THAT(error("[[comand]]\ntext = 'a'\n"), HasSubstr("is 'command' meant?"));
  EXPECT_THAT(error("[[command]]\ntext = 'a'\n"), HasSubstr("says nothing"));
  EXPECT_THAT(error("[[command]]\ntext = 'a'\ntest = 'b'\nuntried = 'c'\n"),
              HasSubstr("more than one"));
  EXPECT_THAT(error("[[command]]\ntext = 'a'\nexit = 1\ntest = 'b'\n"), HasSubstr("more than one"));
  EXPECT_THAT(error("[[command]]\ntext = 'a'\nreplace = ['b', 'c', 'd']\n"),
              HasSubstr("no list of pairs"));
}

std::vector<DocTrial> Plan(const std::vector<std::string>& commands, const std::string& rules) {
  std::vector<DocCommand> all;
  for (const std::string& text : commands) all.push_back({"p.md", 1, text});
  return PlanTrials(all, Rules(rules), {{"corpus", "/tree/ci/fuzz --seconds 5 "}});
}

TEST(PlanTrialsTest, TheLongestRuleThatFitsIsTaken) {
  const std::string rules =
      "[[command]]\ntext = 'a b'\nreplace = ['b', 'c']\n"
      "[[command]]\ntext = 'a'\nexit = 1\n";
  const auto trials = Plan({"a b --x", "a bc", "a", "d"}, rules);
  EXPECT_EQ(trials[0].run, "a c --x");
  EXPECT_EQ(trials[1].run, "a bc");
  EXPECT_EQ(trials[1].rule.exit_code, 1);
  EXPECT_EQ(trials[2].rule.exit_code, 1);
  EXPECT_EQ(trials[3].run, "d");
  EXPECT_EQ(trials[3].rule.exit_code, 0);
}

TEST(PlanTrialsTest, WhatOthersRunOrNothingRunsIsNotRun) {
  const auto trials = Plan({"ci/fuzz --seconds 600", "ci/lint"},
                           "[[command]]\ntext = 'ci/fuzz'\ntest = 'corpus'\n"
                           "[[command]]\ntext = 'ci/lint'\nuntried = 'why'\n");
  EXPECT_THAT(trials[0].run, IsEmpty());
  EXPECT_THAT(trials[1].run, IsEmpty());
}

TEST(PlanTrialsTest, RulesThatDoNotFitThePagesAreErrors) {
  const auto error = [](const std::string& command, const std::string& rule) {
    return ErrorOf([&] { Plan({command}, "[[command]]\n" + rule); });
  };
  EXPECT_THAT(error("a", "text = 'b'\nexit = 1\n"), HasSubstr("no page has the command 'b'"));
  EXPECT_THAT(error("a b", "text = 'a'\nreplace = ['c', 'd']\n"), HasSubstr("does not have 'c'"));
  EXPECT_THAT(error("ci/fuzz", "text = 'ci/fuzz'\ntest = 'lint'\n"),
              HasSubstr("there is no test 'lint'"));
  // A test that runs another program proves nothing of this one.
  EXPECT_THAT(error("ci/test", "text = 'ci/test'\ntest = 'corpus'\n"), HasSubstr("not ci/test"));
}

class DocScratchTest : public testing::Test {
 protected:
  DocScratchTest() {
    for (const std::string name : {"docs", "caches", "build", ".git", "out"}) {
      std::filesystem::create_directories(temporary_.File("tree/" + name));
    }
    WriteWholeTextFile(temporary_.File("tree/docs/a.md"), "before");
    WriteWholeTextFile(temporary_.File("tree/build/b"), "");
    scratch_.emplace(temporary_.File("scratch"), temporary_.File("tree"),
                     temporary_.File("tree/out"));
  }

  std::string Fault(const std::string& line, const DocRule& rule = {}) const {
    return scratch_->Run(line, rule).fault;
  }

  TemporaryFolder temporary_;
  std::optional<DocScratch> scratch_;
};

TEST_F(DocScratchTest, LooksLikeTheTreeAndLeavesItAlone) {
  EXPECT_EQ(Fault("test -d caches && test -d build/gate && test ! -e build/b"), "");
  EXPECT_EQ(Fault("git rev-parse HEAD"), "");
  EXPECT_EQ(Fault("echo after > docs/a.md"), "");
  EXPECT_EQ(ReadWholeTextFile(temporary_.File("tree/docs/a.md")), "before");
}

TEST_F(DocScratchTest, JudgesTheExitCodeAndWhatWasPrinted) {
  EXPECT_EQ(Fault("exit 3"), "exit code 3 instead of 0");
  EXPECT_EQ(Fault("false | true"), "exit code 1 instead of 0");
  EXPECT_EQ(Fault("exit 3", {.exit_code = 3}), "");
  EXPECT_EQ(Fault("true", {.exit_code = 1}), "exit code 0 instead of 1");
  EXPECT_EQ(Fault("echo HOLDS >&2", {.prints = "HOLDS"}), "");
  EXPECT_EQ(Fault("echo holds", {.prints = "HOLDS"}), "does not print 'HOLDS'");
  EXPECT_EQ(Fault("kill -9 $$"), "signal 9");
  EXPECT_EQ(Fault("no-such-program"), "exit code 127 instead of 0");
}

}  // namespace
}  // namespace lockstep
