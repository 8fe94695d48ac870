// Small vocabularies for tests, through a real GGUF image.
#ifndef LOCKSTEP_ENGINE_TOKENIZER_TEST_VOCABULARY_H_
#define LOCKSTEP_ENGINE_TOKENIZER_TEST_VOCABULARY_H_

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "caches/random.h"
#include "engine/gguf.h"
#include "engine/tokenizer.h"
#include "engine/tokenizer/byte_alphabet.h"
#include "engine/tokenizer/utf8.h"

namespace lockstep {

// What the file is to say. Tests change what they are about and leave the rest well-formed.
struct VocabularySpec {
  std::optional<std::string> model;
  std::optional<std::string> pre;
  std::optional<std::vector<std::string>> tokens = std::vector<std::string>();
  std::optional<std::vector<float>> scores;
  std::optional<std::vector<int32_t>> types = std::vector<int32_t>();
  std::optional<std::vector<std::string>> merges;
  std::map<std::string, uint32_t> ids;  // "bos": tokenizer.ggml.bos_token_id
  std::map<std::string, bool> flags;    // "add_bos_token": tokenizer.ggml.add_bos_token

  // The new token's id.
  int32_t Add(std::string_view token, TokenKind kind = TokenKind::kNormal, float score = 0) {
    tokens->emplace_back(token);
    types->push_back(static_cast<int32_t>(kind));
    if (scores) scores->push_back(score);
    return static_cast<int32_t>(tokens->size()) - 1;
  }

  // Byte-level: appends the merge of two strings of bytes, and the token that it makes.
  int32_t AddMerge(std::string_view left, std::string_view right) {
    merges->push_back(SpellBytes(left) + ' ' + SpellBytes(right));
    return Add(SpellBytes(std::string(left) + std::string(right)));
  }

  std::shared_ptr<const GgufFile> File() const {
    GgufWriter writer;
    const auto key = [](std::string_view name) { return fmt::format("tokenizer.ggml.{}", name); };
    if (model) writer.AddString(key("model"), *model);
    if (pre) writer.AddString(key("pre"), *pre);
    if (tokens) writer.AddStrings(key("tokens"), *tokens);
    if (scores) writer.AddFloat32s(key("scores"), *scores);
    if (types) writer.AddInt32s(key("token_type"), *types);
    if (merges) writer.AddStrings(key("merges"), *merges);
    for (const auto& [name, id] : ids) writer.AddUint32(key(name + "_token_id"), id);
    for (const auto& [name, flag] : flags) writer.AddBool(key(name), flag);
    return GgufFile::FromBytes(writer.Finish(), "test.gguf");
  }

  std::unique_ptr<const Tokenizer> Load(const TokenizerOptions& options = {}) const {
    return Tokenizer::Load(*File(), options);
  }
};

inline constexpr int32_t kTestBos = 1;
inline constexpr int32_t kTestEos = 2;
inline constexpr int32_t kTestFirstByte = 3;  // byte b has id 3 + b

// <unk>, <s>, </s>, the 256 byte tokens, then U+2581 as kTestSpace.
inline constexpr int32_t kTestSpace = 259;
inline VocabularySpec SentencePieceSpec() {
  VocabularySpec spec;
  spec.model = "llama";
  spec.scores = std::vector<float>();
  spec.Add("<unk>", TokenKind::kUnknown);
  spec.Add("<s>", TokenKind::kControl);
  spec.Add("</s>", TokenKind::kControl);
  for (int byte = 0; byte < 256; ++byte) {
    spec.Add(fmt::format("<0x{:02X}>", byte), TokenKind::kByte);
  }
  spec.Add("\u2581", TokenKind::kNormal, -1000);
  return spec;
}

// The 256 bytes, byte b as id b, and no merges.
inline VocabularySpec ByteLevelSpec() {
  VocabularySpec spec;
  spec.model = "gpt2";
  spec.pre = "gpt-2";
  spec.merges = std::vector<std::string>();
  for (int byte = 0; byte < 256; ++byte) {
    spec.Add(SpellBytes(std::string(1, static_cast<char>(byte))));
  }
  return spec;
}

inline std::string RandomBytes(Random& random, size_t size) {
  std::string bytes;
  for (size_t i = 0; i < size; ++i) bytes.push_back(static_cast<char>(random.Next() >> 56));
  return bytes;
}

// `size` code points: mostly of `common`, else any scalar value.
inline std::string RandomText(Random& random, size_t size, const std::u32string& common) {
  std::string text;
  for (size_t i = 0; i < size; ++i) {
    char32_t code_point = common[random.Below(static_cast<uint32_t>(common.size()))];
    if (random.Below(8) == 0) {
      code_point = random.Below(0x110000 - 0x800);
      if (code_point >= 0xd800) code_point += 0x800;  // past the surrogates
    }
    AppendUtf8(code_point, &text);
  }
  return text;
}

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_TOKENIZER_TEST_VOCABULARY_H_
