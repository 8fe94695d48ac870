#include "engine/tokenizer/byte_level.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <unordered_set>
#include <utility>

#include "caches/error.h"
#include "engine/gguf/cursor.h"
#include "engine/tokenizer/byte_alphabet.h"
#include "engine/tokenizer/hash_index.h"
#include "engine/tokenizer/merge.h"
#include "engine/tokenizer/pre_tokenizer.h"
#include "engine/tokenizer/vocabulary_tokenizer.h"

namespace lockstep {
namespace {

constexpr std::string_view kMerges = "tokenizer.ggml.merges";
constexpr std::string_view kPre = "tokenizer.ggml.pre";

// What each pair of adjacent tokens becomes.
class MergeTable {
 public:
  explicit MergeTable(size_t capacity) : index_(capacity) { entries_.reserve(capacity); }

  std::optional<Merge> Find(int32_t left, int32_t right) const {
    const std::optional<uint32_t> found = index_.Find(Hash(left, right), [&](uint32_t i) {
      return entries_[i].left == left && entries_[i].right == right;
    });
    return found ? std::optional(entries_[*found].merge) : std::nullopt;
  }

  // REQUIRES: the pair has no merge yet.
  void Add(int32_t left, int32_t right, const Merge& merge) {
    index_.Insert(Hash(left, right), static_cast<uint32_t>(entries_.size()));
    entries_.push_back({left, right, merge});
  }

 private:
  struct Entry {
    int32_t left = kNoToken;
    int32_t right = kNoToken;
    Merge merge;
  };

  // Fibonacci hashing of the pair, folded: HashIndex takes its bits from both ends.
  static uint64_t Hash(int32_t left, int32_t right) {
    const uint64_t pair =
        (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
    const uint64_t product = pair * 0x9e3779b97f4a7c15u;
    return product ^ (product >> 32);
  }

  HashIndex index_;
  std::vector<Entry> entries_;
};

// Turns the file's merges, which are pairs of spellings, into pairs of tokens.
class MergeReader {
 public:
  explicit MergeReader(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {
    for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
      const TokenKind kind = vocabulary.kinds[id];
      if (kind == TokenKind::kControl || kind == TokenKind::kUserDefined ||
          kind == TokenKind::kUnknown) {
        untouchable_.insert(vocabulary.tokens[id]);
      }
    }
  }

  MergeTable Read(const std::vector<std::string>& merges) {
    MergeTable table(merges.size());
    for (size_t i = 0; i < merges.size(); ++i) {
      const std::string_view merge = merges[i];
      const size_t space = merge.find(' ');
      if (space == std::string_view::npos || space != merge.rfind(' ')) {
        Fail(i, merge, "is not two tokens with a space between them");
      }
      const std::string_view left = merge.substr(0, space);
      const std::string_view right = merge.substr(space + 1);
      joined_.assign(left).append(right);
      const int32_t left_id = Find(i, merge, left);
      const int32_t right_id = Find(i, merge, right);
      const int32_t joined_id = Find(i, merge, joined_);
      if (left_id == kNoToken || right_id == kNoToken || joined_id == kNoToken) continue;
      if (table.Find(left_id, right_id)) continue;
      table.Add(left_id, right_id, {static_cast<uint32_t>(i), joined_id});
    }
    return table;
  }

 private:
  // kNoToken for a token that no text may become.
  int32_t Find(size_t index, std::string_view merge, std::string_view spelled) {
    bytes_.clear();
    const int32_t id = AppendUnspelled(spelled, &bytes_) ? vocabulary_.FindText(bytes_) : kNoToken;
    if (id == kNoToken && !untouchable_.contains(spelled)) {
      Fail(index, merge,
           fmt::format("names {}, which is no byte-level token of the vocabulary", Quote(spelled)));
    }
    return id;
  }

  [[noreturn]] void Fail(size_t index, std::string_view merge, std::string what) const {
    throw Error({fmt::format("{}: metadata key {}: merge {} {}", vocabulary_.source, Quote(kMerges),
                             index, Quote(merge)),
                 std::move(what), ""});
  }

