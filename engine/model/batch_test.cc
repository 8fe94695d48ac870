// [F3] What a sequence leaves does not depend on its neighbours, nor on the number of threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>

#include "caches/registry.h"
#include "engine/model/test_support.h"
#include "engine/transformer.h"

namespace lockstep::testing {
namespace {

constexpr int32_t kMaxLength = 48;

// One sequence: the cache it is written to, and the lengths of its steps.
struct Script {
  std::string cache;
  std::vector<int32_t> steps;
  bool legacy = false;
};

// Prefills of several lengths beside decodes, each cache kind, both write paths.
std::vector<Script> Scripts(const ModelConfig& config) {
  std::vector<Script> scripts = {
      {"simple", {5, 1, 1}},
      {"paged/4", {1, 9, 1}},
      {"paged/16", {17, 1, 2}},
      {"simple", {1, 1, 6}, true},
  };
  if (config.head_dim % 32 == 0) {
    scripts.push_back({"quantized/q8_0+q8_0/w4", {3, 1, 3}});
    scripts.push_back({"quantized/q4_0+q8_0/w0", {2, 7, 1}});
  }
  return scripts;
}

struct Sequence {
  std::unique_ptr<ProbeCache> cache;
  std::vector<int32_t> tokens;     // of the step
  std::vector<int32_t> positions;  // of the step
  DigestTrace trace;
};

// What one step of one sequence leaves.
struct Outcome {
  std::vector<uint32_t> logits;
  Digest cache;
  Digest storage;
  std::vector<DigestTrace::Entry> trace;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

void PrintTo(const Outcome& outcome, std::ostream* out) {
  *out << outcome.cache.Hex() << ", " << outcome.trace.size() << " stages";
}

Sequence NewSequence(const Model& model, const Script& script) {
  Sequence sequence;
  const CacheSpec spec = ParseCacheSpec(script.cache);
  sequence.cache = std::make_unique<ProbeCache>(
      spec.make({.geometry = model.config().geometry(kMaxLength), .sequences = 1}));
  sequence.cache->refuse_slots = script.legacy;
  sequence.cache->view_per_query = sequence.cache->inner().view_depends_on_query();
  return sequence;
}

// The tokens of step `step`, other ones in each script.
void PrepareStep(const ModelConfig& config, const Script& script, size_t id, size_t step,
                 Sequence* sequence) {
  const int32_t count = script.steps[step];
  sequence->positions = Iota(sequence->cache->current_length(), count);
  sequence->tokens.clear();
  for (int32_t position : sequence->positions) {
    const auto salt = static_cast<int32_t>(id) * 31;
    sequence->tokens.push_back((position * 17 + salt + 3) % config.vocab_size);
  }
  sequence->trace.Reset();
}

Outcome OutcomeOf(const Sequence& sequence, std::span<const float> logits) {
  return {Bits(logits), DigestOfCache(sequence.cache->inner()),
          sequence.cache->inner().StorageDigest(), sequence.trace.entries()};
}

// The scripts `ids`, in this order, as one batch a step. By script id, then by step.
std::map<size_t, std::vector<Outcome>> RunBatch(const std::shared_ptr<const Model>& model,
                                                const std::vector<size_t>& ids,
                                                const TransformerOptions& options,
                                                bool traced = true) {
  const ModelConfig& config = model->config();
  const std::vector<Script> scripts = Scripts(config);
  Transformer transformer(model, options);
  std::vector<Sequence> sequences;
  for (size_t id : ids) sequences.push_back(NewSequence(*model, scripts[id]));
  std::map<size_t, std::vector<Outcome>> outcomes;
  const auto vocab = static_cast<size_t>(config.vocab_size);
  for (size_t step = 0; step < 3; ++step) {
    std::vector<BatchSequence> batch;
    for (size_t i = 0; i < ids.size(); ++i) {
      Sequence& s = sequences[i];
      PrepareStep(config, scripts[ids[i]], ids[i], step, &s);
      batch.push_back({s.tokens, s.positions, s.cache.get(), traced ? &s.trace : nullptr});
    }
    const std::span<const float> logits = transformer.ForwardBatch(batch);
    EXPECT_EQ(logits.size(), ids.size() * vocab);
    for (size_t i = 0; i < ids.size(); ++i) {
      outcomes[ids[i]].push_back(OutcomeOf(sequences[i], logits.subspan(i * vocab, vocab)));
    }
  }
  return outcomes;
}

class BatchTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::vector<size_t> AllIds() const {
    std::vector<size_t> ids(Scripts(model_->config()).size());
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = i;
    return ids;
  }

