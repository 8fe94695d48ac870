// docs/reference.md names everything that there is, and nothing else.
#include "ci/doc_commands/reference.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>

#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "reports/run_program.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

const std::string kRoot = LOCKSTEP_SOURCE_DIR;

TEST(ReferenceTest, ThePageNamesEveryCommandScriptAndKey) {
  const ProgramEnd manual = RunProgram({LOCKSTEP_BINARY, "manual"}, /*timeout_seconds=*/60);
  ASSERT_EQ(manual.exit_code, 0) << manual.err;
  ReferenceNeeds needs = {.commands = CommandsOfManual(manual.out),
                          .scripts = ScriptsBelow(kRoot, {"ci", "reports", ".clusterfuzzlite"})};
  EXPECT_GT(needs.commands.size(), 20u);
  EXPECT_GT(needs.scripts.size(), 10u);
  for (const std::string folder : {"model", "tokenizer", "gguf"}) {
    for (const auto& entry : std::filesystem::directory_iterator(kRoot + "/engine/" + folder)) {
      const std::string name = entry.path().filename();
      const bool reads = name.ends_with(".cc") && !name.ends_with("_test.cc") &&
                         name.find("synthetic") == name.npos && name.find("raw_") == name.npos;
      if (reads) needs.keys.merge(KeysIn(ReadWholeTextFile(entry.path().string())));
    }
  }
  EXPECT_GT(needs.keys.size(), 20u);
  const auto faults = ReferenceFaults(ReadWholeTextFile(kRoot + "/docs/reference.md"),
                                      "docs/reference.md", kRoot, needs);
  EXPECT_THAT(faults, IsEmpty()) << "in docs/reference.md";
}

TEST(ReferenceTest, TheManualGivesCommandsAndSummaries) {
  EXPECT_THAT(CommandsOfManual(".TH LOCKSTEP 1\n.SS lockstep device\\-check\nLook \\(well\\e\\-).\n"
                               ".TP\n\\fB\\-n\\fR\nnumber\n.SS lockstep manual\nPrint\n"),
              ElementsAre(Pair("lockstep device-check", "Look (well\\-)"),
                          Pair("lockstep manual", "Print")));
}

TEST(ReferenceTest, ScriptsAreFilesThatBeginAsOne) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.File("ci/deep"));
  std::filesystem::create_directories(folder.File("other"));
  WriteWholeTextFile(folder.File("ci/a"), "#!/bin/sh\n");
  WriteWholeTextFile(folder.File("ci/deep/b.sh"), "#!/bin/sh\n");
  WriteWholeTextFile(folder.File("ci/c.cc"), "int c;\n");
  WriteWholeTextFile(folder.File("other/d"), "#!/bin/sh\n");
  EXPECT_THAT(ScriptsBelow(folder.path().string(), {"ci"}), ElementsAre("ci/a", "ci/deep/b.sh"));
}

TEST(ReferenceTest, KeysAreLiteralsOfTheFormat) {
  EXPECT_THAT(
      KeysIn(R"(Key("rope.freq_base"), "general.name", "attn_q.weight", rope.theta, "a.b")"),
      UnorderedElementsAre("rope.freq_base", "general.name"));
}

std::vector<std::string> FaultsOf(const std::string& page) {
  const TemporaryFolder folder;
  for (const char* name : {"ci", "docs"}) std::filesystem::create_directories(folder.File(name));
  WriteWholeTextFile(folder.File("ci/build"), "#!/bin/sh\n");
  return ReferenceFaults(page, "docs/page.md", folder.path().string(),
                         {.commands = {{"lockstep run", "Continue a text"}},
                          .scripts = {"ci/build"},
                          .keys = {"general.name"}});
}

TEST(ReferenceTest, EachFaultIsNamed) {
  const std::string command = "| `lockstep run` | Continue a text |\n";
  const std::string script = "| [`ci/build`](../ci/build) | builds |\n";
  const std::string key = "| file | `general.name` |\n";
  EXPECT_THAT(FaultsOf(command + script + key), IsEmpty());
  EXPECT_THAT(FaultsOf(script + key),
              ElementsAre("there is no row '| `lockstep run` | Continue a text |'"));
  EXPECT_THAT(FaultsOf("| `lockstep run` | Go on |\n" + script + key),
              ElementsAre(HasSubstr("a row should be '| `lockstep run` | Continue a text |'")));
  EXPECT_THAT(FaultsOf(command + "| `lockstep walk` | Go |\n" + script + key),
              ElementsAre("the program has no command 'lockstep walk'"));
  // A mention in a sentence is no row.
  EXPECT_THAT(FaultsOf(command + "see `ci/build`\n" + key),
              ElementsAre("there is no row of 'ci/build'"));
  EXPECT_THAT(FaultsOf(command + script), ElementsAre(HasSubstr("'general.name' is not named")));
  EXPECT_THAT(FaultsOf(command + script + key + "[a](b.md#c) [d](#e) [f](https://g.example)\n"),
              ElementsAre("there is no 'b.md'"));
}

}  // namespace
}  // namespace lockstep
