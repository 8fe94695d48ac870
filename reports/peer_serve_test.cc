// lockstep's engine behind the protocol gives the bits of the Transformer, and refuses what is
// wrong without a trace.
#include "reports/peer_serve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/registry.h"
#include "caches/temporary_folder.h"
#include "engine/model.h"
#include "engine/synthetic.h"
#include "engine/transformer.h"

namespace lockstep {
namespace {

using nlohmann::json;

struct Answer {
  json object;
  std::vector<float> values;
};

class ServeTest : public testing::Test {
 protected:
  ServeTest() : image_(MakeSyntheticImage(SyntheticPreset("tiny-mha-4x4-f32"), 1)) {
    WriteWholeFile(path_, image_);
  }

  json Load(int32_t sequences) const {
    return {{"do", "load"},           {"model", path_}, {"positions", 16},
            {"sequences", sequences}, {"threads", 1},   {"options", json::object()}};
  }

  static json Step(int32_t sequence, int32_t position, const std::vector<int32_t>& tokens,
                   bool output = true) {
    return {{"do", "step"},
            {"rows",
             {{{"sequence", sequence},
               {"position", position},
               {"tokens", tokens},
               {"output", output}}}}};
  }

  static std::vector<Answer> Serve(const std::vector<json>& requests) {
    std::string input;
    int64_t id = 0;
    for (json request : requests) {
      if (!request.contains("id")) request["id"] = ++id;
      input += request.dump() + "\n";
    }
    return Serve(input);
  }

  static std::vector<Answer> Serve(const std::string& input) {
    std::istringstream in(input);
    EngineServer server;
    std::vector<Answer> answers;
    for (std::string request; !server.ended() && std::getline(in, request);) {
      const std::string text = server.Answer(request);
      const size_t end = text.find('\n') + 1;
      Answer answer{json::parse(text.substr(0, end)), {}};
      const size_t bytes = answer.object.value("bytes", size_t{0});
      EXPECT_EQ(text.size(), end + bytes);
      answer.values.resize(bytes / sizeof(float));
      if (bytes > 0) std::memcpy(answer.values.data(), text.data() + end, bytes);
      answers.push_back(std::move(answer));
    }
    return answers;
  }

  // The last token's logits of these alone, in one step.
  std::vector<float> Logits(const std::vector<int32_t>& tokens) const {
    const auto model = Model::Load(GgufFile::FromBytes(image_, "model"));
    const auto cache = ParseCacheSpec("simple").make({.geometry = model->config().geometry(16)});
    std::vector<int32_t> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), 0);
    Transformer transformer(model);
    const auto logits = transformer.Forward(tokens, positions, *cache);
    return {logits.begin(), logits.end()};
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.File("model.gguf");
  std::vector<std::byte> image_;
};

TEST_F(ServeTest, StepsRollbacksAndForksGiveTheBitsOfTheTokensAlone) {
  const auto answers = Serve({Load(2),
                              Step(0, 0, {5, 6, 7}),
                              Step(0, 3, {8}, false),
                              {{"do", "rollback"}, {"sequence", 0}, {"length", 3}},
                              {{"do", "fork"}, {"from", 0}, {"to", 1}},
                              Step(0, 3, {9}),
                              Step(1, 3, {10, 11}),
                              {{"do", "reset"}},
                              Step(1, 0, {12})});
  ASSERT_EQ(answers.size(), 9u);
  for (const Answer& answer : answers) EXPECT_FALSE(answer.object.contains("error"));
  EXPECT_EQ(answers[0].object, json({{"id", 1}, {"vocabulary", 288}}));
  EXPECT_EQ(answers[1].values, Logits({5, 6, 7}));
  EXPECT_EQ(answers[2].object["bytes"], 0);
  EXPECT_EQ(answers[5].values, Logits({5, 6, 7, 9}));
  EXPECT_EQ(answers[6].values, Logits({5, 6, 7, 10, 11}));
  EXPECT_EQ(answers[8].values, Logits({12}));
}

TEST_F(ServeTest, WhatIsWrongIsRefusedAndChangesNothing) {
  const std::vector<json> wrong = {
      {{"do", "fly"}},
      {{"do", "reset"}, {"more", 1}},
      {{"do", "hello"}, {"protocol", 2}},
      {{"do", "rollback"}, {"sequence", 0}, {"length", 4}},
      {{"do", "rollback"}, {"sequence", 2}, {"length", 0}},
      {{"do", "fork"}, {"from", 0}, {"to", 0}},
      {{"do", "load"}, {"model", "/absent"}},
      Step(0, 2, {1}),
      Step(0, 4, {1}),
      Step(0, 3, {1, 288}),
      Step(0, 3, {1, -1}),
      Step(0, 3, {}),
      Step(0, 3, std::vector<int32_t>(14, 1)),
      {{"do", "step"}, {"rows", json::array()}},
      {{"do", "step"}, {"rows", {1}}},
  };
  for (const json& request : wrong) {
    const auto answers = Serve({Load(2), Step(0, 0, {5, 6, 7}), request, Step(0, 3, {9})});
    ASSERT_EQ(answers.size(), 4u) << request;
    EXPECT_TRUE(answers[2].object.contains("error")) << request;
    EXPECT_EQ(answers[2].object["id"], 3) << request;
    EXPECT_EQ(answers[3].values, Logits({5, 6, 7, 9})) << request;
  }
}

TEST_F(ServeTest, AModelThatCannotBeLoadedLeavesTheOldOne) {
  json load = Load(2);
  load["options"] = {{"cache", "absent"}};
  json too_long = Load(1);
  too_long["positions"] = 100'000;
  const auto answers = Serve({Load(2), Step(0, 0, {5, 6, 7}), load, too_long, Step(0, 3, {9})});
  ASSERT_EQ(answers.size(), 5u);
  EXPECT_TRUE(answers[2].object.contains("error"));
  EXPECT_TRUE(answers[3].object.contains("error"));
  EXPECT_EQ(answers[4].values, Logits({5, 6, 7, 9}));
}

TEST_F(ServeTest, LinesThatAreNoRequestsAreRefused) {
  for (const char* line : {"", "nonsense", "[]", "7", R"({"do":"reset"})", R"({"id":"1"})"}) {
    const auto answers = Serve(std::string(line) + "\n{\"id\":2,\"do\":\"quit\"}\n{}");
    ASSERT_EQ(answers.size(), 2u) << line << ": nothing is answered behind quit";
    EXPECT_TRUE(answers[0].object.contains("error")) << line;
    EXPECT_EQ(answers[1].object, json({{"id", 2}})) << line;
  }
}

TEST_F(ServeTest, AVocabularyAloneTokenizes) {
  json load = Load(1);
  load["positions"] = 0;
  const auto answers =
      Serve({load, {{"do", "tokenize"}, {"text", "the"}}, Step(0, 0, {1}), {{"do", "reset"}}});
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_EQ(answers[1].object["tokens"].size(), 2u);
  EXPECT_TRUE(answers[2].object.contains("error")) << "no model is loaded";
}

TEST(EngineServerTest, AControlThatIsABuildIsNoFaultOfAnEngine) {
  for (const MatrixControl& control : MatrixControls()) {
    if (control.name == "reordered-additions") {
      EXPECT_THROW(EngineServer({.control = &control}), Error);
    } else {
      EXPECT_NO_THROW(EngineServer({.control = &control})) << control.name;
    }
  }
}

}  // namespace
}  // namespace lockstep
