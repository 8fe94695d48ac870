#include "properties/fuzz/slow_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace lockstep::fuzz {
namespace {

constexpr std::string_view kMark = "\xe2\x96\x81";  // U+2581, a vocabulary's space

std::string Replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string replaced;
  while (!text.empty()) {
    const bool here = text.starts_with(from);
    replaced += here ? to : text.substr(0, 1);
    text.remove_prefix(here ? from.size() : 1);
  }
  return replaced;
}

// The character that stands for a byte in a byte-level vocabulary: itself where it prints, else
// one of those from U+0100 on, in order (Radford et al., GPT-2, encoder.py).
std::string Spelled(std::string_view bytes) {
  std::string spelled;
  for (const char c : bytes) {
    const auto prints = [](uint32_t b) {
      return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
    };
    const auto byte = static_cast<uint8_t>(c);
    uint32_t code_point = byte;
    if (!prints(byte)) {
      code_point = 0x100;
      for (uint32_t b = 0; b < byte; ++b) code_point += prints(b) ? 0u : 1u;
    }
    if (code_point < 0x80) {
      spelled.push_back(static_cast<char>(code_point));
    } else {
      spelled.push_back(static_cast<char>(0xc0 | code_point >> 6));
      spelled.push_back(static_cast<char>(0x80 | (code_point & 0x3f)));
    }
  }
  return spelled;
}

// A stretch of text that is one token already, or plain.
struct Run {
  std::string text;
  std::optional<int32_t> token;
};

// User-defined tokens, the longest first over the whole text.
std::vector<Run> CutAtUserTokens(const SmallVocabulary& vocabulary, std::string_view text) {
  std::vector<Run> runs;
  if (!text.empty()) runs.push_back({std::string(text), std::nullopt});
  std::set<size_t, std::greater<>> lengths;
  for (const SmallVocabulary::Token& token : vocabulary.tokens) {
    if (token.kind == TokenKind::kUserDefined) lengths.insert(token.text.size());
  }
  for (const size_t length : lengths) {
    std::vector<Run> finer;
    for (const Run& run : runs) {
      std::string plain;
      for (size_t at = 0; !run.token && at < run.text.size();) {
        const std::string piece = run.text.substr(at, length);
        const auto token =
            piece.size() == length ? vocabulary.Find(piece, TokenKind::kUserDefined) : std::nullopt;
        if (token) {
          if (!plain.empty()) finer.push_back({plain, std::nullopt});
          plain.clear();
          finer.push_back({piece, token});
          at += length;
        } else {
          plain.push_back(run.text[at++]);
        }
      }
      if (run.token) finer.push_back(run);
      if (!plain.empty()) finer.push_back({plain, std::nullopt});
    }
    runs = std::move(finer);
  }
  return runs;
}

