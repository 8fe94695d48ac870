// What a tokenizer refuses to load, and what it takes from a file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "caches/error.h"
#include "engine/tokenizer/test_vocabulary.h"

namespace lockstep {
namespace {

struct Fault {
  const char* name;
  std::function<void(VocabularySpec*)> plant;
  const char* message;  // a part of it
};

void ExpectRefused(const VocabularySpec& good, const std::vector<Fault>& faults) {
  EXPECT_NO_THROW(good.Load());
  for (const Fault& fault : faults) {
    VocabularySpec spec = good;
    fault.plant(&spec);
    try {
      spec.Load();
      ADD_FAILURE() << fault.name << " was accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::StartsWith("test.gguf: ")) << fault.name;
      EXPECT_THAT(error.what(), testing::HasSubstr(fault.message)) << fault.name;
    }
  }
}

// Holds for both kinds.
std::vector<Fault> CommonFaults() {
  using Spec = VocabularySpec;
  return {
      {"no model", [](Spec* s) { s->model.reset(); }, "'tokenizer.ggml.model'"},
      {"unknown model", [](Spec* s) { s->model = "bert"; },
       "'bert' is unknown (supported: 'llama'"},
      {"no tokens key", [](Spec* s) { s->tokens.reset(); }, "'tokenizer.ggml.tokens'"},
      {"no token",
       [](Spec* s) {
         s->tokens->clear();
         s->types->clear();
         if (s->scores) s->scores->clear();
       },
       "has no token"},
      {"duplicate", [](Spec* s) { s->Add(s->tokens->at(5)); }, "is the same as token 5"},
      {"one type too few", [](Spec* s) { s->types->pop_back(); }, "types for"},
      {"one type too many", [](Spec* s) { s->types->push_back(1); }, "types for"},
      {"type 0", [](Spec* s) { s->types->back() = 0; }, "unknown type 0"},
      {"type 7", [](Spec* s) { s->types->back() = 7; }, "unknown type 7"},
      {"type -1", [](Spec* s) { s->types->back() = -1; }, "unknown type -1"},
      {"signed byte", [](Spec* s) { s->Add("<0x-1>", TokenKind::kByte); }, "'<0x-1>'"},
      {"short byte", [](Spec* s) { s->Add("<0x1>", TokenKind::kByte); }, "'<0x1>'"},
      {"long byte", [](Spec* s) { s->Add("<0x100>", TokenKind::kByte); }, "'<0x100>'"},
      {"byte with a blank", [](Spec* s) { s->Add("<0x 1>", TokenKind::kByte); }, "'<0x 1>'"},
      {"byte without an end", [](Spec* s) { s->Add("<0x111", TokenKind::kByte); }, "'<0x111'"},
      {"byte of no digits", [](Spec* s) { s->Add("<0x1G>", TokenKind::kByte); }, "'<0x1G>'"},
      {"empty byte", [](Spec* s) { s->Add("", TokenKind::kByte); }, "'': is of type byte"},
      {"bos outside", [](Spec* s) { s->ids["bos"] = static_cast<uint32_t>(s->tokens->size()); },
       "'tokenizer.ggml.bos_token_id'"},
      {"eos far outside", [](Spec* s) { s->ids["eos"] = std::numeric_limits<uint32_t>::max(); },
       "'tokenizer.ggml.eos_token_id'"},
      {"unknown outside",
       [](Spec* s) { s->ids["unknown"] = static_cast<uint32_t>(s->tokens->size()); },
       "'tokenizer.ggml.unknown_token_id'"},
  };
}

TEST(SentencePieceVocabulary, FaultsAreRefusedByName) {
  using Spec = VocabularySpec;
  std::vector<Fault> faults = CommonFaults();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Fault> own = {
      {"no scores", [](Spec* s) { s->scores.reset(); }, "'tokenizer.ggml.scores'"},
      {"one score too few", [](Spec* s) { s->scores->pop_back(); }, "scores for"},
      {"one score too many", [](Spec* s) { s->scores->push_back(0); }, "scores for"},
      {"a score that orders nothing", [=](Spec* s) { s->scores->back() = nan; }, "is no number"},
      {"no types", [](Spec* s) { s->types.reset(); }, "'tokenizer.ggml.token_type'"},
      {"the same byte twice", [](Spec* s) { s->Add("<0xfa>", TokenKind::kByte); },
       "is token 253's byte again"},
      {"bos wanted and none",
       [](Spec* s) {
         s->types->at(kTestBos) = static_cast<int32_t>(TokenKind::kNormal);
         s->flags["add_bos_token"] = true;
       },
       "'tokenizer.ggml.add_bos_token'"},
  };
  faults.insert(faults.end(), own.begin(), own.end());
  ExpectRefused(SentencePieceSpec(), faults);
}

TEST(ByteLevelVocabulary, FaultsAreRefusedByName) {
  using Spec = VocabularySpec;
  std::vector<Fault> faults = CommonFaults();
  const auto with_merge = [](const char* merge) {
    return [=](Spec* s) { s->merges->push_back(merge); };
  };
  const std::vector<Fault> own = {
      {"no pre-tokenizer", [](Spec* s) { s->pre.reset(); }, "'tokenizer.ggml.pre'"},
      {"unknown pre-tokenizer", [](Spec* s) { s->pre = "nothing"; }, "'nothing' is unknown"},
      {"no merges", [](Spec* s) { s->merges.reset(); }, "'tokenizer.ggml.merges'"},
      {"empty merge", with_merge(""), "merge 0 ''"},
      {"merge of one", with_merge("ab"), "merge 0 'ab'"},
      {"merge of three", with_merge("a b c"), "merge 0 'a b c'"},
      {"merge without a left", with_merge(" a"), "names ''"},
      {"merge without a right", with_merge("a "), "names ''"},
      {"unknown left", with_merge("xx a"), "names 'xx'"},
      {"unknown right", with_merge("a xx"), "names 'xx'"},
      {"unknown result", with_merge("a b"), "names 'ab'"},
      {"not spelled in bytes", with_merge("\u4F60 a"), "merge 0"},
      {"bos wanted and none", [](Spec* s) { s->flags["add_bos_token"] = true; },
       "'tokenizer.ggml.add_bos_token'"},
      {"eos wanted and none", [](Spec* s) { s->flags["add_eos_token"] = true; },
       "'tokenizer.ggml.add_eos_token'"},
  };
  faults.insert(faults.end(), own.begin(), own.end());
  ExpectRefused(ByteLevelSpec(), faults);
}

TEST(Vocabulary, EmptyTokensMayRepeatAndStandForNothing) {
  for (VocabularySpec spec : {SentencePieceSpec(), ByteLevelSpec()}) {
    const int32_t first = spec.Add("");
    spec.Add("");
    spec.Add("", TokenKind::kUserDefined);
    const auto tokenizer = spec.Load();
    EXPECT_EQ(tokenizer->Piece(first), "");
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("ab")), "ab");
  }
}

