// Vocabularies and texts. Whatever the bytes: encoding equals the slow reference where that has an
// answer, decoding gives the text back where the tokenizer promises it, and a stream of pieces does
// not depend on how it was cut.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "caches/error.h"
#include "engine/tokenizer.h"
#include "properties/fuzz/chunks.h"
#include "properties/fuzz/slow_tokenizer.h"

namespace lockstep::fuzz {
namespace {

constexpr size_t kHeadBytes = 2;        // kind, flags
constexpr size_t kOpBytes = 3;          // what, left, right
constexpr uint64_t kTextFrom = 0xc0;    // operations from here on are text: as it stands,
constexpr uint64_t kPiecesFrom = 0xe0;  // or each byte one of kPieces
constexpr size_t kTokenBytesMax = 256;  // else a token of itself twice, 30 times, is a gigabyte

constexpr std::array<std::string_view, 8> kPres = {"gpt-2", "gpt-2",  "gpt-2",   "llama-bpe",
                                                   "qwen2", "smollm", "default", "llama3"};

constexpr std::array<std::string_view, 32> kPieces = {"a",
                                                      "b",
                                                      "c",
                                                      "e",
                                                      "h",
                                                      "n",
                                                      "t",
                                                      " ",
                                                      "  ",
                                                      "the",
                                                      "'s",
                                                      "'ll",
                                                      "1",
                                                      "12",
                                                      "345",
                                                      "\n",
                                                      "\r\n",
                                                      "\t",
                                                      ".",
                                                      "!?",
                                                      "\xc3\xa9",
                                                      "\xe6\x97\xa5",
                                                      "\xf0\x9f\x98\x8a",
                                                      "e\xcc\x81",
                                                      "\xe2\x96\x81",
                                                      "\xff",
                                                      "\xe2\x96",
                                                      "\xc2\xa0",
                                                      "<s>",
                                                      "<0x41>",
                                                      "\xed\xa0\x80",
                                                      std::string_view("\0", 1)};

struct Case {
  SmallVocabulary vocabulary;
  std::string text;
};

bool IsText(const Chunk& op) { return NumberAt(op, 0, 1) >= kTextFrom; }

std::string TextOf(const Chunk& op) {
  std::string text;
  for (size_t i = 1; i < op.size(); ++i) {
    const auto byte = std::to_integer<size_t>(op[i]);
    if (NumberAt(op, 0, 1) < kPiecesFrom) {
      text.push_back(static_cast<char>(byte));
    } else {
      text += kPieces[byte % kPieces.size()];
    }
  }
  return text;
}

SmallVocabulary BaseOf(const Chunk& head) {
  const uint64_t kind = NumberAt(head, 0, 1);
  const uint64_t flags = NumberAt(head, 1, 1);
  if (kind % 2 == 1) return ByteLevelBase(kPres[kind / 2 % kPres.size()]);
  SmallVocabulary vocabulary = SentencePieceBase((flags & 1) == 0, (flags & 2) == 0);
  vocabulary.adds_space = (flags & 4) == 0;
  return vocabulary;
}

// A token of two others, or a user-defined or control token of their texts.
void AddToken(const Chunk& op, uint64_t flags, SmallVocabulary* v) {
  const auto pick = [&](size_t at) {
    // Counted from the end: what was made last is used first.
    const size_t back = NumberAt(op, at, 1) % v->tokens.size();
    return v->tokens[v->tokens.size() - 1 - back];
  };
  const uint64_t what = NumberAt(op, 0, 1) % 8;
  const SmallVocabulary::Token left = pick(1), right = pick(2);
  if (left.text.size() + right.text.size() > kTokenBytesMax) return;
  const bool plain = left.kind == TokenKind::kNormal && right.kind == TokenKind::kNormal;
  SmallVocabulary::Token joined{left.text + right.text, TokenKind::kNormal, 0};
  if (what == 6) joined.kind = TokenKind::kUserDefined;
  if (what == 7) joined.kind = TokenKind::kControl;
  if (what < 6) {
    if (!plain) return;
    const auto rank = static_cast<float>(v->tokens.size());
    joined.score = (flags & 8) != 0 ? -static_cast<float>(what) : -rank;
  }
  // A byte-level file spells normal tokens alone; others could be spelled like one of them.
  const auto same_spelled = [](char c) { return c > ' ' && c <= '~'; };
  if (v->byte_level && what >= 6 && !std::ranges::all_of(joined.text, same_spelled)) return;
  const std::string text = joined.text;
  v->Add(std::move(joined));
  if (v->byte_level && what < 6 && v->Find(text, TokenKind::kNormal)) {
    v->merges.push_back({left.text, right.text});
  }
}

Case CaseOf(const ChunkInput& input) {
  Case made{BaseOf(input.head), ""};
  for (const Chunk& op : input.ops) {
    if (IsText(op)) {
      made.text += TextOf(op);
    } else {
      AddToken(op, NumberAt(input.head, 1, 1), &made.vocabulary);
    }
  }
  return made;
}

bool BreaksOffInsideUtf8(std::string_view text) {
  for (size_t n = 1; n <= std::min<size_t>(3, text.size()); ++n) {
    const auto byte = static_cast<uint8_t>(text[text.size() - n]);
    if (byte >= 0xc2) return Utf8Length(text.substr(text.size() - n)) == 0;
    if (byte < 0x80) return false;
  }
  return false;
}

std::optional<FuzzFinding> CheckDecoding(const Case& made, const Tokenizer& tokenizer,
                                         const std::vector<int32_t>& ids) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= tokenizer.vocab_size()) {
      return FuzzFinding{"an id outside the vocabulary", fmt::format("{}", id)};
    }
    if (tokenizer.kind(id) == TokenKind::kUnknown) return std::nullopt;
  }
  std::string wanted = made.text;
  constexpr std::string_view kSpaceMark = "\xe2\x96\x81";
  if (!made.vocabulary.byte_level && wanted.find(kSpaceMark) != wanted.npos) return std::nullopt;
  const std::string decoded = tokenizer.Decode(ids);
  if (decoded == wanted) return std::nullopt;
  return FuzzFinding{"decoding does not give the text back",
                     fmt::format("'{}' of '{}'", Printable(decoded), Printable(wanted))};
}

