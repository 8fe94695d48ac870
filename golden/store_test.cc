#include "golden/store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "golden/pending.h"
#include "golden/publish.h"
#include "golden/store_test_util.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using store_test::Replaced;
using store_test::SmallCase;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kCase = SmallCase(R"("simple", "paged/2", "quantized/f16+f16/w0")");

// A tree of its own with the case "a" and its two golden files, which hold.
class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root_ + "/cases/a");
    options_.tree.folder = root_ + "/cases";
    options_.write_pending = true;
    Write("a/case.toml", kCase);
    Check();
    AcceptAll();
  }

  // What is pending, without asking whether it is right.
  void AcceptAll() {
    std::vector<GoldenChange> changes;
    for (const PendingGolden& pending :
         FindPending(options_.tree, Ledger::Read(options_.tree.LedgerPath()))) {
      changes.push_back({pending.place, pending.text});
    }
    Publish(options_.tree.LedgerPath(), changes, {.reason = "first recording of the case"});
  }

  void Write(const std::string& name, std::string_view text) {
    WriteWholeTextFile(options_.tree.folder + "/" + name, text);
  }
  std::string Read(const std::string& name) const {
    return ReadWholeTextFile(options_.tree.folder + "/" + name);
  }
  bool Exists(const std::string& name) const {
    return fs::exists(options_.tree.folder + "/" + name);
  }

  // "a/f32.golden": "equal", and so on.
  using States = std::map<std::string, std::string>;
  States Check() {
    States states;
    found_ = CheckGoldens(options_);
    for (const GoldenStatus& status : found_) {
      const bool first =
          states.emplace(status.scenario + "/" + status.file, GoldenStateName(status.state)).second;
      EXPECT_TRUE(first) << status.file;
      EXPECT_EQ(status.detail.empty(), status.state == GoldenState::kEqual) << status.file;
    }
    return states;
  }
  const GoldenStatus& Found(const std::string& file) const {
    for (const GoldenStatus& status : found_) {
      if (status.file == file) return status;
    }
    ADD_FAILURE() << file << " was not found";
    return found_.front();
  }

  const TemporaryFolder temporary_;
  const std::string root_ = temporary_.path();
  CheckOptions options_;
  std::vector<GoldenStatus> found_;
};

const std::map<std::string, std::string> kHolds = {{"a/f16.golden", "equal"},
                                                   {"a/f32.golden", "equal"}};

TEST_F(StoreTest, WhatWasRecordedHolds) {
  EXPECT_EQ(Check(), kHolds);
  EXPECT_THAT(Found("f32.golden").caches, ElementsAre("simple", "paged/2"));
  options_.record.threads = 3;
  options_.record.kernels = &SelectKernels("scalar");
  EXPECT_EQ(Check(), kHolds);
  options_.record.legacy = true;
  EXPECT_EQ(Check(), kHolds);
}

TEST_F(StoreTest, MissingLeavesAPendingFileThatIsTheRecording) {
  const std::string text = Read("a/f32.golden");
  fs::remove(options_.tree.GoldenPath("a", "f32"));
  EXPECT_EQ(Check(), (States{{"a/f16.golden", "equal"}, {"a/f32.golden", "missing"}}));
  EXPECT_EQ(Found("f32.golden").pending, options_.tree.PendingPath("a", "f32"));
  EXPECT_EQ(Read("a/f32.golden.pending"), text);
}

TEST_F(StoreTest, ChangedLeavesAPendingFileUntilItIsEqualAgain) {
  const std::string golden = Read("a/f32.golden");
  Write("a/case.toml", Replaced(kCase, "decode n=1", "decode n=2"));
  EXPECT_EQ(Check(), (States{{"a/f16.golden", "changed"}, {"a/f32.golden", "changed"}}));
  EXPECT_THAT(Found("f32.golden").detail, AllOf(HasSubstr("scenario: "), HasSubstr("more follow")));
  EXPECT_NE(ParseGoldenFile(Read("a/f32.golden.pending"), "pending"),
            ParseGoldenFile(golden, "golden"));
  EXPECT_EQ(Read("a/f32.golden"), golden);
  Write("a/case.toml", kCase);
  EXPECT_EQ(Check(), kHolds);
  EXPECT_FALSE(Exists("a/f32.golden.pending"));
}