// Joins, again and again, the adjacent pair that `rank` likes best, the leftmost among equals.
// `rank` gives nothing for a pair that cannot be joined; the lowest is the best.
template <typename Rank>
void JoinAll(std::vector<std::string>* symbols, const Rank& rank) {
  while (true) {
    std::optional<double> best;
    size_t best_at = 0;
    for (size_t i = 0; i + 1 < symbols->size(); ++i) {
      const std::optional<double> r = rank((*symbols)[i], (*symbols)[i + 1]);
      if (r && (!best || *r < *best)) best = r, best_at = i;
    }
    if (!best) return;
    (*symbols)[best_at] += (*symbols)[best_at + 1];
    symbols->erase(symbols->begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

std::string Spaced(const SmallVocabulary& v, std::string_view text) {
  std::string spaced = v.adds_space ? " " : "";
  return spaced.append(Replaced(text, kMark, " "));
}

bool EncodeSpaced(const SmallVocabulary& v, std::string_view text, std::vector<int32_t>* ids) {
  std::vector<std::string> symbols;
  while (!text.empty()) {
    const size_t length = std::max<size_t>(Utf8Length(text), 1);
    symbols.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  JoinAll(&symbols, [&](const std::string& a, const std::string& b) -> std::optional<double> {
    const auto token = v.Find(a + b, TokenKind::kNormal);
    if (!token) return std::nullopt;
    return -static_cast<double>(v.tokens[static_cast<size_t>(*token)].score);
  });
  for (const std::string& symbol : symbols) {
    if (const auto token = v.Find(symbol, TokenKind::kNormal)) {
      ids->push_back(*token);
      continue;
    }
    std::vector<int32_t> bytes;
    for (const char c : symbol) {
      const auto byte =
          v.Find(fmt::format("<0x{:02X}>", static_cast<uint8_t>(c)), TokenKind::kByte);
      if (byte) bytes.push_back(*byte);
    }
    if (bytes.size() < symbol.size()) {
      const auto unknown = v.Find("<unk>", TokenKind::kUnknown);
      if (!unknown) return false;
      bytes = {*unknown};
    }
    ids->insert(ids->end(), bytes.begin(), bytes.end());
  }
  return true;
}

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Bytes of the first word of an ASCII text as GPT-2 cuts it.
size_t AsciiWord(std::string_view text) {
  for (const std::string_view ending : {"'s", "'t", "'m", "'d", "'re", "'ve", "'ll"}) {
    if (text.starts_with(ending)) return ending.size();
  }
  const size_t begin = text[0] == ' ' && text.size() > 1 && !IsSpace(text[1]) ? 1 : 0;
  size_t end = begin;
  const auto take = [&](const auto& of_class) {
    while (end < text.size() && of_class(text[end])) ++end;
    return end > begin;
  };
  const auto is_other = [](char c) { return !IsLetter(c) && !IsDigit(c) && !IsSpace(c); };
  if (take(IsLetter) || take(IsDigit) || take(is_other)) return end;
  take(IsSpace);
  // The last space before a word belongs to the word's side of the cut.
  return end < text.size() && end > 1 ? end - 1 : end;
}

void EncodeWord(const SmallVocabulary& v, std::string_view word, std::vector<int32_t>* ids) {
  std::vector<std::string> symbols;
  for (const char c : word) symbols.emplace_back(1, c);
  JoinAll(&symbols, [&](const std::string& a, const std::string& b) -> std::optional<double> {
    for (size_t i = 0; i < v.merges.size(); ++i) {
      if (v.merges[i].left == a && v.merges[i].right == b) return static_cast<double>(i);
    }
    return std::nullopt;
  });
  for (const std::string& symbol : symbols) ids->push_back(*v.Find(symbol, TokenKind::kNormal));
}

}  // namespace

void SmallVocabulary::Add(Token token) {
  if (!ids.emplace(token.text, static_cast<int32_t>(tokens.size())).second) return;
  tokens.push_back(std::move(token));
}

std::optional<int32_t> SmallVocabulary::Find(std::string_view text, TokenKind kind) const {
  const auto found = ids.find(text);
  if (found == ids.end()) return std::nullopt;
  const bool is_kind = tokens[static_cast<size_t>(found->second)].kind == kind;
  return is_kind ? std::optional(found->second) : std::nullopt;
}

SmallVocabulary SentencePieceBase(bool with_byte_tokens, bool with_unknown) {
  SmallVocabulary v;
  v.Add({"<unk>", with_unknown ? TokenKind::kUnknown : TokenKind::kControl});
  v.Add({"<s>", TokenKind::kControl});
  v.Add({"</s>", TokenKind::kControl});
  for (int byte = 0; with_byte_tokens && byte < 256; ++byte) {
    v.Add({fmt::format("<0x{:02X}>", byte), TokenKind::kByte});
  }
  for (const std::string_view text :
       {" ", "a", "b", "c", "e", "h", "n", "t", "1", "2", "'", "\xc3\xa9", "\xe6\x97\xa5"}) {
    v.Add({std::string(text), TokenKind::kNormal, -1000});
  }
  return v;
}

SmallVocabulary ByteLevelBase(std::string_view pre_tokenizer) {
  SmallVocabulary v;
  v.byte_level = true;
  v.pre_tokenizer = pre_tokenizer;
  for (int byte = 0; byte < 256; ++byte) v.Add({std::string(1, static_cast<char>(byte))});
  return v;
}

std::shared_ptr<const GgufFile> VocabularyFile(const SmallVocabulary& v) {
  std::vector<std::string> texts, merges;
  std::vector<int32_t> kinds;
  std::vector<float> scores;
  for (const SmallVocabulary::Token& token : v.tokens) {
    const bool plain = token.kind == TokenKind::kNormal;
    const std::string spelled =
        v.byte_level ? Spelled(token.text) : Replaced(token.text, " ", kMark);
    texts.push_back(plain ? spelled : token.text);
    kinds.push_back(static_cast<int32_t>(token.kind));
    scores.push_back(token.score);
  }
  for (const auto& [left, right] : v.merges) merges.push_back(Spelled(left) + ' ' + Spelled(right));
  GgufWriter writer;
  writer.AddString("tokenizer.ggml.model", v.byte_level ? "gpt2" : "llama");
  writer.AddStrings("tokenizer.ggml.tokens", texts);
  writer.AddInt32s("tokenizer.ggml.token_type", kinds);
  if (v.byte_level) {
    writer.AddString("tokenizer.ggml.pre", v.pre_tokenizer);
    writer.AddStrings("tokenizer.ggml.merges", merges);
  } else {
    writer.AddFloat32s("tokenizer.ggml.scores", scores);
    writer.AddBool("tokenizer.ggml.add_space_prefix", v.adds_space);
  }
  return GgufFile::FromBytes(writer.Finish(), "fuzz.gguf");
}

std::optional<std::vector<int32_t>> SlowEncode(const SmallVocabulary& v, std::string_view text) {
  const bool ascii =
      std::ranges::all_of(text, [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  if (v.byte_level && (v.pre_tokenizer != "gpt-2" || !ascii)) return std::nullopt;
  std::vector<int32_t> ids;
  for (const Run& run : CutAtUserTokens(v, text)) {
    if (run.token) {
      ids.push_back(*run.token);
    } else if (v.byte_level) {
      for (std::string_view rest = run.text; !rest.empty();) {
        const size_t length = AsciiWord(rest);
        EncodeWord(v, rest.substr(0, length), &ids);
        rest.remove_prefix(length);
      }
    } else if (!EncodeSpaced(v, Spaced(v, run.text), &ids)) {
      return std::nullopt;
    }
  }
  return ids;
}

// The Unicode Standard, table 3-7.
size_t Utf8Length(std::string_view text) {
  const auto at = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0; };
  const auto follows = [&](size_t i, int low = 0x80, int high = 0xbf) {
    return at(i) >= low && at(i) <= high;
  };
  const int first = at(0);
  if (text.empty()) return 0;
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool second = follows(1, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf);
    return second && follows(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool second = follows(1, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf);
    return second && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace lockstep::fuzz
