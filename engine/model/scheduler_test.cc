#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

#include "caches/error.h"
#include "caches/paged_kv_cache.h"
#include "caches/simple_kv_cache.h"
#include "engine/generate.h"
#include "engine/model/test_support.h"
#include "engine/prefix_cache.h"
#include "engine/tokenizer.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kPositions = 40;

struct Served {
  std::vector<int32_t> tokens;
  DigestBuilder digest;
  bool last = false;
};

class SchedulerTest : public ::testing::Test {
 protected:
  PagedKvCache Root(int32_t blocks) const {
    const KvGeometry geometry = model_->config().geometry(kPositions);
    return PagedKvCache({.geometry = geometry,
                         .block_size = 4,
                         .pool = std::make_shared<BlockPool>(BlockPoolOptions{
                             .geometry = geometry, .block_size = 4, .num_blocks = blocks})});
  }

  ServeRequest Request(int32_t prompt, int32_t new_tokens) const {
    return {.prompt = SomeTokens(model_->config(), prompt), .max_new_tokens = new_tokens};
  }

  // To the end.
  std::map<int64_t, Served> RunAll(Scheduler& scheduler) {
    std::map<int64_t, Served> all;
    while (!scheduler.idle()) Note(scheduler.Step(), &all);
    return all;
  }
  static void Note(std::span<const ServedToken> tokens, std::map<int64_t, Served>* all) {
    for (const ServedToken& token : tokens) {
      Served& served = (*all)[token.id];
      served.tokens.push_back(token.token);
      served.digest.AddFloats(token.logits);
      served.last = token.last;
    }
  }

  void ExpectAsGenerated(const ServeRequest& request, const Served& served) {
    SimpleKvCache cache(model_->config().geometry(kPositions));
    Transformer alone(model_);
    const GenerateResult result = Generate(alone, cache, request.prompt,
                                           {.max_new_tokens = request.max_new_tokens,
                                            .sampler = request.sampler,
                                            .seed = request.seed,
                                            .stop_tokens = request.stop_tokens});
    EXPECT_EQ(served.tokens, result.tokens);
    EXPECT_EQ(served.digest.Finish(), result.logits_digest);
    EXPECT_TRUE(served.last);
  }

  std::string RefusalOf(Scheduler& scheduler, ServeRequest request) {
    try {
      scheduler.Submit(std::move(request));
    } catch (const std::exception& error) {
      EXPECT_TRUE(scheduler.idle());
      return error.what();
    }
    return "taken";
  }

  std::shared_ptr<const Model> model_ = PresetModel("tiny-mha-4x4-f32");
  Transformer transformer_{model_};
};