TEST_F(StoreTest, AWrongEngineIsChangedAndItsPlaceIsSaid) {
  options_.record.subject = PlantedEngine("flip-k:layer=1,position=1,element=5,step=1,byte=3");
  EXPECT_EQ(Check()["a/f32.golden"], "changed");
  EXPECT_THAT(Found("f32.golden").detail, HasSubstr("op1 step1 seq0 layer1 attention: "));
  // The wrong path gives the right bits: what the caches granted is a fact of its own.
  options_.record.subject = PlantedEngine("refuse-reserve:layer=1");
  EXPECT_EQ(Check()["a/f32.golden"], "changed");
  EXPECT_THAT(Found("f32.golden").detail, HasSubstr("gate[simple]: granted=2 refused=1"));
  EXPECT_EQ(Found("f16.golden").state, GoldenState::kEqual);
}

TEST_F(StoreTest, PendingFilesGoWhereTheyAreWanted) {
  options_.tree.pending_dir = root_ + "/elsewhere";
  fs::remove(options_.tree.GoldenPath("a", "f32"));
  EXPECT_EQ(Check()["a/f32.golden"], "missing");
  EXPECT_FALSE(Exists("a/f32.golden.pending"));
  EXPECT_TRUE(fs::exists(root_ + "/elsewhere/a/f32.golden.pending"));
}

// A recording of a part of what a golden file says is nobody's golden file.
TEST_F(StoreTest, WritesNothingUnlessAskedForAWholeRecording) {
  fs::remove(options_.tree.GoldenPath("a", "f32"));
  const auto expect_nothing = [&] {
    EXPECT_EQ(Check()["a/f32.golden"], "missing");
    EXPECT_FALSE(Exists("a/f32.golden.pending"));
  };
  options_.write_pending = false;
  expect_nothing();
  options_.write_pending = true;
  options_.cache = "simple";
  expect_nothing();
  options_.cache = {};
  options_.record.legacy = true;
  expect_nothing();
}

TEST_F(StoreTest, OneCacheIsComparedWithItsOwnGates) {
  options_.cache = "paged/2";
  EXPECT_EQ(Check(), (States{{"a/f32.golden", "equal"}}));
  EXPECT_THAT(Found("f32.golden").caches, ElementsAre("paged/2"));
}

TEST_F(StoreTest, FilesThatNobodyProducesOrReads) {
  Write("a/q8_0.golden", Read("a/f32.golden"));
  Write("a/q8_0.golden.pending", "x");
  Write("a/notes.txt", "x");
  Write("README.md", "x");
  fs::create_directories(options_.tree.folder + "/gone");
  Write("gone/f32.golden", Read("a/f32.golden"));
  Write("gone/picture.svg", "x");
  States expected = kHolds;
  expected.insert({{"a/q8_0.golden", "obsolete"},
                   {"a/q8_0.golden.pending", "stray"},
                   {"a/notes.txt", "stray"},
                   {"README.md/", "stray"},
                   {"gone/f32.golden", "obsolete"},
                   {"gone/picture.svg", "stray"}});
  EXPECT_EQ(Check(), expected);
  EXPECT_THAT(options_.tree.CaseNames(), ElementsAre("a"));
}

TEST_F(StoreTest, UnreadableFilesAreSaidWithTheirLine) {
  Write("a/f32.golden", Replaced(Read("a/f32.golden"), "op1 run", "=======\nop1 run"));
  Write("a/f16.golden", Replaced(Read("a/f16.golden"), "outcome done", "outcome cancelled"));
  EXPECT_EQ(Check(), (States{{"a/f16.golden", "unreadable"}, {"a/f32.golden", "unreadable"}}));
  EXPECT_THAT(Found("f32.golden").detail, AllOf(HasSubstr("merge-conflict"), HasSubstr("line ")));
  EXPECT_TRUE(Exists("a/f32.golden.pending"));

  Write("a/case.toml", Replaced(kCase, "max_length", "most"));
  EXPECT_EQ(Check(), (States{{"a/case.toml", "unreadable"}}));
  EXPECT_THAT(Found("case.toml").detail, HasSubstr("'max_length' is missing"));
}

