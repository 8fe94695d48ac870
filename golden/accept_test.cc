#include "golden/accept.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "engine/math.h"
#include "golden/store.h"
#include "golden/store_test_util.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using store_test::Replaced;
using store_test::SmallCase;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Computes something else from its `wrong`-th engine on, and right again after it.
class Unsteady final : public EngineDriver {
 public:
  Unsteady(Transformer& engine, bool wrong) : EngineDriver(engine), wrong_(wrong) {}

  std::span<const float> Step(std::span<const BatchSequence> batch) override {
    if (!wrong_) return EngineDriver::Step(batch);
    std::vector<BatchSequence> changed(batch.begin(), batch.end());
    std::vector<int32_t> tokens(batch[0].tokens.begin(), batch[0].tokens.end());
    tokens.back() ^= 1;
    changed[0].tokens = tokens;
    return EngineDriver::Step(changed);
  }

 private:
  bool wrong_;
};

EngineSubject WrongInRecording(int number) {
  auto made = std::make_shared<int>(0);
  return {.make_driver = [made, number](Transformer& engine) {
    return std::make_unique<Unsteady>(engine, ++*made == number);
  }};
}

class AcceptTest : public testing::Test {
 protected:
  AcceptTest() {
    ::unsetenv("CI");
    fs::create_directory(root_ + "/cases");
    request_.tree.folder = root_ + "/cases";
    request_.reason = "first recording of the case";
    request_.author = "Ada <ada@example.org>";
    request_.date = "2026-11-30T10:00:00Z";
    AddCase("a", R"("simple", "quantized/f16+f16/w0")");
    Check();
  }

  void AddCase(const std::string& name, const std::string& caches, std::string_view script = {}) {
    fs::create_directories(request_.tree.folder + "/" + name);
    std::string text = SmallCase(caches);
    if (!script.empty()) text = Replaced(text, "decode n=1", script);
    WriteWholeTextFile(request_.tree.folder + "/" + name + "/case.toml", text);
  }
  // Pending files as `lockstep golden check` leaves them.
  void Check() { CheckGoldens({.tree = request_.tree, .write_pending = true}); }

  std::vector<std::string> Accept(std::vector<std::string> names, const std::string& reason) {
    request_.names = std::move(names);
    request_.reason = reason;
    return Accepted();
  }
  std::vector<std::string> Accepted() {
    last_ = AcceptGoldens(request_);
    std::vector<std::string> names;
    for (const PendingGolden& pending : last_.accepted)
      names.push_back(pending.place.golden.Text());
    return names;
  }
  std::string Refused(std::vector<std::string> names, const std::string& reason) {
    try {
      Accept(std::move(names), reason);
    } catch (const Error& error) {
      return error.what();
    }
    return last_.refusals.empty() ? "accepted" : last_.refusals[0].sentence;
  }

  std::vector<std::string> Pending() const {
    std::vector<std::string> titles;
    for (const auto& pending : FindPending(request_.tree, TheLedger())) {
      titles.push_back(PendingTitle(pending));
    }
    return titles;
  }
  Ledger TheLedger() const { return Ledger::Read(root_ + "/ledger.jsonl"); }
  std::string GoldenPath(const char* name, const char* rows) const {
    return request_.tree.GoldenPath(name, rows);
  }
  bool Holds() {
    for (const GoldenStatus& status : CheckGoldens({.tree = request_.tree})) {
      if (!HoldsWith(status.state)) return false;
    }
    return CompareWithLedger(TheLedger(), GoldenDigests(request_.tree)).empty();
  }

  const TemporaryFolder temporary_;
  const std::string root_ = temporary_.path();
  AcceptRequest request_;
  AcceptResult last_;
};

