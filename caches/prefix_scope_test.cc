// Every script of a few operations over an index and two sequences on one small pool: each sequence
// holds what it would have computed alone, each registered block what it was registered with, and
// the books balance, after every operation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "caches/prefix_index.h"
#include "caches/prefix_test_util.h"

namespace lockstep {
namespace {

using prefix_test::Compute;
using prefix_test::Holds;
using prefix_test::Ids;
using prefix_test::Key;
using prefix_test::kSmall;
using prefix_test::NewCache;
using prefix_test::NewPool;
using prefix_test::RowOf;

constexpr int32_t kBlockSize = 2;

struct Text {
  uint64_t key = 1;
  Ids ids;
};

const std::array<Text, 4>& Texts() {
  static const std::array<Text, 4> kTexts = {{
      {1, {1, 2, 1, 2, 1}},
      {1, {1, 2, 2, 2}},
      {1, {2, 2, 1, 2, 1}},
      {2, {1, 2, 1}},
  }};
  return kTexts;
}

enum class Do : uint8_t { kAdmit, kAppend, kRollback, kFork, kEnd };

struct Op {
  Do what = Do::kAdmit;
  size_t sequence = 0;
  size_t text = 0;
};

std::vector<Op> Alphabet() {
  std::vector<Op> ops;
  for (size_t s = 0; s < 2; ++s) {
    for (size_t text = 0; text < Texts().size(); ++text) ops.push_back({Do::kAdmit, s, text});
    ops.push_back({Do::kAppend, s, 0});
    ops.push_back({Do::kRollback, s, 0});
  }
  ops.push_back({Do::kFork, 0, 0});
  ops.push_back({Do::kEnd, 0, 0});
  return ops;
}

struct Sequence {
  Text text;
  std::unique_ptr<PagedKvCache> cache;
};

class Run {
 public:
  Run(int32_t blocks, int32_t hash_bits)
      : pool_(NewPool(kBlockSize, blocks, 7)), index_(*NewCache(pool_), hash_bits) {}

  void Operate(const Op& op) {
    Sequence& sequence = sequences_[op.sequence];
    if (op.what == Do::kAdmit) return Admit(Texts()[op.text], &sequence);
    if (sequence.cache == nullptr) return;
    switch (op.what) {
      case Do::kAdmit:
        return;
      case Do::kAppend:
        if (std::ssize(sequence.text.ids) == kSmall.max_length) return;
        sequence.text.ids.push_back(2);
        return Go(&sequence);
      case Do::kRollback:  // before the middle of what it has, to go on otherwise
        sequence.text.ids.resize(sequence.text.ids.size() / 2);
        return sequence.cache->Rollback(static_cast<int32_t>(sequence.text.ids.size()));
      case Do::kFork:
        sequences_[1] = {sequence.text, std::unique_ptr<PagedKvCache>(static_cast<PagedKvCache*>(
                                            sequence.cache->Fork().release()))};
        return;
      case Do::kEnd:
        sequence.cache.reset();
    }
  }

  // "" when all is well.
  std::string Check() {
    std::vector<const PagedKvCache*> caches;
    for (const Sequence& sequence : sequences_) {
      if (sequence.cache == nullptr) continue;
      caches.push_back(sequence.cache.get());
      if (!Holds(Key(sequence.text.key), sequence.text.ids, *sequence.cache)) {
        return "a sequence has other rows";
      }
    }
    const std::vector<int32_t> held = index_.blocks();
    std::erase_if(
        known_, [&](const auto& block) { return !std::ranges::binary_search(held, block.first); });
    for (int32_t block : held) {
      if (!known_.contains(block)) return fmt::format("nobody registered block {}", block);
      if (!IsRight(block)) return fmt::format("registered block {} has changed", block);
    }
    const auto faults = AuditBlocks(*pool_, caches, held);
    return faults.empty() ? "" : faults.front();
  }