  // Each script in a batch of one.
  std::map<size_t, std::vector<Outcome>> Alone(bool traced = true) {
    std::map<size_t, std::vector<Outcome>> alone;
    for (size_t id : AllIds()) alone.merge(RunBatch(model_, {id}, {}, traced));
    return alone;
  }

  std::shared_ptr<const Model> model_ = PresetModel(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Small, BatchTest, ::testing::ValuesIn(SmallPresets()),
                         [](const auto& param) { return TestName(param.param); });

TEST_P(BatchTest, F3_ABatchOfOneIsForward) {
  const std::vector<Script> scripts = Scripts(model_->config());
  for (size_t id : AllIds()) {
    const auto alone = RunBatch(model_, {id}, {}).at(id);
    Transformer transformer(model_);
    Sequence s = NewSequence(*model_, scripts[id]);
    for (size_t step = 0; step < 3; ++step) {
      PrepareStep(model_->config(), scripts[id], id, step, &s);
      const auto logits = transformer.Forward(s.tokens, s.positions, *s.cache, &s.trace);
      EXPECT_EQ(OutcomeOf(s, logits), alone[step]) << scripts[id].cache << " step " << step;
    }
  }
}

TEST_P(BatchTest, F3_EverySequenceIsAsAlone) { EXPECT_EQ(RunBatch(model_, AllIds(), {}), Alone()); }

TEST_P(BatchTest, F3_NeitherOrderNorNeighboursCount) {
  const auto alone = Alone();
  std::vector<size_t> ids = AllIds();
  std::reverse(ids.begin(), ids.end());
  EXPECT_EQ(RunBatch(model_, ids, {}), alone);
  std::rotate(ids.begin(), ids.begin() + 1, ids.end());
  EXPECT_EQ(RunBatch(model_, ids, {}), alone);
  for (const std::vector<size_t>& some : {std::vector<size_t>{0, 2}, {2, 1}, {3, 0, 1}}) {
    for (const auto& [id, outcomes] : RunBatch(model_, some, {})) {
      EXPECT_EQ(outcomes, alone.at(id)) << id;
    }
  }
}

// Untraced: a trace shows each internal step by itself.
TEST_P(BatchTest, F3_CuttingIntoInternalStepsChangesNoBit) {
  const auto alone = Alone(false);
  for (int32_t rows : {1, 2, 3, 7, 20}) {
    EXPECT_EQ(RunBatch(model_, AllIds(), {.max_step_tokens = rows}, false), alone) << rows;
  }
}

TEST_P(BatchTest, F3_AnyNumberOfThreadsGivesTheSameBits) {
  const auto expected = Alone();
  for (int32_t threads : {2, 3, 7, 16, 65}) {
    EXPECT_EQ(RunBatch(model_, AllIds(), {.threads = threads}), expected) << threads;
  }
}

TEST(BatchThreadsTest, EveryKernelTableIsSharedOutAlike) {
  const auto model = PresetModel("tiny-gqa-9x3-q8_0");
  const auto expected = RunBatch(model, {0, 1, 2, 3}, {});
  for (const KernelTable* kernels : AvailableKernels()) {
    EXPECT_EQ(RunBatch(model, {0, 1, 2, 3}, {.kernels = kernels, .threads = 3}), expected)
        << kernels->name;
  }
}

// What attention was asked for, over all threads and layers of a step.
struct AttentionCalls {
  std::mutex mutex;
  std::map<std::pair<const float*, int32_t>, int32_t> heads;  // by query row and head
  std::set<const float*> scratch;
};
AttentionCalls calls;

void CountedAttention(const AttentionShape& shape, const AttentionQueries& queries,
                      const KvView& view, int32_t head_begin, int32_t head_end, float* scratch) {
  const std::lock_guard lock(calls.mutex);
  SelectKernels("scalar").attention(shape, queries, view, head_begin, head_end, scratch);
  for (int32_t i = 0; i < queries.count; ++i) {
    const float* row = queries.q + int64_t{i} * shape.num_heads * shape.head_dim;
    for (int32_t head = head_begin; head < head_end; ++head) ++calls.heads[{row, head}];
  }
  calls.scratch.insert(scratch);
}

// Two threads that compute one head write the same bits, and two that share a scratch may do so one
// after the other: neither shows in what comes out, at least not every time.
TEST(BatchThreadsTest, EachHeadIsComputedOnceAndEachPartHasItsOwnScratch) {
  const auto model = PresetModel("tiny-gqa-9x3-q8_0");
  KernelTable kernels = SelectKernels("scalar");
  kernels.attention = &CountedAttention;
  for (int32_t threads : {1, 2, 3, 4, 7, 16}) {
    for (int32_t tokens : {1, 5}) {
      Transformer transformer(model, {.kernels = &kernels, .threads = threads});
      calls.heads.clear();
      calls.scratch.clear();
      transformer.ForwardUncached(SomeTokens(model->config(), tokens));
      EXPECT_EQ(calls.heads.size(), static_cast<size_t>(tokens * model->config().num_heads));
      for (const auto& [head, times] : calls.heads) {
        EXPECT_EQ(times, model->config().num_layers) << threads << " threads, head " << head.second;
      }
      // One tile of queries, 9 heads of it: as many parts have work.
      EXPECT_EQ(calls.scratch.size(), static_cast<size_t>(std::min(threads, 9))) << threads;
    }
  }
}

// Enough tokens that work over rows is shared out too.
TEST_P(BatchTest, LongPrefillsOnAnyNumberOfThreadsGiveTheSameBits) {
  const auto tokens = SomeTokens(model_->config(), 180);
  Transformer one(model_);
  DigestTrace expected_trace;
  const auto expected = Bits(one.ForwardUncached(tokens, &expected_trace));
  for (int32_t threads : {2, 5}) {
    Transformer several(model_, {.threads = threads});
    EXPECT_EQ(several.threads(), threads);
    DigestTrace trace;
    EXPECT_EQ(Bits(several.ForwardUncached(tokens, &trace)), expected) << threads;
    EXPECT_EQ(trace.entries(), expected_trace.entries()) << threads;
    const auto caches = std::pair(NewProbe(*model_, 256), NewProbe(*model_, 256));
    const auto positions = Iota(0, 180);
    const BatchSequence batch[] = {
        {std::span(tokens).first(150), std::span(positions).first(150), caches.first.get()},
        {tokens, positions, caches.second.get()}};
    EXPECT_EQ(Bits(several.ForwardBatch(batch).last(expected.size())), expected) << threads;
  }
}

TEST(BatchThreadsTest, NumberIsAtLeastOne) {
  const auto model = PresetModel("tiny-mha-4x4-f32");
  EXPECT_THROW(Transformer(model, {.threads = 0}), std::invalid_argument);
  EXPECT_THROW(Transformer(model, {.threads = -3}), std::invalid_argument);
}

// Logits of several last tokens, wherever internal steps and caches cut the sequences.
TEST(BatchLogitsTest, EachWantedTokenHasTheLogitsItHasAlone) {
  for (const char* preset : {"tiny-untied-4x2-q8_0", "tiny-ragged-3x1-f32"}) {
    const auto model = PresetModel(preset);
    const auto tokens = SomeTokens(model->config(), 9);
    const auto positions = Iota(0, 9);
    Transformer plain(model);
    std::vector<std::vector<uint32_t>> alone;  // behind each token
    for (size_t n = 1; n <= 9; ++n) {
      alone.push_back(Bits(plain.ForwardUncached(std::span(tokens).first(n))));
    }
    for (const int32_t step : {2, 3, 512}) {
      Transformer transformer(model, {.max_step_tokens = step, .threads = 2});
      for (const int32_t rows : {1, 2, 100}) {
        const auto a = NewProbe(*model, 16), b = NewProbe(*model, 16), c = NewProbe(*model, 16);
        const auto none = NewProbe(*model, 16);
        b->step_rows = rows;
        const BatchSequence batch[] = {
            {.tokens = tokens, .positions = positions, .cache = a.get(), .logits = 9},
            {.tokens = std::span(tokens).first(6),
             .positions = std::span(positions).first(6),
             .cache = b.get(),
             .logits = 4},
            {.tokens = std::span(tokens).first(5),
             .positions = std::span(positions).first(5),
             .cache = none.get(),
             .logits = 0},
            {.tokens = std::span(tokens).first(7),
             .positions = std::span(positions).first(7),
             .cache = c.get()}};
        const auto logits = transformer.ForwardBatch(batch);
        const auto width = static_cast<size_t>(model->config().vocab_size);
        ASSERT_EQ(logits.size(), 14 * width);
        const size_t expected[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 2, 3, 4, 5, 6};
        for (size_t row = 0; row < 14; ++row) {
          ASSERT_EQ(Bits(logits.subspan(row * width, width)), alone[expected[row]])
              << preset << ", step " << step << ", row " << row;
        }
      }
    }
  }
}

// A chunk that nobody wants the logits of leaves the rows that it leaves with them.
TEST(BatchLogitsTest, WithoutAnyWantedTheRowsAreThere) {
  for (const char* preset : {"tiny-untied-4x2-q8_0", "tiny-ragged-3x1-f32"}) {
    const auto model = PresetModel(preset);
    const auto tokens = SomeTokens(model->config(), 9);
    const auto positions = Iota(0, 9);
    for (const int32_t step : {2, 512}) {
      Transformer transformer(model, {.max_step_tokens = step});
      const auto whole = NewProbe(*model, 16), parts = NewProbe(*model, 16);
      const auto expected = Bits(transformer.Forward(tokens, positions, *whole));
      const BatchSequence first = {.tokens = std::span(tokens).first(6),
                                   .positions = std::span(positions).first(6),
                                   .cache = parts.get(),
                                   .logits = 0};
      EXPECT_TRUE(Transformer(model).ForwardBatch({&first, 1}).empty()) << "its first call";
      EXPECT_EQ(Bits(transformer.Forward(std::span(tokens).last(3), std::span(positions).last(3),
                                         *parts)),
                expected);
      EXPECT_EQ(DigestOfCache(parts->inner()), DigestOfCache(whole->inner()));
    }
  }
}

TEST(BatchLogitsTest, NumbersThatThereAreNotAreRefused) {
  const auto model = PresetModel("tiny-mha-4x4-f32");
  Transformer transformer(model);
  const auto cache = NewProbe(*model, 8);
  const auto tokens = SomeTokens(model->config(), 3);
  const auto positions = Iota(0, 3);
  for (const int32_t logits : {-1, 4}) {
    const BatchSequence one = {
        .tokens = tokens, .positions = positions, .cache = cache.get(), .logits = logits};
    EXPECT_THROW(transformer.ForwardBatch({&one, 1}), std::invalid_argument);
  }
  EXPECT_EQ(cache->writes(), 0);
}

}  // namespace
}  // namespace lockstep::testing
