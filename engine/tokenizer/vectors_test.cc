// Ids that llama.cpp gives for real vocabularies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "caches/error.h"
#include "engine/gguf.h"
#include "engine/test_models.h"
#include "engine/tokenizer.h"

namespace lockstep {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The parts of `text` that `separator` ends. What follows the last one is left out.
std::vector<std::string> SplitEnded(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  for (size_t end = text.find(separator); end != std::string_view::npos;
       end = text.find(separator)) {
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end + separator.size());
  }
  return parts;
}

std::vector<int32_t> ReadIds(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<int32_t>(stream), std::istream_iterator<int32_t>()};
}

class VectorsTest : public testing::TestWithParam<const char*> {};

TEST_P(VectorsTest, EveryTextHasTheReferencesIdsAndDecodes) {
  const std::string relative = std::string("vocab/ggml-vocab-") + GetParam() + ".gguf";
  LOCKSTEP_TEST_MODEL_OR_SKIP(path, relative);
  const auto tokenizer = Tokenizer::Load(*GgufFile::Open(path));
  const std::vector<std::string> texts =
      SplitEnded(ReadFile(path + ".inp"), "\n__ggml_vocab_test__\n");
  const std::vector<std::string> lines = SplitEnded(ReadFile(path + ".out"), "\n");
  ASSERT_EQ(texts.size(), 46u);
  ASSERT_EQ(lines.size(), 46u);
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<int32_t> ids = tokenizer->Encode(texts[i]);
    EXPECT_EQ(ids, ReadIds(lines[i])) << "text " << i << ": " << texts[i];
    EXPECT_EQ(tokenizer->Decode(ids), texts[i]) << "text " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, VectorsTest,
                         testing::Values("llama-spm", "phi-3", "gpt-2", "llama-bpe", "qwen2"),
                         [](const auto& vocabulary) {
                           std::string name = vocabulary.param;
                           std::erase(name, '-');
                           return name;
                         });

struct PromptCase {
  std::string text;
  std::vector<int32_t> ids;
};

// Records of a text, a tab and ids, one a line; a text may hold tabs and line breaks, ids may not.
std::vector<PromptCase> ReadPromptCases(const std::string& content) {
  std::vector<PromptCase> cases;
  std::string text;
  for (const std::string& line : SplitEnded(content, "\n")) {
    const size_t tab = line.rfind('\t');
    const std::string tail = tab == std::string::npos ? "" : line.substr(tab + 1);
    if (tail.empty() || tail.find_first_not_of("0123456789 ") != std::string::npos) {
      text += line + '\n';
      continue;
    }
    cases.push_back({text + line.substr(0, tab), ReadIds(tail)});
    text.clear();
  }
  return cases;
}

TEST(Stories, EveryPromptHasTheReferencesIds) {
  LOCKSTEP_TEST_MODEL_OR_SKIP(path, "stories260K-f32.gguf");
  LOCKSTEP_TEST_MODEL_OR_SKIP(cases_path, "ref/stories260K.tokens.tsv");
  const auto tokenizer = Tokenizer::Load(*GgufFile::Open(path));
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_TRUE(tokenizer->add_bos());
  EXPECT_FALSE(tokenizer->add_eos());
  const std::vector<PromptCase> cases = ReadPromptCases(ReadFile(cases_path));
  ASSERT_EQ(cases.size(), 10u);
  for (const PromptCase& c : cases) {
    const std::vector<int32_t> ids = tokenizer->EncodePrompt(c.text);
    EXPECT_EQ(ids, c.ids) << c.text;
    EXPECT_EQ(tokenizer->Decode(ids), c.text);
  }
}

TEST(Phi3, UserDefinedTokensAreFoundInPlainTextAndControlTokensAreNot) {
  LOCKSTEP_TEST_MODEL_OR_SKIP(path, "vocab/ggml-vocab-phi-3.gguf");
  const auto tokenizer = Tokenizer::Load(*GgufFile::Open(path));
  ASSERT_EQ(tokenizer->kind(2), TokenKind::kUserDefined);  // </s>
  ASSERT_EQ(tokenizer->kind(32007), TokenKind::kControl);  // <|end|>
  const std::string text = "</s>Hello</s> world<|end|>";
  const std::vector<int32_t> ids = tokenizer->Encode(text);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), 2);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 32007), 0);
  EXPECT_EQ(ids.at(0), 2);
  EXPECT_EQ(tokenizer->Decode(ids), text);
}

// An old file: GGUF version 2, and no word about the pre-tokenizer.
TEST(Aquila, IsRefusedUntilThePreTokenizerIsNamed) {
  LOCKSTEP_TEST_MODEL_OR_SKIP(path, "vocab/ggml-vocab-aquila.gguf");
  const auto file = GgufFile::Open(path);
  try {
    Tokenizer::Load(*file);
    FAIL() << "a missing pre-tokenizer was guessed";
  } catch (const Error& error) {
    EXPECT_THAT(error.parts().where, testing::HasSubstr("tokenizer.ggml.pre"));
    EXPECT_THAT(error.parts().remedy, testing::HasSubstr("'default'"));
  }
  const auto tokenizer = Tokenizer::Load(*file, {.pre_tokenizer = "default"});
  EXPECT_EQ(tokenizer->vocab_size(), 100008);
  const std::string text = "Hello world! Café - 123 😊 你好";
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
}

}  // namespace
}  // namespace lockstep
