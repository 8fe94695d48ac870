// The model that lockstep comes with: its files are what they should be, it knows its language, and
// a damaged copy is refused.
#include "engine/story.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/registry.h"
#include "caches/simple_kv_cache.h"
#include "caches/temporary_folder.h"
#include "engine/generate.h"
#include "engine/kernels.h"
#include "engine/quantize.h"
#include "engine/tokenizer.h"
#include "engine/transformer.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const GgufFile> OpenStory(std::string_view weights) {
  return OpenStoryModel(StoryModelOf(weights));
}

// What the greedy continuation of "Once upon a time" is, to its end: in Q8_0 the same as in F32.
constexpr std::string_view kGreedyStory =
    " there was a small girl called Juno. She lived in a village below the mountain. Juno had a "
    "silver boat, and she liked to let it swim on the water. But one afternoon the boat was "
    "gone. Juno was sad, because without it the pond looked empty. She looked behind the garden "
    "wall, but there was nothing but grass. Then she met the gray goose. \"Have you seen my "
    "silver boat?\" asked Juno. \"Yes,\" said the gray goose. \"Oskar the beaver found it under "
    "the wooden stairs.\" So Juno ran to the wooden stairs. There sat Vera with the white boat. "
    "\"Is this yours?\" asked Vera. \"Yes,\" said Juno, \"but we can share it.\" After that, "
    "Juno and Vera went out together to let it swim on the water. And Juno never left it under "
    "the wooden stairs again.";

// Stories of the same grammar that the model was not trained on: engine/story/make_corpus.py
// 2 4, the first and the last.
constexpr std::string_view kHeldOut[] = {
    "Once upon a time there were two friends, a frog named Nora and a beaver named Elsa. Elsa's "
    "birthday was near, and Nora wanted to make porridge for her. But there was no milk in the "
    "house. So she took her blue sack and went to the cow. At the hay loft she met Nils the "
    "badger, who was hungry. Nora gave him a piece of bread. \"Thank you,\" said Nils. \"I will "
    "help you carry the milk.\" Together they filled the blue sack and went home. Nora stirred "
    "and baked until the porridge was ready. When the birthday came Elsa tasted the porridge. "
    "\"I have never tasted anything better,\" said Elsa. Nora smiled and gave the first piece to "
    "Nils, because he had carried the milk.",
    "There once was a kind boy called Paul. Paul had a red flute, and he liked to play a song on "
    "it. But one sunny day the flute was gone. Paul was sad, because without it the evenings "
    "were silent. He looked in the hay loft, but it was not there. Then he met the tall heron. "
    "\"Have you seen my red flute?\" asked Paul. \"Yes,\" said the tall heron. \"Lina the "
    "hedgehog found it inside the hollow tree.\" So Paul ran to the hollow tree. There sat Lina "
    "with the red flute. \"Is this yours?\" asked Lina. \"Yes,\" said Paul, \"but come and play "
    "with me.\" After that, Paul and Lina went out together to play a song on it. And the red "
    "flute was never lost again.",
};

class StoryTest : public ::testing::TestWithParam<StoryModel> {
 protected:
  void SetUp() override {
    file_ = OpenStoryModel(GetParam());
    model_ = Model::Load(file_);
    tokenizer_ = Tokenizer::Load(*file_);
  }

  std::string Greedy(const std::string& cache) const {
    const std::vector<int32_t> prompt = tokenizer_->EncodePrompt("Once upon a time");
    const auto room = model_->config().context_length;
    const auto made =
        ParseCacheSpec(cache).make({.geometry = model_->config().geometry(room), .sequences = 1});
    Transformer transformer(model_);
    GenerateOptions options;
    options.max_new_tokens = room - static_cast<int32_t>(prompt.size());
    options.stop_tokens = {*tokenizer_->eos()};
    const GenerateResult result = Generate(transformer, *made, prompt, options);
    EXPECT_EQ(result.tokens.back(), *tokenizer_->eos()) << "the story does not end";
    return tokenizer_->Decode(result.tokens);
  }

