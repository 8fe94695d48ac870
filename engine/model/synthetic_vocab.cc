#include "engine/model/synthetic_vocab.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "caches/check.h"
#include "engine/tokenizer.h"
#include "engine/tokenizer/byte_alphabet.h"

namespace lockstep {
namespace {

constexpr int32_t kBos = 0;
constexpr int32_t kEos = 1;

// Pairs in order of rank; both halves are bytes or earlier results. U+0120 stands for a space.
constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kMerges = {{
    {"h", "e"},
    {"i", "n"},
    {"\u0120", "t"},
    {"\u0120", "a"},
    {"o", "n"},
    {"e", "r"},
    {"\u0120t", "he"},
    {"a", "t"},
    {"p", "on"},
    {"\u0120", "u"},
    {"\u0120u", "pon"},
    {"in", "g"},
}};

}  // namespace

int32_t SyntheticVocabMinimum() { return 2 + 256 + static_cast<int32_t>(kMerges.size()); }

void AddSyntheticVocab(int32_t vocab_size, GgufWriter* writer) {
  LS_CHECK(vocab_size >= SyntheticVocabMinimum(), "a vocabulary of {} tokens", vocab_size);
  std::vector<std::string> tokens = {"<|bos|>", "<|eos|>"};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(SpellBytes(std::string(1, static_cast<char>(byte))));
  }
  std::vector<std::string> merges;
  for (const auto& [left, right] : kMerges) {
    tokens.push_back(std::string(left) + std::string(right));
    merges.push_back(fmt::format("{} {}", left, right));
  }
  for (int32_t filler = 0; static_cast<int32_t>(tokens.size()) < vocab_size; ++filler) {
    tokens.push_back(fmt::format("<|filler_{}|>", filler));
  }
  std::vector<int32_t> kinds(tokens.size(), static_cast<int32_t>(TokenKind::kNormal));
  kinds[kBos] = static_cast<int32_t>(TokenKind::kControl);
  kinds[kEos] = static_cast<int32_t>(TokenKind::kControl);

  writer->AddString("tokenizer.ggml.model", "gpt2");
  writer->AddString("tokenizer.ggml.pre", "gpt-2");
  writer->AddStrings("tokenizer.ggml.tokens", tokens);
  writer->AddInt32s("tokenizer.ggml.token_type", kinds);
  writer->AddStrings("tokenizer.ggml.merges", merges);
  writer->AddUint32("tokenizer.ggml.bos_token_id", kBos);
  writer->AddUint32("tokenizer.ggml.eos_token_id", kEos);
  writer->AddBool("tokenizer.ggml.add_bos_token", true);
  writer->AddBool("tokenizer.ggml.add_eos_token", false);
}

}  // namespace lockstep
