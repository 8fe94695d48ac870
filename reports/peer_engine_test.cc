// Sessions with engines that keep the protocol and engines that do not. The engines are a few lines
// of shell: what lockstep's own answers is tested in peer_serve_test.cc.
#include "reports/peer_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kSeconds = 10;

// An engine that says hello and loads two tokens, then does `rest`; $n is the request's id.
std::string Script(const std::string& rest) {
  return "next() { read -r line; n=$((n+1)); }; n=0; next; "
         "echo '{\"id\":1,\"protocol\":1,\"engine\":\"fake\",\"values\":\"logits\","
         "\"can\":[\"tokenize\"],\"options\":[]}'; "
         "next; echo '{\"id\":2,\"vocabulary\":2}'; next; " +
         rest;
}

EngineSession Started(const std::string& script, int seconds = kSeconds) {
  return EngineSession({"sh", "-c", script}, seconds);
}

// What asking for one row of values throws.
template <typename Thrown>
std::string StepThrows(const std::string& rest, int seconds = kSeconds) {
  EngineSession session({"sh", "-c", Script(rest)}, seconds);
  session.Load({.model = "model.gguf", .positions = 4});
  const int32_t token = 1;
  try {
    session.Step(EngineRows{.tokens = {&token, 1}});
  } catch (const Thrown& thrown) {
    return thrown.what();
  }
  return "nothing";
}

TEST(EngineSessionTest, ValuesAreTheBytesBehindTheAnswer) {
  EngineSession session(
      {"sh", "-c",
       Script("printf '{\"id\":3,\"bytes\":8}\\n\\000\\000\\200\\077\\000\\000\\000\\300'; next; "
              "echo '{\"id\":4,\"tokens\":[1,0]}'")},
      kSeconds);
  EXPECT_EQ(session.hello().engine, "fake");
  EXPECT_FALSE(session.hello().probabilities);
  EXPECT_FALSE(session.hello().can_fork);
  EXPECT_EQ(session.Load({.model = "model.gguf", .positions = 4}), 2);
  const int32_t token = 1;
  EXPECT_THAT(session.Step(EngineRows{.tokens = {&token, 1}}), ElementsAre(1.0f, -2.0f));
  EXPECT_THAT(session.Tokenize("text"), ElementsAre(1, 0));
}

TEST(EngineSessionTest, AnErrorIsARefusalAndTheEngineGoesOn) {
  EngineSession session(
      {"sh", "-c", Script("echo '{\"id\":3,\"error\":\"not now\"}'; next; echo '{\"id\":4}'")},
      kSeconds);
  session.Load({.model = "model.gguf", .positions = 4});
  EXPECT_EQ(session.ErrorOf(R"({"do":"nothing"})"), "not now");
  EXPECT_NO_THROW(session.Reset());
}

TEST(EngineSessionTest, WhatTheProtocolDoesNotKnowIsAFailure) {
  using Failure = EngineFailure;
  EXPECT_THAT(StepThrows<Failure>("echo nonsense"), HasSubstr("answered nonsense"));
  EXPECT_THAT(StepThrows<Failure>("echo '{\"id\":2,\"bytes\":0}'"), HasSubstr("without the id"));
  EXPECT_THAT(StepThrows<Failure>("echo '{\"id\":3}'"), HasSubstr("without 'bytes'"));
  EXPECT_THAT(StepThrows<Failure>("echo '{\"id\":3,\"bytes\":\"8\"}'"), HasSubstr("whole number"));
  EXPECT_THAT(StepThrows<Failure>("echo '{\"id\":3,\"bytes\":4}'"), HasSubstr("gives 4 bytes"));
  EXPECT_THAT(StepThrows<Failure>("echo '{\"id\":3,\"bytes\":8,\"more\":1}'"),
              HasSubstr("keys that the protocol does not have"));
  EXPECT_THAT(StepThrows<Failure>("echo '{\"id\":3,\"error\":7}'"), HasSubstr("answered"));
}

TEST(EngineSessionTest, AnEndASignalAndSilenceAreFailures) {
  EXPECT_THAT(StepThrows<EngineFailure>("exit 3"), HasSubstr("exit code 3"));
  EXPECT_THAT(StepThrows<EngineFailure>("kill -9 $$"), HasSubstr("signal 9"));
  EXPECT_THAT(StepThrows<EngineFailure>("sleep 60", 1), HasSubstr("within 1 seconds"));
  // Half of what was promised.
  EXPECT_THAT(StepThrows<EngineFailure>("printf '{\"id\":3,\"bytes\":8}\\n1234'; exit 0"),
              HasSubstr("exit code 0"));
}

TEST(EngineSessionTest, AnotherProtocolIsNone) {
  const auto hello = [](const std::string& fields) {
    return "read -r line; echo '{\"id\":1,\"engine\":\"fake\",\"options\":[]," + fields + "}'";
  };
  for (const char* fields :
       {R"("protocol":2,"values":"logits","can":[])", R"("protocol":1,"values":"ranks","can":[])",
        R"("protocol":1,"values":"logits","can":["fly"])", R"("protocol":1,"values":"logits")"}) {
    EXPECT_THROW(Started(hello(fields)), EngineFailure) << fields;
  }
  EXPECT_NO_THROW(Started(hello(R"("protocol":1,"values":"probabilities","can":["fork"])")));
}

}  // namespace
}  // namespace lockstep
