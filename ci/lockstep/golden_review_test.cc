// lockstep golden review, accept and reject, and ci/regenerate-goldens: the real programs on a tree
// of cases of their own.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "caches/file_io.h"
#include "caches/random.h"
#include "caches/temporary_folder.h"
#include "ci/lockstep/test_process.h"
#include "ci/lockstep/test_terminal.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kCase = R"(why = "Three tokens at once, then one more token."
covers = ["decode_step"]
caches = ["simple"]
max_length = 8
script = """
prefill cuts=3 tokens=TOKENS
decode n=1
"""
[model]
preset = "tiny-mha-4x4-f32"
seed = 1
)";

class GoldenReviewTest : public testing::Test {
 protected:
  GoldenReviewTest() {
    WriteWholeTextFile(root_ + "/gitconfig", "[user]\nname = Ada\nemail = ada@example.org\n");
    environment_ = {"CI=", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + root_ + "/gitconfig",
                    "SOURCE_DATE_EPOCH=1796032800", "HOME=" + root_};
    for (const char* scenario : {"a", "b"}) Write(scenario, 7);
    Golden({"check"});
    const ProcessResult first = Golden({"accept", "--all-because", "first recording of the cases"});
    EXPECT_EQ(first.exit_code, 0) << first.out << first.err;
  }

  std::string Folder() const { return root_ + "/cases"; }
  std::string Path(const std::string& scenario) const {
    return fmt::format("{}/{}/f32.golden", Folder(), scenario);
  }
  std::string Text(const std::string& scenario) const { return ReadWholeTextFile(Path(scenario)); }
  std::string LedgerText() const { return ReadWholeTextFile(root_ + "/ledger.jsonl"); }

  void Write(const std::string& scenario, int tokens) {
    std::string text(kCase);
    text.replace(text.find("TOKENS"), 6, fmt::format("{}", tokens));
    fs::create_directories(Folder() + "/" + scenario);
    WriteWholeTextFile(fmt::format("{}/{}/case.toml", Folder(), scenario), text);
  }
  // Both cases are other ones now, and pending files say so.
  void ChangeBoth() {
    for (const char* scenario : {"a", "b"}) Write(scenario, 8);
    const ProcessResult check = Golden({"check"});
    EXPECT_EQ(check.exit_code, 1) << check.out << check.err;
    EXPECT_THAT(check.out, HasSubstr("lockstep golden review"));
  }

  std::vector<std::string> Args(std::vector<std::string> args) const {
    args.insert(args.begin(), "golden");
    args.insert(args.end(), {"--folder", Folder()});
    return args;
  }
  ProcessResult Golden(const std::vector<std::string>& args) const {
    return RunLockstepCommand(Args(args), environment_);
  }
  // In a process of its own that becomes the program; for a terminal, or to be killed.
  int Become(std::vector<std::string> args) const {
    args = Args(args);
    args.insert(args.begin(), LOCKSTEP_BINARY);
    for (const std::string& entry : environment_) {
      const size_t equals = entry.find('=');
      ::setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
    }
    std::vector<char*> pointers;
    for (std::string& arg : args) pointers.push_back(arg.data());
    pointers.push_back(nullptr);
    ::execv(LOCKSTEP_BINARY, pointers.data());
    return 127;
  }

  const TemporaryFolder temporary_;
  const std::string root_ = temporary_.path();
  std::vector<std::string> environment_;
};

