#include "golden/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/temporary_folder.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

LedgerEntry Entry(const Ledger& ledger, const GoldenName& golden, const std::string& text,
                  const std::string& reason, const std::string& issue = {}) {
  return {.date = "2026-11-30T10:00:00Z",
          .author = "Ada <ada@example.org>",
          .golden = golden,
          .old_digest = ledger.DigestOf(golden),
          .new_digest = text.empty() ? std::string(kNoGolden) : GoldenTextDigest(text),
          .reason = reason,
          .issue = issue,
          .arithmetic = 1};
}

const GoldenName kFirst{"gqa", "f32.golden"};
const GoldenName kSecond{"mha", "q8_0.golden"};

// Three lines: two files, one of them twice.
Ledger ThreeLines() {
  Ledger ledger;
  ledger.Append(Entry(ledger, kFirst, "one\n", "first recording of \"gqa\" \\ ü"));
  ledger.Append(Entry(ledger, kSecond, "two\n", "first recording of mha", "17"));
  ledger.Append(Entry(ledger, kFirst, "three\n", "RoPE before the bias"));
  return ledger;
}

std::string Message(const std::string& text) {
  try {
    Ledger::Parse(text, "ledger.jsonl");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string Replaced(std::string text, std::string_view before, std::string_view after) {
  const size_t at = text.find(before);
  EXPECT_NE(at, text.npos) << before;
  return at == text.npos ? text : text.replace(at, before.size(), after);
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    lines.push_back(text.substr(at, text.find('\n', at) + 1 - at));
  }
  return lines;
}

// The format is a promise to the files in the tree: a change of it has to be seen here.
TEST(Ledger, ALineIsWrittenLikeThis) {
  Ledger ledger;
  ledger.Append(Entry(ledger, kFirst, "one\n", "first recording", "17"));
  EXPECT_EQ(ledger.text(),
            R"({"date":"2026-11-30T10:00:00Z","author":"Ada <ada@example.org>","case":"gqa",)"
            R"("file":"f32.golden","old":"none","new":")" +
                GoldenTextDigest("one\n") +
                R"(","reason":"first recording","issue":"17","arithmetic":1,)"
                R"("previous":"00000000000000000000000000000000","digest":")" +
                ledger.entries()[0].digest + "\"}\n");
}

TEST(Ledger, WhatIsWrittenIsReadAgain) {
  const Ledger written = ThreeLines();
  const Ledger read = Ledger::Parse(written.text(), "ledger.jsonl");
  EXPECT_EQ(read.entries(), written.entries());
  EXPECT_EQ(read.text(), written.text());
  EXPECT_EQ(read.DigestOf(kFirst), GoldenTextDigest("three\n"));
  EXPECT_EQ(read.Last(kSecond)->issue, "17");
  EXPECT_EQ(read.Last({"gqa", "q8_0.golden"}), nullptr);
  EXPECT_THAT(read.Present(), ElementsAre(kFirst, kSecond));
}

TEST(Ledger, AnAbsentFileIsEmpty) {
  const TemporaryFolder folder;
  EXPECT_THAT(Ledger::Read(folder.File("none.jsonl")).entries(), IsEmpty());
}

TEST(Ledger, EveryChangedCharacterShows) {
  const std::string text = ThreeLines().text();
  for (size_t i = 0; i < text.size(); ++i) {
    for (const int flip : {1, 2}) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      ASSERT_NE(Message(changed), "no error") << "at " << i << " of\n" << text;
    }
  }
}

TEST(Ledger, EveryCutShowsButOneBetweenLines) {
  const std::string text = ThreeLines().text();
  for (size_t size = 1; size < text.size(); ++size) {
    const bool between = text[size - 1] == '\n';
    ASSERT_EQ(Message(text.substr(0, size)) == "no error", between) << size;
  }
}

TEST(Ledger, ALineThatIsEditedRemovedMovedOrRepeatedShows) {
  const std::string text = ThreeLines().text();
  const std::vector<std::string> lines = Lines(text);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(Message(Replaced(text, "RoPE before", "RoPE behind")),
              AllOf(HasSubstr("ledger.jsonl:3"), HasSubstr("edited"), HasSubstr("git")));
  EXPECT_THAT(Message(lines[0] + lines[2]),
              AllOf(HasSubstr("ledger.jsonl:2"), HasSubstr("does not follow the line before")));
  EXPECT_THAT(Message(lines[1] + lines[2]), HasSubstr("ledger.jsonl:1"));
  EXPECT_THAT(Message(lines[1] + lines[0] + lines[2]), HasSubstr("ledger.jsonl:1"));
  EXPECT_THAT(Message(text + lines[2]), HasSubstr("ledger.jsonl:4"));
}