  // Nats a token of a whole story, its end included.
  double Loss(std::string_view text) const {
    std::vector<int32_t> ids = tokenizer_->EncodePrompt(text);
    ids.push_back(*tokenizer_->eos());
    Transformer transformer(model_);
    SimpleKvCache cache(model_->config().geometry(model_->config().context_length));
    double sum = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto position = static_cast<int32_t>(i);
      const auto logits = transformer.Forward({&ids[i], 1}, {&position, 1}, cache);
      sum -= LogProbabilities(logits).Of(ids[i + 1]);
    }
    return sum / static_cast<double>(ids.size() - 1);
  }

  std::shared_ptr<const GgufFile> file_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<const Tokenizer> tokenizer_;
};
INSTANTIATE_TEST_SUITE_P(, StoryTest,
                         ::testing::ValuesIn(StoryModels().begin(), StoryModels().end()),
                         [](const auto& test) { return std::string(test.param.weights); });

TEST_P(StoryTest, HasAllThatIsDoneToARowInItsSlot) {
  const ModelConfig& config = model_->config();
  EXPECT_EQ(config.architecture, "qwen3");
  EXPECT_EQ(config.num_layers, 4);
  EXPECT_EQ(config.num_heads, 8);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.context_length, 256);
  EXPECT_EQ(config.vocab_size, tokenizer_->vocab_size());
  EXPECT_TRUE(config.tied_head);
  EXPECT_TRUE(config.rotates(0));
  const std::vector<float> zeros(static_cast<size_t>(config.q_dim()));
  for (const LayerWeights& layer : model_->layers()) {
    EXPECT_EQ(layer.bq.size(), zeros.size());
    EXPECT_NE(layer.bq, zeros);
    EXPECT_EQ(layer.bk.size(), static_cast<size_t>(config.kv_dim()));
    EXPECT_EQ(layer.bv.size(), static_cast<size_t>(config.kv_dim()));
    EXPECT_EQ(layer.q_norm.size(), static_cast<size_t>(config.head_dim));
    EXPECT_EQ(layer.k_norm.size(), static_cast<size_t>(config.head_dim));
  }
}

TEST_P(StoryTest, EveryTextSurvivesItsVocabulary) {
  std::string all_bytes;
  for (int byte = 0; byte < 256; ++byte) all_bytes += static_cast<char>(byte);
  for (const std::string& text :
       {std::string("Once upon a time"), std::string("\"No!\" said the owl, who'd seen it's 1999."),
        std::string("  two spaces,\ttab\r\n\n and the end "), std::string("Größe 東京 \U0001F98A"),
        std::string("<|endoftext|>"), std::string("\xC3"), std::string("a\0b", 3), all_bytes}) {
    const std::vector<int32_t> ids = tokenizer_->Encode(text);
    EXPECT_EQ(tokenizer_->Decode(ids), text);
    EXPECT_THAT(ids, ::testing::Not(::testing::Contains(*tokenizer_->eos()))) << text;
  }
  // Its own language is short in it: hardly more tokens than words and marks.
  EXPECT_EQ(tokenizer_->Encode("Once upon a time there was a little fox").size(), 9u);
  EXPECT_EQ(tokenizer_->EncodePrompt("Once").front(), *tokenizer_->bos());
}

TEST_P(StoryTest, TellsTheSameStoryOnEveryKindOfF32Rows) {
  for (const char* cache : {"simple", "paged/16"}) EXPECT_EQ(Greedy(cache), kGreedyStory) << cache;
}

// 0.248 nats a token over 200 of them (docs/story-model.md); an untrained model has 6.9.
TEST_P(StoryTest, KnowsStoriesThatItHasNotSeen) {
  for (const std::string_view text : kHeldOut) {
    const double loss = Loss(text);
    EXPECT_LT(loss, 0.4) << text;
    EXPECT_GT(loss, 0.1) << "a story is no foregone conclusion: " << text;
  }
  // The same words in disorder are no story.
  EXPECT_GT(Loss("pond the upon fox Once wheel, not said a."), 3.0);
}