TEST_F(GoldenReviewTest, AKeyDecidesEachFile) {
  ChangeBoth();
  const std::string old_b = Text("b");
  const std::string old_a = Text("a");
  TestTerminal terminal([&] { return Become({"review"}); });
  const termios before = terminal.Mode();
  const auto press = [&](std::string_view key) {
    ASSERT_TRUE(terminal.WaitForKeyMode());
    terminal.Type(key);
  };
  EXPECT_THAT(terminal.WaitFor("q quit"),
              AllOf(HasSubstr("[1/2] a/f32.golden: "), HasSubstr("Three tokens at once"),
                    HasSubstr("by Ada <ada@example.org>: first recording of the cases"),
                    HasSubstr("tokens"), HasSubstr("a accept")));
  press("d");
  terminal.WaitFor("layer2 ffn_out: ");
  terminal.WaitFor("q quit");
  press("i");
  EXPECT_THAT(terminal.WaitFor("q quit"),
              HasSubstr("the likeliest token is another from step 0 on"));
  press("a");
  terminal.WaitFor("why are the new bits right?");
  terminal.Type("fix\r");
  terminal.WaitFor("'fix' is no reason");
  terminal.WaitFor("q quit");
  press("a");
  terminal.WaitFor("> ");
  terminal.Type("other tokens are fed\r");
  terminal.WaitFor("accepted a/f32.golden");
  terminal.WaitFor("[2/2] b/f32.golden: ");
  terminal.WaitFor("q quit");
  press("r");
  terminal.WaitFor("accepted 1, rejected 1, undecided 0");
  EXPECT_EQ(terminal.Wait(), 0);
  EXPECT_EQ(terminal.Mode().c_lflag, before.c_lflag);
  EXPECT_NE(Text("a"), old_a);
  EXPECT_EQ(Text("b"), old_b);
  EXPECT_FALSE(fs::exists(Path("b") + ".pending"));
  EXPECT_THAT(LedgerText(),
              AllOf(HasSubstr(R"("date":"2026-11-30T10:00:00Z","author":"Ada <ada@example.org>",)"
                              R"("case":"a","file":"f32.golden")"),
                    HasSubstr("other tokens are fed")));
  EXPECT_EQ(Golden({"check", "a"}).exit_code, 0);
  EXPECT_EQ(Golden({"check", "b"}).exit_code, 1);
}

TEST_F(GoldenReviewTest, SkippingAndQuittingDecideNothing) {
  ChangeBoth();
  const std::string old_ledger = LedgerText();
  TestTerminal terminal([&] { return Become({"review"}); });
  terminal.WaitFor("q quit");
  ASSERT_TRUE(terminal.WaitForKeyMode());
  terminal.Type("s");
  terminal.WaitFor("[2/2]");
  terminal.WaitFor("q quit");
  ASSERT_TRUE(terminal.WaitForKeyMode());
  terminal.Type("q");
  terminal.WaitFor("undecided 2");
  EXPECT_EQ(WEXITSTATUS(terminal.Wait()), 1);
  EXPECT_EQ(LedgerText(), old_ledger);
  EXPECT_TRUE(fs::exists(Path("a") + ".pending"));
}

TEST_F(GoldenReviewTest, TheSameByName) {
  ChangeBoth();
  const ProcessResult no_terminal = Golden({"review"});
  EXPECT_EQ(no_terminal.exit_code, 2);
  EXPECT_THAT(no_terminal.err, AllOf(HasSubstr("lockstep golden accept CASE --reason TEXT"),
                                     HasSubstr("lockstep golden reject CASE")));
  const ProcessResult shown = Golden({"review", "--markdown"});
  EXPECT_EQ(shown.exit_code, 1);
  EXPECT_THAT(shown.out, AllOf(HasSubstr("## Golden files: 2\n"), HasSubstr("`b/f32.golden`")));

  const ProcessResult unnamed = Golden({"accept", "--reason", "other tokens are fed"});
  EXPECT_EQ(unnamed.exit_code, 2);
  EXPECT_THAT(unnamed.err, HasSubstr("a/f32.golden, b/f32.golden"));
  const ProcessResult accepted = Golden({"accept", "a", "--reason", "other tokens are fed"});
  EXPECT_EQ(accepted.exit_code, 0) << accepted.err;
  EXPECT_THAT(accepted.out, AllOf(HasSubstr("accepted a/f32.golden: "), HasSubstr("ledger.jsonl")));
  EXPECT_EQ(Golden({"reject"}).exit_code, 2);
  const ProcessResult rejected = Golden({"reject", "b/f32.golden"});
  EXPECT_EQ(rejected.exit_code, 0) << rejected.err;
  EXPECT_THAT(rejected.out, HasSubstr("rejected b/f32.golden: "));
  EXPECT_EQ(Golden({"review", "--markdown"}).exit_code, 0);
}