TEST(Vocabulary, IdsAndKindsAreTheFiles) {
  VocabularySpec spec = ByteLevelSpec();
  const int32_t control = spec.Add("<|end|>", TokenKind::kControl);
  spec.ids = {{"bos", 7}, {"eos", static_cast<uint32_t>(control)}};
  const auto tokenizer = spec.Load();
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->kind(7), TokenKind::kNormal);
  EXPECT_EQ(tokenizer->kind(control), TokenKind::kControl);
  EXPECT_EQ(tokenizer->bos(), 7);
  EXPECT_EQ(tokenizer->eos(), control);
}

// The first and the last id are legal.
TEST(Vocabulary, SpecialIdsReachToTheEnds) {
  for (VocabularySpec spec : {SentencePieceSpec(), ByteLevelSpec()}) {
    spec.ids = {{"bos", 0}, {"eos", static_cast<uint32_t>(spec.tokens->size() - 1)}};
    const auto tokenizer = spec.Load();
    EXPECT_EQ(tokenizer->bos(), 0);
    EXPECT_EQ(tokenizer->eos(), tokenizer->vocab_size() - 1);
  }
}

TEST(Vocabulary, IdsOutsideAreNoPieces) {
  for (const VocabularySpec& spec : {SentencePieceSpec(), ByteLevelSpec()}) {
    const auto tokenizer = spec.Load();
    const int32_t size = tokenizer->vocab_size();
    EXPECT_NO_THROW(tokenizer->Piece(0));
    EXPECT_NO_THROW(tokenizer->Piece(size - 1));
    for (const int32_t id : {-1, size, std::numeric_limits<int32_t>::min()}) {
      EXPECT_THROW(tokenizer->Piece(id), std::out_of_range) << id;
      EXPECT_THROW(tokenizer->Decode(std::vector<int32_t>{0, id}), std::out_of_range) << id;
    }
  }
}

TEST(Vocabulary, PromptsGetWhatTheFileAsksFor) {
  const auto prompt = [](const VocabularySpec& spec) { return spec.Load()->EncodePrompt("a"); };
  using Ids = std::vector<int32_t>;
  VocabularySpec spec = ByteLevelSpec();
  spec.ids = {{"bos", 1}, {"eos", 2}};
  EXPECT_EQ(prompt(spec), Ids({'a'}));
  spec.flags = {{"add_bos_token", true}, {"add_eos_token", true}};
  EXPECT_EQ(prompt(spec), Ids({1, 'a', 2}));
  EXPECT_EQ(spec.Load()->EncodePrompt(""), Ids({1, 2}));
  spec.flags = {};
  spec.pre = "llama-bpe";  // adds BOS unless told not to
  EXPECT_EQ(prompt(spec), Ids({1, 'a'}));
  spec.flags = {{"add_bos_token", false}};
  EXPECT_EQ(prompt(spec), Ids({'a'}));
  spec.flags = {};
  spec.ids = {};  // nothing to add, and nobody asked in so many words
  EXPECT_EQ(prompt(spec), Ids({'a'}));
}

}  // namespace
}  // namespace lockstep