TEST(StoryFilesTest, Q8_0IsTheQuantizedF32File) {
  const auto floats = OpenStory("f32"), codes = OpenStory("q8_0");
  EXPECT_EQ(floats->metadata(), codes->metadata());
  ASSERT_EQ(floats->tensors().size(), codes->tensors().size());
  int32_t matrices = 0;
  for (size_t i = 0; i < floats->tensors().size(); ++i) {
    const GgufTensor& from = floats->tensors()[i];
    const GgufTensor& to = codes->tensors()[i];
    ASSERT_EQ(from.name, to.name);
    EXPECT_EQ(from.shape, to.shape) << from.name;
    ASSERT_EQ(from.type, GgmlType::kF32) << from.name;
    const bool matrix = from.shape.size() == 2;
    matrices += matrix;
    ASSERT_EQ(to.type, matrix ? GgmlType::kQ8_0 : GgmlType::kF32) << from.name;
    std::vector<float> values(static_cast<size_t>(from.elements()));
    DecodeWeights(from.type, from.data, values);
    std::vector<std::byte> expected(to.data.size());
    QuantizeWeights(to.type, values, expected);
    EXPECT_TRUE(std::ranges::equal(expected, to.data)) << from.name;
  }
  EXPECT_EQ(matrices, 1 + 4 * 7);
}

// So that a 16-bit copy is the same model.
TEST(StoryFilesTest, WeightsAreF16AndBF16) {
  const auto file = OpenStory("f32");
  for (const GgufTensor& tensor : file->tensors()) {
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    DecodeWeights(tensor.type, tensor.data, values);
    for (const GgmlType type : {GgmlType::kF16, GgmlType::kBF16}) {
      std::vector<std::byte> half(values.size() * 2);
      std::vector<float> back(values.size());
      QuantizeWeights(type, values, half);
      DecodeWeights(type, half, back);
      EXPECT_EQ(back, values) << tensor.name;
    }
  }
}

TEST(StoryFilesTest, DamageIsRefused) {
  const TemporaryFolder folder;
  const std::vector<std::string> folders = {folder.path().string()};
  for (const StoryModel& model : StoryModels()) {
    const auto file = OpenStoryModel(model);
    const auto bytes = file->bytes();
    const std::string path = folder.File(std::string(model.file));
    const auto refusal = [&](std::vector<std::byte> damaged) {
      WriteWholeFile(path, damaged);
      try {
        OpenStoryModel(model, folders);
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string("opened");
    };
    std::vector<std::byte> flipped(bytes.begin(), bytes.end());
    EXPECT_EQ(refusal(flipped), "opened");
    flipped[flipped.size() - 5000] ^= std::byte{1};  // in a weight: no parser can see it
    EXPECT_THAT(refusal(flipped), HasSubstr(path));
    EXPECT_THAT(refusal(flipped), HasSubstr("install lockstep again"));
    EXPECT_THAT(refusal({bytes.begin(), bytes.end() - 32}), HasSubstr(path));
    EXPECT_THAT(refusal({}), HasSubstr(path));
  }
}

TEST(StoryFilesTest, AbsenceNamesTheFolders) {
  const std::vector<std::string> folders = {"/no/such", "/nor/this"};
  try {
    StoryModelPath(StoryModelOf("q8_0"), folders);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("story-q8_0.gguf"));
    EXPECT_THAT(error.what(), HasSubstr("/no/such, /nor/this"));
  }
  try {
    StoryModelOf("q4_0");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("q4_0"));
    EXPECT_THAT(error.what(), HasSubstr("f32, q8_0"));
  }
}

}  // namespace
}  // namespace lockstep
