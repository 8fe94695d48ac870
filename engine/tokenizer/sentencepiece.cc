#include "engine/tokenizer/sentencepiece.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "caches/error.h"
#include "engine/gguf/cursor.h"
#include "engine/tokenizer/merge.h"
#include "engine/tokenizer/utf8.h"
#include "engine/tokenizer/vocabulary_tokenizer.h"

namespace lockstep {
namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581
constexpr std::string_view kScores = "tokenizer.ggml.scores";
constexpr std::string_view kTokenType = "tokenizer.ggml.token_type";

void ReplaceSpaceMarks(std::string* text) {
  size_t at = text->find(kSpaceMark);
  if (at == std::string::npos) return;
  std::string replaced;
  size_t copied = 0;
  for (; at != std::string::npos; at = text->find(kSpaceMark, copied)) {
    replaced.append(*text, copied, at - copied);
    replaced += ' ';
    copied = at + kSpaceMark.size();
  }
  *text = replaced.append(*text, copied);
}

// Rank 0 is the highest score; equal scores have equal ranks. [n]
std::vector<uint32_t> RankScores(const std::vector<double>& scores) {
  std::vector<double> distinct = scores;
  std::sort(distinct.begin(), distinct.end(), std::greater<>());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::vector<uint32_t> ranks(scores.size());
  for (size_t id = 0; id < scores.size(); ++id) {
    const auto place =
        std::lower_bound(distinct.begin(), distinct.end(), scores[id], std::greater<>());
    ranks[id] = static_cast<uint32_t>(place - distinct.begin());
  }
  return ranks;
}

std::vector<double> ReadScores(const GgufFile& file, size_t count) {
  std::optional<std::vector<double>> scores = file.FindFloats(kScores);
  if (scores && scores->size() == count) return *std::move(scores);
  throw Error({fmt::format("{}: metadata key {}", file.path(), Quote(kScores)),
               scores ? fmt::format("has {} scores for {} tokens", scores->size(), count)
                      : "is missing, and the order of merges with it",
               ""});
}

void RequireTypes(const GgufFile& file) {
  if (file.metadata().contains(kTokenType)) return;
  throw Error({fmt::format("{}: metadata key {}", file.path(), Quote(kTokenType)),
               "is missing: control and byte tokens cannot be told from text", ""});
}

void DefaultSpecials(Vocabulary* vocabulary) {
  const auto set = [&](std::optional<int32_t>* id, int32_t value, TokenKind kind) {
    const size_t index = static_cast<size_t>(value);
    const bool there = index < vocabulary->kinds.size() && vocabulary->kinds[index] == kind;
    if (!*id && there) *id = value;
  };
  set(&vocabulary->unknown, 0, TokenKind::kUnknown);
  set(&vocabulary->bos, 1, TokenKind::kControl);
  set(&vocabulary->eos, 2, TokenKind::kControl);
}

class SentencePieceTokenizer final : public VocabularyTokenizer {
 public:
  SentencePieceTokenizer(Vocabulary vocabulary, const std::vector<double>& scores, bool adds_space)
      : VocabularyTokenizer(std::move(vocabulary), /*add_bos_default=*/true),
        ranks_(RankScores(scores)),
        adds_space_(adds_space) {
    for (const std::string& token : this->vocabulary().tokens) {
      longest_ = std::max(longest_, token.size());
    }
  }

 protected:
  bool adds_space() const override { return adds_space_; }
  void EncodePlain(std::string_view plain, std::vector<int32_t>* ids) const override;

 private:
  std::vector<uint32_t> ranks_;  // [n]
  size_t longest_ = 0;           // bytes of the longest token
  bool adds_space_;
};

void SentencePieceTokenizer::EncodePlain(std::string_view plain, std::vector<int32_t>* ids) const {
  std::string spaced(adds_space_ ? " " : "");
  spaced += plain;
  ReplaceSpaceMarks(&spaced);
  const std::string_view text = spaced;

  Merger merger;
  for (size_t at = 0; at < text.size();) {
    const Utf8Unit unit = FirstUtf8Unit(text.substr(at));
    const size_t length = unit.form == Utf8Form::kWhole ? unit.length : 1;
    merger.Add(static_cast<uint32_t>(length), vocabulary().FindText(text.substr(at, length)));
    at += length;
  }
  merger.Run([&](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
    const size_t length = size_t{left.length} + right.length;
    if (length > longest_) return std::nullopt;
    const int32_t token = vocabulary().FindText(text.substr(left.begin, length));
    if (token == kNoToken) return std::nullopt;
    return Merge{ranks_[static_cast<size_t>(token)], token};
  });
  merger.ForEach([&](const Symbol& symbol) {
    if (symbol.token != kNoToken) {
      ids->push_back(symbol.token);
      return;
    }
    const std::string_view bytes = text.substr(symbol.begin, symbol.length);
    const auto byte_token = [&](char byte) {
      return vocabulary().byte_tokens[static_cast<uint8_t>(byte)];
    };
    const bool all = std::all_of(bytes.begin(), bytes.end(),
                                 [&](char byte) { return byte_token(byte) != kNoToken; });
    if (!all) ids->push_back(UnknownFor(bytes));
    for (size_t i = 0; all && i < bytes.size(); ++i) ids->push_back(byte_token(bytes[i]));
  });
}

}  // namespace

std::unique_ptr<const Tokenizer> LoadSentencePiece(const GgufFile& file) {
  RequireTypes(file);
  Vocabulary vocabulary = LoadVocabulary(file);
  const std::vector<double> scores = ReadScores(file, vocabulary.tokens.size());
  DefaultSpecials(&vocabulary);
  IndexTextTokens(
      [](std::string* token) {
        // A text's space is looked up as U+2581, so a token that spells one plainly never matches.
        if (token->find(' ') != std::string::npos) return false;
        ReplaceSpaceMarks(token);
        return true;
      },
      &vocabulary);
  const bool adds_space = file.FindBool("tokenizer.ggml.add_space_prefix").value_or(true);
  return std::make_unique<SentencePieceTokenizer>(std::move(vocabulary), scores, adds_space);
}

}  // namespace lockstep