TEST_F(SchedulerTest, F5_EachRequestIsWhatGenerateGives) {
  PagedKvCache root = Root(9);  // the longest needs 6
  PrefixIndex index(root);
  PrefixCache prefixes(transformer_, index);
  Scheduler scheduler(
      transformer_, root,
      {.max_running = 3, .step_tokens = 7, .chunk_tokens = 5, .prefixes = &prefixes});
  std::vector<ServeRequest> requests = {Request(9, 12), Request(14, 8), Request(3, 6),
                                        Request(14, 8), Request(1, 10)};
  for (size_t i = 1; i < requests.size(); ++i) {
    requests[i].sampler = {.temperature = 1.5f};
    requests[i].seed = i;
  }
  requests[3].stop_tokens = {requests[3].prompt[2]};
  std::map<int64_t, Served> all;
  for (const ServeRequest& request : requests) {
    scheduler.Submit(request);
    Note(scheduler.Step(), &all);
  }
  for (auto& [id, served] : RunAll(scheduler)) {
    Served& before = all[id];
    EXPECT_FALSE(before.last);
    before.tokens.insert(before.tokens.end(), served.tokens.begin(), served.tokens.end());
    before.last = served.last;
  }
  ASSERT_EQ(all.size(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    SimpleKvCache cache(model_->config().geometry(kPositions));
    const Served& served = all[static_cast<int64_t>(i) + 1];
    const GenerateResult alone = Generate(transformer_, cache, requests[i].prompt,
                                          {.max_new_tokens = requests[i].max_new_tokens,
                                           .sampler = requests[i].sampler,
                                           .seed = requests[i].seed,
                                           .stop_tokens = requests[i].stop_tokens});
    EXPECT_EQ(served.tokens, alone.tokens) << i;
    EXPECT_TRUE(served.last) << i;
  }
  const SchedulerCounters& counters = scheduler.counters();
  EXPECT_GT(counters.preempted, 0);
  EXPECT_GT(counters.recomputed, 0);
  EXPECT_GT(counters.prefix_hits, 0);
  EXPECT_EQ(counters.most_together, 3);
}

// Where each text is cut, and what is said of each token, on a pool that preempts.
TEST_F(SchedulerTest, F5_StopsAndLogProbabilitiesAreThoseOfGenerate) {
  PagedKvCache root = Root(9);
  const auto tokenizer = Tokenizer::Load(model_->file());
  Scheduler scheduler(transformer_, root, {.max_running = 3, .step_tokens = 7, .chunk_tokens = 5});
  std::vector<ServeRequest> requests = {Request(9, 12), Request(14, 8), Request(3, 12)};
  std::vector<GenerateResult> alone;
  std::vector<std::string> texts;
  int32_t stopped = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    ServeRequest& request = requests[i];
    request.sampler = {.temperature = 1.5f};
    request.seed = 7 + i;
    request.log_probabilities = static_cast<int32_t>(i) - 1 + 2 * (i == 0);
    request.tokenizer = tokenizer.get();
    const auto generate = [&] {
      SimpleKvCache cache(model_->config().geometry(kPositions));
      StopText stops(request.stops);
      std::string text;
      GenerateOptions options = {.max_new_tokens = request.max_new_tokens,
                                 .sampler = request.sampler,
                                 .seed = request.seed,
                                 .log_probabilities = request.log_probabilities};
      options.on_token = [&](int32_t token) { text += stops.Push(tokenizer->Piece(token)); };
      options.ended = [&] { return stops.stopped(); };
      alone.push_back(Generate(transformer_, cache, request.prompt, options));
      texts.push_back(text + stops.Flush());
      return alone.back().tokens;
    };
    if (i == 1) {
      generate();  // never stopped
      continue;
    }
    // Across two tokens of what it says without a stop.
    const std::vector<int32_t> free = generate();
    alone.pop_back();
    texts.pop_back();
    request.stops = {"never said by this model",
                     tokenizer->Piece(free[5]) + tokenizer->Piece(free[6])};
    EXPECT_LT(generate().size(), free.size());
  }
  std::vector<std::vector<int32_t>> tokens(requests.size());
  std::vector<std::vector<TokenLogProbability>> said(requests.size());
  for (const ServeRequest& request : requests) scheduler.Submit(request);
  while (!scheduler.idle()) {
    for (const ServedToken& token : scheduler.Step()) {
      const auto i = static_cast<size_t>(token.id - 1);
      tokens[i].push_back(token.token);
      if (token.log_probability) said[i].push_back(*token.log_probability);
      EXPECT_TRUE(token.last || !token.stopped);
      stopped += token.stopped ? 1 : 0;
    }
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(tokens[i], alone[i].tokens) << i;
    EXPECT_EQ(said[i], alone[i].log_probabilities) << i;
    StopText stops(requests[i].stops);
    std::string text;
    for (const int32_t token : tokens[i]) text += stops.Push(tokenizer->Piece(token));
    EXPECT_EQ(text + stops.Flush(), texts[i]) << i;
  }
  EXPECT_EQ(stopped, 2);
  EXPECT_GT(scheduler.counters().preempted, 0);
}

// Who waits for blocks is not looked up in every step, and is admitted as soon as it was before.
TEST_F(SchedulerTest, WhoWaitsIsAskedAgainWhenSomethingChanged) {
  PagedKvCache root = Root(8);
  PrefixIndex index(root);
  PrefixCache prefixes(transformer_, index);
  Scheduler scheduler(transformer_, root, {.prefixes = &prefixes});
  const ServeRequest first = Request(9, 24), second = Request(30, 3);
  scheduler.Submit(first);
  scheduler.Submit(second);
  std::map<int64_t, Served> all;
  int64_t waited = 0;
  while (!scheduler.idle()) {
    Note(scheduler.Step(), &all);
    const auto requests = scheduler.requests();
    waited += requests.size() == 2 && requests[1].state == RequestState::kWaiting ? 1 : 0;
  }
  ExpectAsGenerated(first, all.at(1));
  ExpectAsGenerated(second, all.at(2));
  // Beside the first look and those that admitted, one for each block of four rows that became
  // known.
  EXPECT_GE(waited, 20);
  EXPECT_LE(index.counters().lookups, 3 + waited / 4 + 1);
  EXPECT_EQ(scheduler.counters().admitted, 2);
}

// As soon as somebody has given blocks back, and not when all have.
TEST_F(SchedulerTest, WhoWaitsIsAdmittedWhenBlocksAreGivenBack) {
  PagedKvCache root = Root(8);
  Scheduler scheduler(transformer_, root, {});
  for (const auto& [prompt, new_tokens] : {std::pair{9, 3}, std::pair{5, 20}, std::pair{14, 2}}) {
    scheduler.Submit(Request(prompt, new_tokens));
  }
  for (int32_t step = 0; step < 3; ++step) {
    scheduler.Step();
    EXPECT_EQ(scheduler.requests().back().state, RequestState::kWaiting) << step;
  }
  ASSERT_EQ(scheduler.requests().size(), 2u) << "the first has ended";
  scheduler.Step();
  EXPECT_NE(scheduler.requests().back().state, RequestState::kWaiting);
}