  const PrefixCounters& counters() const { return index_.counters(); }

 private:
  void Admit(const Text& text, Sequence* sequence) {
    *sequence = {text, NewCache(pool_)};
    index_.Attach(Key(text.key), text.ids, sequence->cache.get());
    Go(sequence);
  }

  // Computes what is missing and registers it; a sequence without blocks to go on with ends.
  void Go(Sequence* sequence) {
    const Text& text = sequence->text;
    try {
      Compute(Key(text.key), text.ids, text.ids.size() % 2 == 0, sequence->cache.get());
    } catch (const PoolExhausted&) {
      sequence->cache.reset();
      return;
    }
    index_.Register(Key(text.key), text.ids, *sequence->cache);
    const auto table = sequence->cache->block_table();
    for (size_t i = 0; i < text.ids.size() / kBlockSize; ++i) {
      const auto end = text.ids.begin() + static_cast<std::ptrdiff_t>(i + 1) * kBlockSize;
      known_[table[i]] = {text.key, {text.ids.begin(), end}};
    }
  }

  // Whether the block has the rows of the last ids that it was registered with.
  bool IsRight(int32_t block) const {
    const Text& text = known_.at(block);
    const auto stride = static_cast<size_t>(kSmall.kv_stride());
    for (int32_t layer = 0; layer < kSmall.num_layers; ++layer) {
      for (size_t row = 0; row < kBlockSize; ++row) {
        const size_t end = text.ids.size() - kBlockSize + row + 1;
        const auto expected = RowOf(Key(text.key), std::span(text.ids).first(end), layer);
        const std::span keys(pool_->keys(block, layer) + row * stride, stride);
        const std::span values(pool_->values(block, layer) + row * stride, stride);
        if (!std::ranges::equal(keys, std::span(expected).first(stride)) ||
            !std::ranges::equal(values, std::span(expected).last(stride))) {
          return false;
        }
      }
    }
    return true;
  }

  std::shared_ptr<BlockPool> pool_;
  PrefixIndex index_;
  std::array<Sequence, 2> sequences_;
  std::map<int32_t, Text> known_;  // by block: all ids up to its end
};

PrefixCounters RunAll(int32_t blocks, int32_t hash_bits, int32_t length) {
  const std::vector<Op> alphabet = Alphabet();
  std::vector<size_t> script(static_cast<size_t>(length), 0);
  PrefixCounters sum;
  for (size_t at = 0; at < script.size();) {
    Run run(blocks, hash_bits);
    for (size_t i = 0; i < script.size(); ++i) {
      run.Operate(alphabet[script[i]]);
      const std::string fault = run.Check();
      if (fault.empty()) continue;
      ADD_FAILURE() << fault << " after operation " << i << " of script "
                    << ::testing::PrintToString(script) << " with " << blocks << " blocks, "
                    << hash_bits << " bits";
      return sum;
    }
    sum.hits += run.counters().hits;
    sum.evicted += run.counters().evicted;
    sum.collisions += run.counters().collisions;
    for (at = 0; at < script.size() && ++script[at] == alphabet.size(); ++at) script[at] = 0;
  }
  return sum;
}

TEST(PrefixScopeTest, P2_EveryScriptOfFourOperations) {
  for (const int32_t blocks : {3, 4, 6}) {
    const PrefixCounters counters = RunAll(blocks, 128, 4);
    EXPECT_GT(counters.hits, 1000);
    EXPECT_GT(counters.evicted, 100) << blocks;
  }
}

TEST(PrefixScopeTest, P1_EveryScriptOfThreeOperationsWithHashesThatCollide) {
  for (const int32_t bits : {0, 1}) {
    const PrefixCounters counters = RunAll(5, bits, 3);
    EXPECT_GT(counters.hits, 10);
    EXPECT_GT(counters.collisions, 100) << bits;
  }
}

}  // namespace
}  // namespace lockstep