  const Vocabulary& vocabulary_;
  std::unordered_set<std::string_view> untouchable_;  // as the file spells them
  std::string bytes_;
  std::string joined_;
};

class ByteLevelTokenizer final : public VocabularyTokenizer {
 public:
  ByteLevelTokenizer(Vocabulary vocabulary, MergeTable merges, PreTokenizer pre_tokenizer)
      : VocabularyTokenizer(std::move(vocabulary), pre_tokenizer.adds_bos()),
        merges_(std::move(merges)),
        pre_tokenizer_(std::move(pre_tokenizer)) {
    for (size_t byte = 0; byte < symbols_.size(); ++byte) {
      const char text = static_cast<char>(byte);
      symbols_[byte] = this->vocabulary().FindText({&text, 1});
    }
  }

 protected:
  bool adds_space() const override { return false; }

  void EncodePlain(std::string_view text, std::vector<int32_t>* ids) const override {
    Merger merger;
    size_t begin = 0;
    for (const size_t end : pre_tokenizer_.Split(text)) {
      EncodeWord(text.substr(begin, end - begin), &merger, ids);
      begin = end;
    }
  }

 private:
  void EncodeWord(std::string_view word, Merger* merger, std::vector<int32_t>* ids) const {
    if (pre_tokenizer_.ignores_merges()) {
      const int32_t token = vocabulary().FindText(word);
      if (token != kNoToken) {
        ids->push_back(token);
        return;
      }
    }
    merger->Clear();
    for (const char byte : word) merger->Add(1, symbols_[static_cast<uint8_t>(byte)]);
    merger->Run([&](const Symbol& left, const Symbol& right) {
      return merges_.Find(left.token, right.token);
    });
    merger->ForEach([&](const Symbol& symbol) {
      ids->push_back(symbol.token != kNoToken ? symbol.token : TokenOfByte(word[symbol.begin]));
    });
  }

  // For a byte without a text token.
  int32_t TokenOfByte(char byte) const {
    const int32_t token = vocabulary().byte_tokens[static_cast<uint8_t>(byte)];
    return token != kNoToken ? token : UnknownFor({&byte, 1});
  }

  MergeTable merges_;
  PreTokenizer pre_tokenizer_;
  std::array<int32_t, 256> symbols_{};  // the text token of each byte, or kNoToken
};

PreTokenizer LoadPreTokenizer(const GgufFile& file, const TokenizerOptions& options) {
  if (!options.pre_tokenizer.empty()) {
    return PreTokenizer::Make(options.pre_tokenizer, "pre-tokenizer option");
  }
  const std::string where = fmt::format("{}: metadata key {}", file.path(), Quote(kPre));
  const std::optional<std::string> name = file.FindString(kPre);
  if (!name) {
    throw Error({where, "is missing, and how to cut a text into words with it",
                 "name the pre-tokenizer yourself: " + PreTokenizer::SupportedNames()});
  }
  return PreTokenizer::Make(*name, where);
}

}  // namespace

std::unique_ptr<const Tokenizer> LoadByteLevel(const GgufFile& file,
                                               const TokenizerOptions& options) {
  PreTokenizer pre_tokenizer = LoadPreTokenizer(file, options);
  const std::vector<std::string>& merges = file.RequireStrings(kMerges);
  Vocabulary vocabulary = LoadVocabulary(file);
  std::string bytes;
  IndexTextTokens(
      [&](std::string* token) {
        bytes.clear();
        if (!AppendUnspelled(*token, &bytes)) return false;
        *token = bytes;
        return true;
      },
      &vocabulary);
  MergeTable table = MergeReader(vocabulary).Read(merges);
  return std::make_unique<ByteLevelTokenizer>(std::move(vocabulary), std::move(table),
                                              std::move(pre_tokenizer));
}

}  // namespace lockstep