TEST_F(StoreTest, CachesThatDisagreeLeaveNoPendingFile) {
  // One block of two positions: the paged cache alone has to refuse the prefill.
  Write("a/case.toml", Replaced(kCase, "max_length", "blocks = 1\nmax_length"));
  EXPECT_EQ(Check()["a/f32.golden"], "disagree");
  EXPECT_THAT(Found("f32.golden").detail, HasSubstr("simple and paged/2"));
  EXPECT_THAT(Found("f32.golden").changes, Not(IsEmpty()));
  EXPECT_FALSE(Exists("a/f32.golden.pending"));
}

// Without its model file a case is skipped, and never obsolete; what can be said is.
TEST_F(StoreTest, WithoutItsModelFileACaseIsSkippedAndSaysSo) {
  const std::string absent =
      Replaced(kCase, "preset = \"tiny-mha-4x4-f32\"\nseed = 1",
               fmt::format("file = \"absent.gguf\"\ndigest = \"{}\"", std::string(32, '0')));
  Write("a/case.toml", absent);
  EXPECT_EQ(Check()["a/f32.golden"], "changed");
  EXPECT_THAT(Found("f32.golden").detail, HasSubstr("no longer what was recorded"));
  for (const char* rows : {"f16", "f32"}) {
    const std::string path = options_.tree.GoldenPath("a", rows);
    GoldenFile golden = ParseGoldenFile(ReadWholeTextFile(path), path);
    golden.header.scenario = ScenarioDigest(ReadScenario(options_.tree.folder, "a"));
    WriteWholeTextFile(path, golden.Text());
  }
  AcceptAll();
  EXPECT_EQ(Check(), (States{{"a/f16.golden", "skipped"}, {"a/f32.golden", "skipped"}}));
  EXPECT_THAT(Found("f32.golden").detail, HasSubstr("absent.gguf"));
  fs::remove(options_.tree.GoldenPath("a", "f16"));
  EXPECT_EQ(Check()["a/f16.golden"], "missing");
}

TEST_F(StoreTest, UnknownCasesAndFoldersAreErrors) {
  options_.cases = {"b"};
  EXPECT_THROW(Check(), Error);
  options_.cases = {};
  options_.tree.folder = root_ + "/nowhere";
  EXPECT_THROW(Check(), Error);
}

TEST_F(StoreTest, WhatTheLedgerDoesNotSayIsUnaccounted) {
  const std::string path = options_.tree.GoldenPath("a", "f32");
  // Another recorder: nothing that is compared, and yet an edit by hand.
  Write("a/f32.golden", Replaced(Read("a/f32.golden"), "recorded-by ", "recorded-by my "));
  EXPECT_EQ(Check(), (States{{"a/f16.golden", "equal"}, {"a/f32.golden", "unaccounted"}}));
  EXPECT_THAT(Found("f32.golden").detail, AllOf(HasSubstr("changed since it was accepted"),
                                                HasSubstr("lockstep golden accept")));
  options_.cases = {"a"};
  EXPECT_EQ(Check(), (States{{"a/f16.golden", "equal"}, {"a/f32.golden", "unaccounted"}}));
  options_.cases.clear();

  fs::remove(options_.tree.LedgerPath());
  EXPECT_EQ(Check(), (States{{"a/f16.golden", "unaccounted"}, {"a/f32.golden", "unaccounted"}}));
  AcceptAll();
  EXPECT_EQ(Check(), kHolds);
  fs::rename(options_.tree.folder + "/a", options_.tree.folder + "/b");
  EXPECT_EQ(Check(), (States{{"a/f16.golden", "unaccounted"},
                             {"a/f32.golden", "unaccounted"},
                             {"b/f16.golden", "unaccounted"},
                             {"b/f32.golden", "unaccounted"}}));
  WriteWholeTextFile(options_.tree.LedgerPath(), "<<<<<<< HEAD\n");
  EXPECT_THROW(Check(), Error);
}

TEST(GoldenTreeTest, TheLedgerIsBesideTheCases) {
  EXPECT_EQ(GoldenTree{}.LedgerPath(), "golden/ledger.jsonl");
  EXPECT_EQ(GoldenTree{.folder = "golden/cases/"}.LedgerPath(), "golden/ledger.jsonl");
  EXPECT_EQ(GoldenTree{.folder = "cases"}.LedgerPath(), "ledger.jsonl");
  EXPECT_EQ(GoldenTree{.folder = "/a/b/../cases"}.LedgerPath(), "/a/ledger.jsonl");
}

}  // namespace
}  // namespace lockstep