std::optional<FuzzFinding> CheckStream(const std::string& text) {
  Utf8Stream whole;
  std::string expected = whole.Push(text);
  expected += whole.Flush();
  Utf8Stream cut;
  std::string got;
  for (const char c : text) got += cut.Push({&c, 1});
  got += cut.Flush();
  if (got == expected) return std::nullopt;
  return FuzzFinding{"a stream depends on how it was cut",
                     fmt::format("'{}' or '{}'", Printable(expected), Printable(got))};
}

class TokenizerTarget final : public ChunkTarget {
 public:
  explicit TokenizerTarget(const FuzzTargetOptions& options)
      : ChunkTarget("tokenizer"), options_(options) {}

 private:
  ChunkInput Decode(std::span<const std::byte> bytes) const override {
    ChunkInput input;
    const auto take = [&](size_t count) {
      const auto taken = bytes.first(std::min(count, bytes.size()));
      bytes = bytes.subspan(taken.size());
      return Chunk(taken.begin(), taken.end());
    };
    input.head = take(kHeadBytes);
    while (!bytes.empty()) {
      const bool text = std::to_integer<uint64_t>(bytes[0]) >= kTextFrom;
      input.ops.push_back(take(text ? bytes.size() : kOpBytes));
    }
    return input;
  }

  std::vector<int32_t> Encode(const Tokenizer& tokenizer, std::string text) const {
    if (!options_.plant.empty() && BreaksOffInsideUtf8(text)) text.pop_back();
    return tokenizer.Encode(text);
  }

  std::optional<FuzzFinding> Judge(const ChunkInput& input) const override {
    const Case made = CaseOf(input);
    const auto expected = SlowEncode(made.vocabulary, made.text);
    std::unique_ptr<const Tokenizer> tokenizer;
    std::vector<int32_t> ids;
    try {
      tokenizer = Tokenizer::Load(*VocabularyFile(made.vocabulary));
    } catch (const std::exception& e) {
      return FuzzFinding{"a sound vocabulary is refused", e.what()};
    }
    try {
      ids = Encode(*tokenizer, made.text);
    } catch (const Error& error) {
      if (!expected && !made.vocabulary.byte_level) return std::nullopt;
      return FuzzFinding{"a text that has tokens is refused", error.what()};
    } catch (const std::exception& e) {
      return FuzzFinding{"encoding throws no lockstep::Error", e.what()};
    }
    if (expected && *expected != ids) {
      return FuzzFinding{
          "the ids differ from the slow reference",
          fmt::format("[{}], reference [{}]", fmt::join(ids, " "), fmt::join(*expected, " "))};
    }
    if (auto finding = CheckDecoding(made, *tokenizer, ids)) return finding;
    return CheckStream(made.text);
  }

  std::string DescribeHead(const ChunkInput& input) const override {
    const SmallVocabulary base = BaseOf(input.head);
    if (base.byte_level) return "byte level, " + base.pre_tokenizer;
    return fmt::format("SentencePiece, {} tokens{}", base.tokens.size(),
                       base.adds_space ? "" : ", no space before a text");
  }

  std::string DescribeOp(const ChunkInput& input, size_t op) const override {
    if (IsText(input.ops[op])) return fmt::format("text '{}'", Printable(TextOf(input.ops[op])));
    ChunkInput before{input.head,
                      {input.ops.begin(), input.ops.begin() + static_cast<std::ptrdiff_t>(op)}};
    SmallVocabulary vocabulary = CaseOf(before).vocabulary;
    const size_t tokens = vocabulary.tokens.size(), merges = vocabulary.merges.size();
    AddToken(input.ops[op], NumberAt(input.head, 1, 1), &vocabulary);
    std::string what;
    if (vocabulary.merges.size() > merges) {
      const auto& [left, right] = vocabulary.merges.back();
      what = fmt::format("merge '{}' '{}'", Printable(left), Printable(right));
    }
    if (vocabulary.tokens.size() > tokens) {
      const SmallVocabulary::Token& token = vocabulary.tokens.back();
      what += fmt::format("{}token '{}' of kind {}, score {}", what.empty() ? "" : ", ",
                          Printable(token.text), static_cast<int>(token.kind), token.score);
    }
    return what.empty() ? "nothing new" : what;
  }

  FuzzTargetOptions options_;
};

}  // namespace

std::unique_ptr<FuzzTarget> MakeTokenizerTarget(const FuzzTargetOptions& options) {
  RequireCanary("tokenizer", options);
  return std::make_unique<TokenizerTarget>(options);
}

}  // namespace lockstep::fuzz
