// [F1, F2] A batch that throws leaves no row in any cache; one that is refused wrote nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "caches/block_pool.h"
#include "caches/paged_kv_cache.h"
#include "engine/model/test_support.h"
#include "engine/transformer.h"

namespace lockstep::testing {
namespace {

constexpr int32_t kMaxLength = 32;

struct Planted : std::runtime_error {
  Planted() : std::runtime_error("planted") {}
};

class BatchFaultTest : public ::testing::Test {
 protected:
  static constexpr size_t kSequences = 3;

  void SetUp() override {
    for (size_t i = 0; i < kSequences; ++i) {
      caches_.push_back(NewProbe(*model_, kMaxLength));
      const auto held = static_cast<int32_t>(2 + i);
      transformer_.Forward(SomeTokens(model_->config(), held), Iota(0, held), *caches_[i]);
      positions_.push_back(Iota(held, static_cast<int32_t>(3 - i)));
      tokens_.push_back(SomeTokens(model_->config(), static_cast<int32_t>(3 - i)));
    }
    Note();
  }

  void Note() {
    before_.clear();
    writes_.clear();
    for (const auto& cache : caches_) {
      before_.push_back(DigestOfCache(cache->inner()));
      writes_.push_back(cache->writes());
    }
  }

  std::vector<BatchSequence> Batch() {
    std::vector<BatchSequence> batch;
    for (size_t i = 0; i < kSequences; ++i) {
      batch.push_back({tokens_[i], positions_[i], caches_[i].get()});
    }
    return batch;
  }

  void ExpectUndone(const std::string& where) {
    for (size_t i = 0; i < kSequences; ++i) {
      EXPECT_EQ(DigestOfCache(caches_[i]->inner()), before_[i]) << where << ", sequence " << i;
      EXPECT_THROW(caches_[i]->inner().CommitSlot(0, positions_[i]), std::logic_error) << where;
    }
  }

  template <typename Exception>
  void ExpectRefused(std::span<const BatchSequence> batch, const char* text) {
    try {
      transformer_.ForwardBatch(batch);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Exception& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(text));
    }
    for (size_t i = 0; i < kSequences; ++i) {
      EXPECT_EQ(caches_[i]->writes(), writes_[i]) << text << ", sequence " << i;
      EXPECT_EQ(DigestOfCache(caches_[i]->inner()), before_[i]) << text;
    }
  }