TEST_F(SchedulerTest, F5_LogitsAreThoseOfGenerate) {
  PagedKvCache root = Root(30);
  Scheduler scheduler(transformer_, root, {.max_running = 2, .step_tokens = 6});
  ServeRequest drawn = Request(8, 9);
  drawn.sampler = {.temperature = 1};
  scheduler.Submit(Request(11, 7));
  scheduler.Submit(drawn);
  const auto all = RunAll(scheduler);
  ExpectAsGenerated(Request(11, 7), all.at(1));
  ExpectAsGenerated(drawn, all.at(2));
  EXPECT_EQ(root.pool().used_blocks(), 0);
}

// One step has all that it may have: decode rows, and chunks behind them.
TEST_F(SchedulerTest, AStepIsFilledWithChunksBehindDecodeRows) {
  PagedKvCache root = Root(30);
  Scheduler scheduler(transformer_, root, {.max_running = 3, .step_tokens = 8, .chunk_tokens = 6});
  scheduler.Submit(Request(2, 9));
  EXPECT_EQ(scheduler.Step().size(), 1u);
  scheduler.Submit(Request(9, 2));
  scheduler.Submit(Request(9, 2));
  EXPECT_EQ(scheduler.Step().size(), 1u);
  EXPECT_EQ(scheduler.counters().rows, 2 + 8);
  const auto requests = scheduler.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].state, RequestState::kDecoding);
  EXPECT_EQ(requests[0].rows, 3);
  EXPECT_EQ(requests[1].state, RequestState::kPrefilling);
  EXPECT_EQ(requests[1].rows, 6);
  EXPECT_EQ(requests[2].rows, 1);
  EXPECT_EQ(requests[2].new_tokens, 0);
}

// Beside a request that decodes, and alone: a step may want no logits at all.
TEST_F(SchedulerTest, F5_ChunksThatAreNotTheLastHaveNoLogits) {
  PagedKvCache root = Root(30);
  Scheduler scheduler(transformer_, root, {.step_tokens = 4, .chunk_tokens = 3});
  std::map<int64_t, Served> all;
  scheduler.Submit(Request(8, 9));
  for (int32_t step = 0; step < 2; ++step) EXPECT_TRUE(scheduler.Step().empty()) << step;
  const auto tokens = scheduler.Step();
  ASSERT_EQ(tokens.size(), 1u);
  Note(tokens, &all);
  scheduler.Submit(Request(11, 3));
  while (!scheduler.idle()) {
    // One row of logits for each token, and so of the first where the second has a chunk.
    for (const ServedToken& token : scheduler.Step()) {
      EXPECT_EQ(token.logits.size(), static_cast<size_t>(model_->config().vocab_size));
      Note({&token, 1}, &all);
    }
  }
  ExpectAsGenerated(Request(8, 9), all.at(1));
  ExpectAsGenerated(Request(11, 3), all.at(2));
}

// Before whole prompts of others, with one token left: neither is a row counted for the chunk, nor
// a token drawn from it.
TEST_F(SchedulerTest, F5_AChunkTakesNobodysLogits) {
  PagedKvCache root = Root(30);
  Scheduler scheduler(transformer_, root, {.step_tokens = 16, .chunk_tokens = 3});
  const std::vector<ServeRequest> requests = {Request(4, 4), Request(2, 4), Request(3, 4)};
  for (const ServeRequest& request : requests) scheduler.Submit(request);
  const auto all = RunAll(scheduler);
  for (size_t i = 0; i < requests.size(); ++i) {
    ExpectAsGenerated(requests[i], all.at(static_cast<int64_t>(i) + 1));
  }
}