TEST_F(AcceptTest, NewChangedAndObsoleteFilesAreAcceptedWithTheirReasons) {
  EXPECT_THAT(Pending(),
              ElementsAre(HasSubstr("a/f16.golden: new"), HasSubstr("a/f32.golden: new")));
  EXPECT_THAT(Accept({"a"}, "first recording of the case"),
              ElementsAre("a/f16.golden", "a/f32.golden"));
  EXPECT_TRUE(Holds());
  EXPECT_THAT(Pending(), IsEmpty());

  AddCase("a", R"("simple")", "decode n=2");
  Check();
  EXPECT_THAT(Pending(), ElementsAre(HasSubstr("a/f16.golden: no case produces it"),
                                     HasSubstr("facts change")));
  request_.issue = "17";
  EXPECT_THAT(Accept({"a/f32.golden"}, "one token more is decoded"), ElementsAre("a/f32.golden"));
  EXPECT_FALSE(Holds());
  EXPECT_THAT(Accept({"a/f16"}, "f16 rows have a case of their own"), ElementsAre("a/f16.golden"));
  EXPECT_TRUE(Holds());
  EXPECT_FALSE(fs::exists(GoldenPath("a", "f16")));
  const Ledger ledger = TheLedger();
  ASSERT_EQ(ledger.entries().size(), 4u);
  EXPECT_EQ(ledger.entries()[2].reason, "one token more is decoded");
  EXPECT_EQ(ledger.entries()[2].issue, "17");
  EXPECT_EQ(ledger.entries()[2].author, "Ada <ada@example.org>");
  EXPECT_EQ(ledger.entries()[2].date, "2026-11-30T10:00:00Z");
  EXPECT_EQ(ledger.entries()[2].arithmetic, kArithmeticVersion);
  EXPECT_EQ(ledger.entries()[3].new_digest, kNoGolden);
}

TEST_F(AcceptTest, BitsThatAreNotCertainAreRefused) {
  // One recording each: once, again, other kernels, other threads.
  std::vector<std::string> expected = {"is not what this binary computes now"};
  for (const AcceptVariation& variation : AcceptVariations()) {
    expected.push_back(fmt::format("recorded {} it gives other bits", variation.name));
  }
  ASSERT_EQ(expected.size(), AvailableKernels().size() > 1 ? 4u : 3u);
  for (size_t i = 0; i < expected.size(); ++i) {
    request_.record.subject = WrongInRecording(static_cast<int>(i) + 1);
    EXPECT_THAT(
        Refused({"a/f32"}, "first recording of the case"),
        AllOf(HasSubstr("a/f32.golden: "), HasSubstr(expected[i]), HasSubstr("first at op0")));
    EXPECT_FALSE(fs::exists(GoldenPath("a", "f32")));
    EXPECT_THAT(TheLedger().entries(), IsEmpty());
  }
  request_.record.subject = WrongInRecording(static_cast<int>(expected.size()) + 1);
  EXPECT_EQ(Refused({"a/f32"}, "first recording of the case"), "accepted");
}

TEST_F(AcceptTest, OneRefusalLeavesAllAsTheyWere) {
  AddCase("b", R"("simple")");
  Check();
  AddCase("b", R"("simple")", "decode n=2");  // its pending file is old now
  EXPECT_THAT(Refused({"a", "b"}, "first recording of both"),
              AllOf(HasSubstr("b/f32.golden"), HasSubstr("lockstep golden check")));
  EXPECT_FALSE(fs::exists(GoldenPath("a", "f32")));
  EXPECT_EQ(Refused({"a"}, "first recording of the case"), "accepted");
}

TEST_F(AcceptTest, CachesThatDisagreeAreRefused) {
  AddCase("a", R"("simple", "paged/2")");
  Check();
  request_.record.subject = WrongInRecording(2);  // of the second cache
  EXPECT_THAT(Refused({"a/f32"}, "first recording of the case"),
              AllOf(HasSubstr("caches that share it differ, paged/2"), HasSubstr("first at")));
}

TEST_F(AcceptTest, WrongUseIsRefusedWithWhatToDo) {
  EXPECT_THAT(Refused({"a"}, ""), HasSubstr("--reason: is not given"));
  for (const char* reason : {"fix", "update goldens", "  fix   it  ", "one\ntwo three four"}) {
    EXPECT_THAT(Refused({"a"}, reason), HasSubstr("--reason: ")) << reason;
  }
  EXPECT_THAT(Refused({"a"}, "not UTF-8 at all \xff"), HasSubstr("UTF-8"));
  EXPECT_THAT(Refused({}, "first recording of the case"),
              AllOf(HasSubstr("no case is named"), HasSubstr("a/f16.golden, a/f32.golden")));
  EXPECT_THAT(Refused({"b"}, "first recording of the case"), HasSubstr("b: nothing of this name"));
  request_.all_because = "first recording of the cases";
  EXPECT_THAT(Refused({"a"}, "first recording of the case"), HasSubstr("give one of them"));
  request_.all_because.clear();
  ::setenv("CI", "1", 1);
  EXPECT_THAT(Refused({"a"}, "first recording of the case"), HasSubstr("CI: is set"));
  EXPECT_THROW(RejectGoldens(request_.tree, {}), Error);
  ::unsetenv("CI");
  EXPECT_THAT(TheLedger().entries(), IsEmpty());
  {
    const GoldenLock other(request_.tree.folder);
    EXPECT_THAT(Refused({"a"}, "first recording of the case"), HasSubstr("right now"));
  }
  Accept({"a"}, "first recording of the case");
  EXPECT_THAT(Refused({"a"}, "first recording of the case"), HasSubstr("nothing waits"));
}