  std::shared_ptr<const Model> model_ = PresetModel("tiny-mha-4x4-f32");
  Transformer transformer_{model_, {.max_step_tokens = 4, .threads = 2}};
  std::vector<std::unique_ptr<ProbeCache>> caches_;
  std::vector<std::vector<int32_t>> tokens_, positions_;
  std::vector<Digest> before_;
  std::vector<int32_t> writes_;
};

// Throws at every call of the middle sequence's cache in turn.
TEST_F(BatchFaultTest, F1_AtAnyCallOfOneCacheAllAreUndone) {
  for (bool legacy : {false, true}) {
    for (auto& cache : caches_) cache->refuse_slots = legacy;
    bool threw = true;
    for (int32_t at = 0; threw; ++at) {
      ASSERT_LT(at, 200);
      int32_t seen = 0;
      caches_[1]->on_call = [&](CacheCall, int32_t, bool) {
        if (seen++ == at) throw Planted();
      };
      threw = false;
      try {
        transformer_.ForwardBatch(Batch());
      } catch (const Planted&) {
        threw = true;
        ExpectUndone("call " + std::to_string(at));
      }
      EXPECT_TRUE(threw || at >= 4 * model_->config().num_layers) << at;
    }
    for (size_t i = 0; i < kSequences; ++i) caches_[i]->Rollback(positions_[i][0]);
  }
}

// A broken Rollback of one sequence does not keep the others from theirs, and is reported.
TEST_F(BatchFaultTest, F1_ABrokenRollbackDoesNotStopTheOthers) {
  class NoRollback final : public std::runtime_error {
   public:
    using std::runtime_error::runtime_error;
  };
  caches_[2]->on_call = [](CacheCall call, int32_t layer, bool) {
    if (call == CacheCall::kCommit && layer == 1) throw Planted();
  };
  caches_[0]->on_rollback = [] { throw NoRollback("broken"); };
  EXPECT_THROW(transformer_.ForwardBatch(Batch()), NoRollback);
  for (size_t i = 1; i < kSequences; ++i) {
    EXPECT_EQ(DigestOfCache(caches_[i]->inner()), before_[i]) << i;
  }
}

TEST_F(BatchFaultTest, F2_AnyBadSequenceRefusesTheBatchBeforeTheFirstWrite) {
  for (size_t bad = 0; bad < kSequences; ++bad) {
    const std::string place = "sequence " + std::to_string(bad);
    auto batch = Batch();
    batch[bad].cache = nullptr;
    ExpectRefused<std::invalid_argument>(batch, (place + ": no cache").c_str());
    batch = Batch();
    batch[bad].tokens = {};
    ExpectRefused<std::invalid_argument>(batch, (place + ": 0 tokens at").c_str());
    batch[bad].positions = {};
    ExpectRefused<std::invalid_argument>(batch, (place + ": no tokens").c_str());
    const std::vector<int32_t> far = {kMaxLength}, wrong = {model_->config().vocab_size};
    batch[bad] = {std::span(tokens_[bad]).first(1), far, caches_[bad].get()};
    ExpectRefused<std::out_of_range>(batch, (place + ": position 32").c_str());
    batch[bad] = {wrong, std::span(positions_[bad]).first(1), caches_[bad].get()};
    ExpectRefused<std::out_of_range>(batch, (place + ": token").c_str());
    batch = Batch();
    caches_[bad]->step_rows = 0;
    ExpectRefused<std::invalid_argument>(batch, (place + ": the cache takes no rows").c_str());
    caches_[bad]->step_rows.reset();
  }
}

TEST_F(BatchFaultTest, F2_RefusesNoSequenceAndTheSameCacheTwice) {
  ExpectRefused<std::invalid_argument>({}, "no sequences");
  auto batch = Batch();
  batch[2].cache = caches_[0].get();
  batch[2].positions = positions_[0];
  batch[2].tokens = tokens_[0];
  ExpectRefused<std::invalid_argument>(batch, "the same cache as sequence 0");
}

// Sequences on one pool: the second finds no block, and the first gives its own back.
TEST(BatchPoolTest, F1_AnExhaustedPoolLeavesAllAsBefore) {
  const auto model = PresetModel("tiny-gqa-9x3-q8_0");
  const KvGeometry geometry = model->config().geometry(kMaxLength);
  const auto pool = std::make_shared<BlockPool>(
      BlockPoolOptions{.geometry = geometry, .block_size = 4, .num_blocks = 5});
  const PagedKvCacheOptions options = {.geometry = geometry, .block_size = 4, .pool = pool};
  PagedKvCache first(options), second(options);
  Transformer transformer(model, {.threads = 2});
  const auto tokens = SomeTokens(model->config(), 12);
  const auto some = [&](size_t count) { return std::span(tokens).first(count); };
  transformer.Forward(some(3), Iota(0, 3), first);
  transformer.Forward(some(4), Iota(0, 4), second);
  const auto before = std::pair(DigestOfCache(first), DigestOfCache(second));
  const int32_t free = pool->free_blocks();
  const auto positions = std::pair(Iota(3, 4), Iota(4, 9));
  const BatchSequence batch[] = {{some(4), positions.first, &first},
                                 {some(9), positions.second, &second}};
  EXPECT_THROW(transformer.ForwardBatch(batch), PoolExhausted);
  EXPECT_EQ(std::pair(DigestOfCache(first), DigestOfCache(second)), before);
  EXPECT_EQ(pool->free_blocks(), free);
  // With fewer rows both fit, and are what they are alone.
  const BatchSequence fits[] = {{some(4), positions.first, &first},
                                {some(4), std::span(positions.second).first(4), &second}};
  const auto logits = Bits(transformer.ForwardBatch(fits));
  const auto alone = NewProbe(*model, kMaxLength);
  transformer.Forward(some(4), Iota(0, 4), *alone);
  const auto expected = Bits(transformer.Forward(some(4), Iota(4, 4), *alone));
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), logits.end() - std::ssize(expected)));
  EXPECT_EQ(DigestOfCache(second), DigestOfCache(alone->inner()));
}

}  // namespace
}  // namespace lockstep::testing
