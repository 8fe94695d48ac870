#include "engine/tokenizer/vocabulary.h"

#include <fmt/format.h>

#include <functional>
#include <limits>
#include <utility>

#include "caches/error.h"
#include "engine/gguf/cursor.h"
#include "engine/tokenizer/merge.h"

namespace lockstep {
namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kTokenType = "tokenizer.ggml.token_type";

[[noreturn]] void FailKey(const Vocabulary& vocabulary, std::string_view key, std::string what,
                          std::string remedy = "") {
  throw Error({fmt::format("{}: metadata key {}", vocabulary.source, Quote(key)), std::move(what),
               std::move(remedy)});
}

[[noreturn]] void FailToken(const Vocabulary& vocabulary, size_t id, std::string what) {
  throw Error({fmt::format("{}: token {} {}", vocabulary.source, id, Quote(vocabulary.tokens[id])),
               std::move(what), ""});
}

uint64_t HashText(std::string_view text) { return std::hash<std::string_view>{}(text); }

std::optional<uint32_t> FindToken(const HashIndex& index, const Vocabulary& vocabulary,
                                  std::string_view text) {
  return index.Find(HashText(text), [&](uint32_t id) { return vocabulary.tokens[id] == text; });
}

void CheckDistinct(const Vocabulary& vocabulary) {
  HashIndex seen(vocabulary.tokens.size());
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& token = vocabulary.tokens[id];
    if (token.empty()) continue;
    const std::optional<uint32_t> first = FindToken(seen, vocabulary, token);
    if (first) FailToken(vocabulary, id, fmt::format("is the same as token {}", *first));
    seen.Insert(HashText(token), static_cast<uint32_t>(id));
  }
}

std::vector<TokenKind> ReadKinds(const GgufFile& file, const Vocabulary& vocabulary) {
  const size_t count = vocabulary.tokens.size();
  const std::optional<std::vector<int64_t>> types = file.FindInts(kTokenType);
  if (!types) return std::vector<TokenKind>(count, TokenKind::kNormal);
  if (types->size() != count) {
    FailKey(vocabulary, kTokenType,
            fmt::format("has {} types for {} tokens", types->size(), count));
  }
  std::vector<TokenKind> kinds(count);
  for (size_t id = 0; id < count; ++id) {
    const int64_t type = (*types)[id];
    if (type < static_cast<int64_t>(TokenKind::kNormal) ||
        type > static_cast<int64_t>(TokenKind::kByte)) {
      FailToken(vocabulary, id, fmt::format("has the unknown type {}", type));
    }
    kinds[id] = static_cast<TokenKind>(type);
  }
  return kinds;
}

// The value of one hexadecimal digit of either case, -1 for anything else.
int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// "<0xXX>" and nothing else: no sign, no blank, no third digit.
std::optional<uint8_t> ParseByteToken(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const int high = HexDigit(token[3]);
  const int low = HexDigit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<uint8_t>(high * 16 + low);
}

void ReadByteTokens(Vocabulary* vocabulary) {
  vocabulary->byte_tokens.fill(kNoToken);
  for (size_t id = 0; id < vocabulary->tokens.size(); ++id) {
    if (vocabulary->kinds[id] != TokenKind::kByte) continue;
    const std::optional<uint8_t> byte = ParseByteToken(vocabulary->tokens[id]);
    if (!byte) FailToken(*vocabulary, id, "is of type byte but not of the form '<0xXX>'");
    int32_t& slot = vocabulary->byte_tokens[*byte];
    if (slot != kNoToken) FailToken(*vocabulary, id, fmt::format("is token {}'s byte again", slot));
    slot = static_cast<int32_t>(id);
    vocabulary->tokens[id].assign(1, static_cast<char>(*byte));
  }
}

}  // namespace

int32_t Vocabulary::FindText(std::string_view text) const {
  const std::optional<uint32_t> found = FindToken(text_tokens, *this, text);
  return found ? static_cast<int32_t>(*found) : kNoToken;
}

Vocabulary LoadVocabulary(const GgufFile& file) {
  Vocabulary vocabulary;
  vocabulary.source = file.path();
  vocabulary.tokens = file.RequireStrings(kTokens);
  if (vocabulary.tokens.empty()) FailKey(vocabulary, kTokens, "has no token");
  if (vocabulary.tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    FailKey(vocabulary, kTokens, "has more tokens than 31 bits count");
  }
  CheckDistinct(vocabulary);
  vocabulary.kinds = ReadKinds(file, vocabulary);
  ReadByteTokens(&vocabulary);

  const int64_t last = static_cast<int64_t>(vocabulary.tokens.size()) - 1;
  const auto find_id = [&](std::string_view key) -> std::optional<int32_t> {
    const std::optional<int64_t> id = file.FindInt(key, 0, last);
    return id ? std::optional(static_cast<int32_t>(*id)) : std::nullopt;
  };
  vocabulary.unknown = find_id("tokenizer.ggml.unknown_token_id");
  vocabulary.bos = find_id("tokenizer.ggml.bos_token_id");
  vocabulary.eos = find_id("tokenizer.ggml.eos_token_id");
  vocabulary.add_bos = file.FindBool("tokenizer.ggml.add_bos_token");
  vocabulary.add_eos = file.FindBool("tokenizer.ggml.add_eos_token");
  return vocabulary;
}

void IndexTextTokens(const std::function<bool(std::string*)>& respell, Vocabulary* vocabulary) {
  vocabulary->text_tokens = HashIndex(vocabulary->tokens.size());
  for (size_t id = 0; id < vocabulary->tokens.size(); ++id) {
    std::string& token = vocabulary->tokens[id];
    const TokenKind kind = vocabulary->kinds[id];
    const bool text = kind == TokenKind::kNormal || kind == TokenKind::kUnused;
    if (!text || token.empty() || !respell(&token)) continue;
    vocabulary->text_tokens.Insert(HashText(token), static_cast<uint32_t>(id));
  }
}

}  // namespace lockstep