TEST_F(AcceptTest, ManyFilesNeedOneReasonForAll) {
  for (const char* name : {"b", "c", "d", "e"}) AddCase(name, R"("simple")");
  Check();
  ASSERT_EQ(Pending().size(), kAcceptFilesMax + 1);
  const std::vector<std::string> all = {"a", "b", "c", "d", "e"};
  EXPECT_THAT(Refused(all, "first recording of the cases"),
              AllOf(HasSubstr("6 files at once"), HasSubstr("--all-because")));
  request_.names.clear();
  request_.reason.clear();
  request_.all_because = "one two";
  EXPECT_THROW(Accepted(), Error);
  request_.all_because = "first recording of the cases";
  EXPECT_EQ(Accepted().size(), kAcceptFilesMax + 1);
  EXPECT_TRUE(Holds());
  EXPECT_EQ(TheLedger().entries()[0].reason, "first recording of the cases");
}

TEST_F(AcceptTest, ARaisedArithmeticVersionIsAReasonForAll) {
  for (const char* name : {"b", "c", "d", "e"}) AddCase(name, R"("simple")");
  Check();
  // Golden files of an older version.
  for (const PendingGolden& pending : FindPending(request_.tree, Ledger())) {
    GoldenFile old = *pending.after;
    old.header.arithmetic = kArithmeticVersion - 1;
    WriteWholeTextFile(pending.place.path, old.Text());
  }
  EXPECT_EQ(Accept({"a", "b", "c", "d", "e"}, "arithmetic version raised").size(), 6u);
  EXPECT_TRUE(Holds());
}

TEST_F(AcceptTest, AGoldenFileWithoutAReasonIsOnlyAcceptedAsWhatIsComputed) {
  const std::string path = GoldenPath("a", "f32");
  fs::rename(request_.tree.PendingPath("a", "f32"), path);
  EXPECT_THAT(Pending(), ElementsAre(HasSubstr("new"), HasSubstr("the ledger has no reason")));
  EXPECT_THAT(Accept({"a/f32"}, "first recording of the case"), ElementsAre("a/f32.golden"));
  EXPECT_THAT(Pending(), ElementsAre(HasSubstr("a/f16.golden: new")));

  GoldenFile edited = ParseGoldenFile(ReadWholeTextFile(path), path);
  edited.facts.back().value = "granted=9 refused=0 commits=9 updates=0";
  WriteWholeTextFile(path, edited.Text());
  EXPECT_FALSE(CompareWithLedger(TheLedger(), GoldenDigests(request_.tree)).empty());
  EXPECT_THAT(Refused({"a/f32"}, "edited by hand, so what"),
              HasSubstr("the golden file is not what this binary computes"));
  EXPECT_FALSE(Holds());
}

TEST_F(AcceptTest, RejectingDropsThePendingFileAlone) {
  Accept({"a"}, "first recording of the case");
  const std::string golden = ReadWholeTextFile(GoldenPath("a", "f32"));
  const std::string ledger = TheLedger().text();
  AddCase("a", R"("simple", "quantized/f16+f16/w0")", "decode n=2");
  Check();
  const std::vector<std::string> names = {"a/f32"};
  EXPECT_EQ(RejectGoldens(request_.tree, names).size(), 1u);
  EXPECT_EQ(ReadWholeTextFile(GoldenPath("a", "f32")), golden);
  EXPECT_FALSE(fs::exists(request_.tree.PendingPath("a", "f32")));
  EXPECT_TRUE(fs::exists(request_.tree.PendingPath("a", "f16")));
  EXPECT_THROW(RejectGoldens(request_.tree, names), Error);
  EXPECT_EQ(RejectGoldens(request_.tree, {}).size(), 1u);
  EXPECT_THROW(RejectGoldens(request_.tree, {}), Error);
  EXPECT_EQ(TheLedger().text(), ledger);
  AddCase("a", R"("simple")", "decode n=1");
  EXPECT_THROW(RejectGoldens(request_.tree, std::vector<std::string>{"a/f16"}), Error)
      << "an obsolete golden file has no pending one";
}

