#include "ci/lockstep/manual.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "reports/run_process.h"

namespace lockstep::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

bool g_switch = false;
std::string g_text;

std::vector<Command> SomeCommands() {
  Command check{.name = "check",
                .summary = "Look, it's a check",
                .flags = {{"-n,--decode", "N", "steps", &g_text}, {"file", "FILE", "one", &g_text}},
                .run = [] { return ExitCode::kHolds; }};
  Command accept{.name = "accept", .summary = "Accept", .flags = {}, .run = {}};
  Command verify{.name = "verify",
                 .summary = "Prove it",
                 .flags = {{"--json", "", "as JSON\\n", &g_switch}},
                 .run = [] { return ExitCode::kHolds; },
                 .details = ".dot at the begin"};
  Command golden{.name = "golden", .summary = "Goldens", .flags = {}, .run = {}};
  golden.subcommands = {check, accept};
  return {golden, verify};
}

// What bash offers for the last of `words`.
std::string Completed(const std::vector<std::string>& words) {
  const TemporaryFolder temporary;
  const std::string folder = temporary.path();
  std::filesystem::create_directories(folder + "/place");
  WriteWholeTextFile(folder + "/script", BashCompletion(SomeCommands()));
  WriteWholeTextFile(folder + "/place/a-file", "");
  std::string line = "source ../script; COMP_WORDS=(";
  for (const std::string& word : words) line += " '" + word + "'";
  line += fmt::format("); COMP_CWORD={}; _lockstep; echo \"${{COMPREPLY[*]}}\"", words.size() - 1);
  RunProcess({.argv = {"bash", "--norc", "-c", line},
              .folder = folder + "/place",
              .log = folder + "/log",
              .seconds_max = 20});
  return ReadWholeTextFile(folder + "/log");
}

TEST(BashCompletion, KnowsCommandsGroupsAndFlags) {
  EXPECT_EQ(Completed({"lockstep", ""}), "golden verify\n");
  EXPECT_EQ(Completed({"lockstep", "ver"}), "verify\n");
  EXPECT_EQ(Completed({"lockstep", "verify", "--"}), "--help --json\n");
  EXPECT_EQ(Completed({"lockstep", "golden", ""}), "check accept\n");
  EXPECT_EQ(Completed({"lockstep", "golden", "check", "-"}), "--help -n --decode\n");
  EXPECT_EQ(Completed({"lockstep", "golden", "check", ""}), "a-file\n");
  EXPECT_EQ(Completed({"lockstep", "verify", "a-"}), "a-file\n");
  EXPECT_EQ(Completed({"lockstep", "nothing", "--"}), "\n");
}

TEST(FishCompletion, QuotesWhatItSays) {
  const std::string script = FishCompletion(SomeCommands());
  EXPECT_THAT(script, HasSubstr("-n '__fish_seen_subcommand_from golden' -f -a check -d "
                                "'Look, it'\\''s a check'"));
  EXPECT_THAT(script, HasSubstr("'__fish_seen_subcommand_from check' -s n -l decode -r -d"));
  EXPECT_THAT(script, HasSubstr("'__fish_seen_subcommand_from verify' -l json -d 'as JSON"));
}

TEST(ManualPage, NamesEveryCommandAndFlagAndBreaksNoRoff) {
  const std::string page = ManualPage(SomeCommands());
  EXPECT_THAT(page, HasSubstr(".SS lockstep golden check\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-n, \\-\\-decode\\fR \\fIN\\fR\nsteps\n"));
  EXPECT_THAT(page, HasSubstr(".TP\n\\fIFILE\\fR\none\n"));
  EXPECT_THAT(page, HasSubstr("as JSON\\en\n"));
  EXPECT_THAT(page, HasSubstr("\n\\&.dot at the begin\n"));
  EXPECT_THAT(page, Not(HasSubstr(".SS lockstep golden\n"))) << "a group is no command";
}

}  // namespace
}  // namespace lockstep::cli
