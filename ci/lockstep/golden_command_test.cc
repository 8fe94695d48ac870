// lockstep golden check, list and show, as the binary does them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "caches/test_paths.h"
#include "ci/lockstep/test_process.h"
#include "golden/pending.h"
#include "golden/publish.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A copy of a few cases, to be changed. The environment of the tests may have CI set.
class GoldenCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = root_ + "/cases";
    for (const char* name : {"rollback-inside", "gate-legacy"}) {
      fs::create_directories(folder_ + "/" + name);
      for (const char* file : {"case.toml", "f32.golden"}) {
        const std::string path = std::string(name) + "/" + file;
        fs::copy_file(SourceDir() + "/golden/cases/" + path, folder_ + "/" + path);
      }
    }
    WriteLedger();
  }

  ProcessResult Golden(std::vector<std::string> args, const std::string& ci = {}) const {
    args.insert(args.begin(), "golden");
    args.insert(args.end(), {"--folder", folder_});
    return RunLockstepCommand(args, {"CI=" + ci});
  }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  // The reasons of the copies alone: a ledger is of a whole tree.
  void WriteLedger() const {
    const GoldenTree tree{.folder = folder_};
    std::vector<GoldenChange> changes;
    for (const PendingGolden& pending : FindPending(tree, Ledger())) {
      changes.push_back({pending.place, pending.text});
    }
    Publish(tree.LedgerPath(), changes, {.reason = "copies of cases of the tree"});
  }

  const TemporaryFolder temporary_;
  const std::string root_ = temporary_.path();
  std::string folder_;
};

TEST_F(GoldenCommandTest, HoldsWithZero) {
  ProcessResult result = Golden({"check"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("HOLDS: 2 cases, 2 files: 2 equal"));
  EXPECT_EQ(result.err, "");
  result = Golden({"check", "gate-legacy", "--isa", "scalar", "--threads", "3", "--legacy"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("HOLDS: 1 cases, 1 files"));
  result = Golden({"check", "--device", "host-executor"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("HOLDS: 2 cases, 2 files: 2 equal"));
}

TEST_F(GoldenCommandTest, ADifferenceIsOneWithItsPlaceAndHowToRepeatIt) {
  const ProcessResult result =
      Golden({"check", "--plant", "flip-v:layer=1,position=2,element=3,step=1,byte=3"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("changed     rollback-inside/f32.golden"),
                                HasSubstr("seq0 layer1 attention: "), HasSubstr("more\n"),
                                HasSubstr("repeat: lockstep golden check rollback-inside --folder"),
                                HasSubstr("DIFFERS: 2 cases")));
  EXPECT_FALSE(fs::exists(Path("rollback-inside/f32.golden.pending")));
}

TEST_F(GoldenCommandTest, LeavesAPendingFileUnlessCiIsSet) {
  const std::string pending = Path("gate-legacy/f32.golden.pending");
  const std::string golden = ReadWholeTextFile(Path("gate-legacy/f32.golden"));
  fs::remove(Path("gate-legacy/f32.golden"));
  ProcessResult result = Golden({"check"}, "true");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("missing     gate-legacy/f32.golden"),
                                HasSubstr("CI is set: no pending file was written")));
  EXPECT_FALSE(fs::exists(pending));
  result = Golden({"check"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("pending: " + pending),
                                HasSubstr("look at it: lockstep golden review --folder")));
  EXPECT_EQ(ReadWholeTextFile(pending), golden);

  fs::remove(pending);
  result = Golden({"check", "--pending-dir", Path("elsewhere")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_FALSE(fs::exists(pending));
  EXPECT_TRUE(fs::exists(Path("elsewhere/gate-legacy/f32.golden.pending")));
}

TEST_F(GoldenCommandTest, JsonIsOneObject) {
  WriteWholeTextFile(Path("gate-legacy/notes.txt"), "x");
  ProcessResult result = Golden({"check", "--json"});
  EXPECT_EQ(result.exit_code, 1);
  nlohmann::json json = nlohmann::json::parse(result.out);
  EXPECT_FALSE(json["holds"].get<bool>());
  ASSERT_EQ(json["files"].size(), 3u);
  EXPECT_EQ(json["files"][0]["state"], "equal");
  EXPECT_EQ(json["files"][1]["file"], "notes.txt");
  EXPECT_EQ(json["files"][1]["state"], "stray");

  result = Golden({"check", "rollback-inside", "--json", "--plant", "keep-row"});
  EXPECT_EQ(result.exit_code, 1);
  json = nlohmann::json::parse(result.out);
  const auto& change = json["files"][0]["changes"][0];
  EXPECT_EQ(change["place"], "op1 seq0 length");
  EXPECT_EQ(change["kind"], "changed");
  EXPECT_EQ(change["old"], "5");
  EXPECT_EQ(change["new"], "6");
}

TEST_F(GoldenCommandTest, ListsAndShowsWithoutRunning) {
  ProcessResult result = Golden({"list"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("gate-legacy"), HasSubstr("rollback-inside"),
                                HasSubstr("A rollback inside a block")));
  result = Golden({"show", "rollback-inside"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("tiny-mha-4x4-f32, seed 1"), HasSubstr("  rollback to=5"),
                                HasSubstr("op1 outcome done"), HasSubstr("gate[simple]")));
  result = Golden({"show", "rollback-inside", "--rows", "f32"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, ReadWholeTextFile(Path("rollback-inside/f32.golden")));
}

TEST_F(GoldenCommandTest, WrongUseIsTwo) {
  const auto expect_refused = [&](const std::vector<std::string>& args, const std::string& part) {
    const ProcessResult result = Golden(args);
    EXPECT_EQ(result.exit_code, 2) << part;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, AllOf(StartsWith("lockstep: error: "), HasSubstr(part)));
  };
  expect_refused({"check", "no-such-case"}, "golden list names the cases");
  expect_refused({"check", "--cache", "simpel"}, "simpel");
  expect_refused({"check", "--isa", "none"}, "none");
  expect_refused({"check", "--plant", "none"}, "none");
  expect_refused({"check", "--device", "gpu"}, "gpu");
  expect_refused({"check", "--device", "host-executor", "--cache", "simple"}, "leave out --cache");
  expect_refused({"show", "no-such-case"}, "no-such-case/case.toml");
  expect_refused({"show", "gate-legacy", "--rows", "f64"}, "has no 'f64'");
  expect_refused({"show"}, "golden show --help");
  const ProcessResult result = RunLockstepCommand({"golden", "check", "--folder", Path("none")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("give --folder"));
}

}  // namespace
}  // namespace lockstep::cli