// The ledger was written and nothing else, as after a kill.
TEST_F(AcceptTest, AnInterruptedAcceptanceIsFinished) {
  const auto interrupt = [&] {
    Ledger ledger = TheLedger();
    const std::string text = ReadWholeTextFile(request_.tree.PendingPath("a", "f32"));
    ledger.Append({.date = request_.date,
                   .author = request_.author,
                   .golden = {"a", "f32.golden"},
                   .old_digest = ledger.DigestOf({"a", "f32.golden"}),
                   .new_digest = GoldenTextDigest(text),
                   .reason = "first recording of the case",
                   .issue = {},
                   .arithmetic = 1});
    WriteWholeTextFile(root_ + "/ledger.jsonl", ledger.text());
  };
  interrupt();
  EXPECT_THAT(Accept({"a/f32"}, "first recording of the case"), IsEmpty());
  EXPECT_THAT(last_.finished, ElementsAre(GoldenName{"a", "f32.golden"}));
  EXPECT_EQ(TheLedger().entries().size(), 1u);
  EXPECT_TRUE(fs::exists(GoldenPath("a", "f32")));

  AddCase("a", R"("simple", "quantized/f16+f16/w0")", "decode n=2");
  Check();
  interrupt();
  EXPECT_THAT(Accept({}, ""), IsEmpty());
  EXPECT_THAT(last_.finished, ElementsAre(GoldenName{"a", "f32.golden"}));
  EXPECT_THAT(Accept({"a"}, "the other file of the case"), ElementsAre("a/f16.golden"));
  EXPECT_TRUE(Holds());
}

TEST_F(AcceptTest, PendingFilesMayBeElsewhere) {
  RejectGoldens(request_.tree, {});
  request_.tree.pending_dir = root_ + "/pending";
  EXPECT_THAT(Pending(), IsEmpty());
  Check();
  EXPECT_THAT(Accept({"a/f32"}, "first recording of the case"), ElementsAre("a/f32.golden"));
  EXPECT_TRUE(fs::exists(GoldenPath("a", "f32")));
  EXPECT_FALSE(fs::exists(root_ + "/pending/a/f32.golden.pending"));
  EXPECT_EQ(RejectGoldens(request_.tree, std::vector<std::string>{"a"}).size(), 1u);
  EXPECT_FALSE(fs::exists(root_ + "/pending/a/f16.golden.pending"));
}

TEST_F(AcceptTest, TheOutlineSaysWhatChanged) {
  Accept({"a"}, "first recording of the case");
  AddCase("a", R"("simple")", "decode n=2");
  Check();
  const auto all = FindPending(request_.tree, TheLedger());
  const PendingGolden pending = ChoosePending(all, std::vector<std::string>{"a/f32"})[0];
  EXPECT_THAT(PendingText(pending, false),
              AllOf(HasSubstr("  note     the case itself was changed"),
                    HasSubstr("  first    op1 run: decode n=2 instead of"),
                    HasSubstr("  steps    "), HasSubstr("  layers   0-"),
                    HasSubstr("  facts    run 1, input 1, "), HasSubstr("  tokens   ")));
  const std::string detail = PendingText(pending, true);
  EXPECT_EQ(static_cast<size_t>(std::ranges::count(detail, '\n')), pending.changes.size());
  const std::string waiting = PendingMarkdown(all, {});
  EXPECT_THAT(waiting, AllOf(HasSubstr("## Golden files: 2\n"), HasSubstr("| `a/f32.golden` | "),
                             HasSubstr("| `op1 run` | "), HasSubstr("Not accepted yet")));
  Accept({"a"}, "one token more is decoded");
  EXPECT_THAT(PendingMarkdown(last_.accepted, last_.acceptance),
              AllOf(HasSubstr("Accepted by Ada"), HasSubstr("> one token more is decoded")));
}

}  // namespace
}  // namespace lockstep