TEST_F(SchedulerTest, WhatCouldNeverRunIsRefused) {
  PagedKvCache root = Root(3);
  Scheduler scheduler(transformer_, root, {});
  EXPECT_THAT(RefusalOf(scheduler, {}), HasSubstr("no token to predict from"));
  EXPECT_THAT(RefusalOf(scheduler, Request(4, 0)), HasSubstr("0 new tokens are none"));
  EXPECT_THAT(RefusalOf(scheduler, Request(30, 12)), HasSubstr("need 41 positions, there are 40"));
  EXPECT_THAT(RefusalOf(scheduler, Request(10, 4)),
              HasSubstr("13 rows need 4 blocks of 4, the whole pool has 3"));
  ServeRequest other = Request(4, 1);
  other.prompt[1] = model_->config().vocab_size;
  EXPECT_THAT(RefusalOf(scheduler, other), HasSubstr("is outside [0, "));
  other = Request(4, 1);
  other.sampler.top_p = 0;
  EXPECT_THAT(RefusalOf(scheduler, other), HasSubstr("--top-p"));
  other = Request(4, 1);
  other.adapters = {{nullptr, 1.0f}};
  EXPECT_THAT(RefusalOf(scheduler, other), HasSubstr("adapter"));
  other = Request(4, 1);
  other.stops = {"x"};
  EXPECT_THAT(RefusalOf(scheduler, other), HasSubstr("it has stops and no tokenizer"));
  const auto tokenizer = Tokenizer::Load(PresetModel("tiny-ragged-3x1-f32")->file());
  other.tokenizer = tokenizer.get();
  EXPECT_THAT(RefusalOf(scheduler, other), HasSubstr("its tokenizer has 301 tokens"));
  EXPECT_TRUE(scheduler.Step().empty());
  EXPECT_EQ(scheduler.Submit(Request(9, 4)), 1);  // the whole pool, exactly
  ExpectAsGenerated(Request(9, 4), RunAll(scheduler).at(1));
}

TEST_F(SchedulerTest, WrongOptionsAndRootsAreRefused) {
  PagedKvCache root = Root(3);
  for (const SchedulerOptions& options :
       {SchedulerOptions{.max_running = 0}, {.step_tokens = 0}, {.chunk_tokens = 0}}) {
    EXPECT_THROW(Scheduler(transformer_, root, options), std::invalid_argument);
  }
  KvGeometry other = root.geometry();
  ++other.num_layers;
  SimpleKvCache misfit(other);
  EXPECT_THROW(Scheduler(transformer_, misfit, {}), std::invalid_argument);
  transformer_.Forward({{1}}, {{0}}, root);
  EXPECT_THROW(Scheduler(transformer_, root, {}), std::invalid_argument);
}

TEST_F(SchedulerTest, CancelledRequestsGiveTheirBlocksBack) {
  PagedKvCache root = Root(20);
  Scheduler scheduler(transformer_, root, {.max_running = 2, .step_tokens = 12});
  for (int32_t i = 0; i < 3; ++i) scheduler.Submit(Request(9, 9));
  scheduler.Step();
  EXPECT_EQ(root.pool().used_blocks(), 3 + 1);
  EXPECT_TRUE(scheduler.Cancel(3));
  EXPECT_TRUE(scheduler.Cancel(1));
  EXPECT_FALSE(scheduler.Cancel(1));
  EXPECT_FALSE(scheduler.Cancel(7));
  EXPECT_EQ(root.pool().used_blocks(), 1);
  const auto all = RunAll(scheduler);
  ASSERT_EQ(all.size(), 1u);
  ExpectAsGenerated(Request(9, 9), all.at(2));
  EXPECT_EQ(root.pool().used_blocks(), 0);
}

// Others have the blocks: nothing is lost, and when they are back it goes on.
TEST_F(SchedulerTest, F5_AStepWithoutBlocksChangesNoRequest) {
  PagedKvCache root = Root(6);
  Scheduler scheduler(transformer_, root, {});
  std::map<int64_t, Served> all;
  scheduler.Submit(Request(6, 9));
  for (int32_t i = 0; i < 3; ++i) Note(scheduler.Step(), &all);
  const auto other = root.Fork();
  transformer_.Forward(SomeTokens(model_->config(), 16), Iota(0, 16), *other);
  EXPECT_THROW(scheduler.Step(), PoolExhausted);
  EXPECT_THROW(scheduler.Step(), PoolExhausted);
  ASSERT_EQ(scheduler.requests().size(), 1u);
  EXPECT_EQ(scheduler.requests()[0].new_tokens, 3);
  EXPECT_EQ(scheduler.requests()[0].state, RequestState::kWaiting);
  EXPECT_EQ(root.pool().used_blocks(), 4);
  other->Clear();
  while (!scheduler.idle()) Note(scheduler.Step(), &all);
  ExpectAsGenerated(Request(6, 9), all.at(1));
}

// Caches without a pool are one a request; a cache of exact rows goes on as alone.
TEST_F(SchedulerTest, F5_CachesOfTheirOwn) {
  SimpleKvCache root(model_->config().geometry(kPositions));
  Scheduler scheduler(transformer_, root, {.max_running = 2, .step_tokens = 3});
  for (int32_t i = 0; i < 3; ++i) scheduler.Submit(Request(5 + i, 4));
  const auto all = RunAll(scheduler);
  for (int32_t i = 0; i < 3; ++i) ExpectAsGenerated(Request(5 + i, 4), all.at(i + 1));
  EXPECT_EQ(scheduler.counters().preempted, 0);
}

}  // namespace
}  // namespace lockstep::testing