TEST(Ledger, OtherFormsOfTheSameObjectAreRefused) {
  const std::string line = Lines(ThreeLines().text())[0];
  for (const std::string& form :
       {Replaced(line, ",", ", "), Replaced(line, R"("arithmetic":1)", R"("arithmetic":1.0)"),
        Replaced(line, R"({)", R"({"more":1,)"), Replaced(line, "ü", "\\u00fc"), " " + line}) {
    EXPECT_THAT(Message(form), HasSubstr("not written as the ledger writes it")) << form;
  }
  for (const std::string& form :
       {std::string("\n"), std::string("{}\n"), std::string("[1]\n"), std::string("text\n"),
        Replaced(line, R"("arithmetic":1)", R"("arithmetic":"1")"),
        Replaced(line, R"("reason")", R"("because")"), Replaced(line, "ü", "\xff")}) {
    EXPECT_THAT(Message(form), HasSubstr("ledger.jsonl:1: is no entry")) << form;
  }
}

TEST(Ledger, MergeConflictsAreNamed) {
  const std::vector<std::string> lines = Lines(ThreeLines().text());
  const std::string conflict =
      lines[0] + "<<<<<<< HEAD\n" + lines[1] + "=======\n" + lines[2] + ">>>>>>> other\n";
  EXPECT_THAT(Message(conflict), AllOf(HasSubstr("ledger.jsonl:2"), HasSubstr("merge conflict"),
                                       HasSubstr("accept your files again")));
}

// The chain of the lines is right, that of the file is not: no binary of ours wrote it.
TEST(Ledger, AnOldDigestThatTheLedgerNeverGaveIsRefused) {
  const std::string line = Lines(ThreeLines().text())[0];
  std::string forged =
      Replaced(line, R"("old":"none")", R"("old":")" + GoldenTextDigest("x") + '"');
  forged.resize(forged.find(R"(,"digest")"));
  const std::string digest = GoldenTextDigest(forged + "}");
  EXPECT_THAT(Message(forged + R"(,"digest":")" + digest + "\"}\n"),
              HasSubstr("ledger.jsonl:1: its old digest is not what"));
}

std::vector<std::string> Findings(const Ledger& ledger,
                                  const std::map<GoldenName, std::string>& goldens) {
  std::vector<std::string> sentences;
  for (const LedgerFinding& finding : CompareWithLedger(ledger, goldens)) {
    sentences.push_back(finding.sentence);
  }
  return sentences;
}

TEST(Ledger, GoldensThatItDoesNotSpeakOfAreFindings) {
  Ledger ledger = ThreeLines();
  std::map<GoldenName, std::string> goldens = {{kFirst, GoldenTextDigest("three\n")},
                                               {kSecond, GoldenTextDigest("two\n")}};
  EXPECT_THAT(Findings(ledger, goldens), IsEmpty());

  goldens[kFirst] = GoldenTextDigest("one\n");
  EXPECT_THAT(Findings(ledger, goldens),
              ElementsAre(AllOf(HasSubstr("gqa/f32.golden: it was changed since it was accepted"),
                                HasSubstr("lockstep golden accept gqa/f32.golden --reason"))));
  goldens.erase(kFirst);
  EXPECT_THAT(Findings(ledger, goldens), ElementsAre(HasSubstr("that it is there, and it is not")));
  goldens[kFirst] = GoldenTextDigest("three\n");
  goldens[{"new", "f32.golden"}] = GoldenTextDigest("new\n");
  EXPECT_THAT(Findings(ledger, goldens), ElementsAre(HasSubstr("has no reason for it")));
  goldens.erase({"new", "f32.golden"});
  ledger.Append(Entry(ledger, kSecond, "", "the case is gone"));
  EXPECT_THAT(Findings(ledger, goldens), ElementsAre(HasSubstr("says that it was removed")));
  EXPECT_THAT(ledger.Present(), ElementsAre(kFirst));
}

}  // namespace
}  // namespace lockstep