TEST_F(GoldenReviewTest, AnOldPendingFileAndNobodyAreRefused) {
  ChangeBoth();
  Write("a", 9);
  const std::string old = Text("a");
  const ProcessResult refused = Golden({"accept", "a", "--reason", "other tokens are fed"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.out, AllOf(HasSubstr("is not what this binary computes now"),
                                 HasSubstr("REFUSED: nothing was accepted")));
  EXPECT_EQ(Text("a"), old);
  fs::remove(root_ + "/gitconfig");
  const ProcessResult nobody = Golden({"accept", "b", "--reason", "other tokens are fed"});
  EXPECT_EQ(nobody.exit_code, 2);
  EXPECT_THAT(nobody.err, HasSubstr("git config user.name"));
  environment_[0] = "CI=true";
  EXPECT_THAT(Golden({"reject", "b"}).err, HasSubstr("CI: is set"));
}

// golden/publish_test.cc kills at every call; here the whole program is killed, at moments that a
// seed chooses.
TEST_F(GoldenReviewTest, AKillAtAnyMomentLeavesWholeFiles) {
  ChangeBoth();
  const std::string ledger = LedgerText();
  const std::vector<std::string> accept = {"accept", "a", "b", "--reason", "other tokens are fed"};
  Random random(20261130);
  for (int round = 0; round < 12; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(stream);
      ::_exit(Become(accept));
    }
    ::usleep(static_cast<useconds_t>(random.Below(150'000)));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ASSERT_TRUE(LedgerText().starts_with(ledger));
    // Whole and known: each golden file can be read, and review knows all of what is left.
    const ProcessResult shown = Golden({"review", "--markdown"});
    ASSERT_NE(shown.exit_code, 2) << shown.err;
    for (const char* scenario : {"a", "b"}) {
      ASSERT_EQ(Golden({"show", scenario}).exit_code, 0);
    }
  }
  const ProcessResult again = Golden(accept);
  EXPECT_TRUE(again.exit_code == 0 || again.err.find("nothing waits") != std::string::npos)
      << again.out << again.err;
  EXPECT_EQ(Golden({"check"}).exit_code, 0);
}

// The script on copies of two cases.
struct Regenerated {
  int exit_code = -1;
  std::string markdown;
};
Regenerated Regenerate(const std::string& root, const std::string& folder,
                       const std::string& arguments, const std::vector<std::string>& environment) {
  std::string command = "env";
  for (const std::string& entry : environment) command += fmt::format(" '{}'", entry);
  command += fmt::format(
      " '{}/ci/regenerate-goldens' --binary '{}' --folder '{}' {} > '{}' 2> '{}'",
      LOCKSTEP_SOURCE_DIR, LOCKSTEP_BINARY, folder, arguments, root + "/out", root + "/err");
  const int status = std::system(command.c_str());
  return {WEXITSTATUS(status), ReadWholeTextFile(root + "/out")};
}

TEST_F(GoldenReviewTest, RegenerateGoldensPrintsMarkdownAndPassesReasonsOn) {
  const Regenerated nothing = Regenerate(root_, Folder(), "", environment_);
  EXPECT_EQ(nothing.exit_code, 0);
  EXPECT_EQ(nothing.markdown, "## Golden files: nothing changes\n\n");
  const Regenerated named = Regenerate(root_, Folder(), "a", environment_);
  EXPECT_EQ(named.exit_code, 0);
  EXPECT_EQ(named.markdown, nothing.markdown);

  Write("a", 8);
  const std::string old = Text("a");
  const Regenerated shown = Regenerate(root_, Folder(), "", environment_);
  EXPECT_EQ(shown.exit_code, 1);
  EXPECT_THAT(shown.markdown, AllOf(HasSubstr("| `a/f32.golden` | "), HasSubstr("`op0 run`"),
                                    HasSubstr("cache_key"), HasSubstr("Not accepted yet"),
                                    Not(HasSubstr("b/f32.golden"))));
  EXPECT_EQ(Text("a"), old);

  const Regenerated accepted =
      Regenerate(root_, Folder(), "a --reason 'other tokens are fed' --issue 17", environment_);
  EXPECT_EQ(accepted.exit_code, 0);
  EXPECT_THAT(
      accepted.markdown,
      AllOf(HasSubstr("| `a/f32.golden` | "), HasSubstr("Accepted by Ada <ada@example.org>"),
            HasSubstr("> other tokens are fed"), HasSubstr("Issue: 17")));
  EXPECT_NE(Text("a"), old);
  EXPECT_THAT(LedgerText(), HasSubstr(R"("reason":"other tokens are fed","issue":"17")"));
  EXPECT_EQ(Regenerate(root_, Folder(), "", environment_).exit_code, 0);
  EXPECT_EQ(Regenerate(root_, Folder(), "--reason", environment_).exit_code, 2);
  EXPECT_EQ(Regenerate(root_, Folder(), "--nonsense", environment_).exit_code, 2);
  EXPECT_EQ(Regenerate(root_, Folder(), "no-such-case", environment_).exit_code, 2);
}

}  // namespace
}  // namespace lockstep::cli
