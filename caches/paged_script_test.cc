// Random scripts over several sequences on one pool: after every step the books must balance and
// every sequence must show what its model holds.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "caches/contract/fixture.h"
#include "caches/paged_kv_cache.h"
#include "caches/random.h"

namespace lockstep {
namespace {

using contract::Model;
using contract::Observe;
using contract::Range;

constexpr KvGeometry kSmall = {.num_layers = 2, .num_kv_heads = 1, .head_dim = 4, .max_length = 13};

struct OpenSlot {
  std::vector<int32_t> positions;
  int version = 0;
};

struct Sequence {
  std::unique_ptr<PagedKvCache> cache;
  Model model{kSmall};
  std::vector<std::optional<OpenSlot>> open{static_cast<size_t>(kSmall.num_layers)};
  // (layer, position) of rows that an abandoned overwrite left unspecified.
  std::set<std::pair<int32_t, int32_t>> unspecified;

  void ForgetOpen(int32_t layer) {
    auto& slot = open[static_cast<size_t>(layer)];
    if (slot) {
      for (int32_t position : slot->positions) unspecified.emplace(layer, position);
    }
    slot.reset();
  }
  void ForgetAllOpen() {
    for (int32_t layer = 0; layer < kSmall.num_layers; ++layer) ForgetOpen(layer);
  }

  // The new length is `length` at most, and rows past it are gaps when they come back.
  void ForgetRowsPast(int32_t length) {
    std::erase_if(unspecified, [&](const auto& row) { return row.second >= length; });
  }

  // Whether all rows whose content is specified equal the model's.
  bool EqualsModel() const {
    const auto stride = static_cast<size_t>(kSmall.kv_stride());
    for (int32_t layer = 0; layer < kSmall.num_layers; ++layer) {
      if (cache->length(layer) != model.length(layer)) return false;
      const KvRows got = contract::Read(*cache, layer);
      const KvRows want = model.rows(layer);
      const auto& slot = open[static_cast<size_t>(layer)];
      for (int32_t position = 0; position < model.length(layer); ++position) {
        if (unspecified.contains({layer, position})) continue;
        if (slot && std::ranges::count(slot->positions, position) > 0) continue;
        const size_t first = static_cast<size_t>(position) * stride;
        const auto same = [&](std::span<const float> a, std::span<const float> b) {
          return std::ranges::equal(contract::Bits(a.subspan(first, stride)),
                                    contract::Bits(b.subspan(first, stride)));
        };
        if (!same(got.keys, want.keys) || !same(got.values, want.values)) return false;
      }
    }
    return true;
  }
};

class Script {
 public:
  Script(uint64_t seed, int32_t block_size) : random_(seed) {
    const int32_t enough = BlocksForRows(kSmall.max_length, block_size);  // for one sequence
    pool_ =
        std::make_shared<BlockPool>(BlockPoolOptions{.geometry = kSmall,
                                                     .block_size = block_size,
                                                     .num_blocks = random_.Between(1, 3 * enough),
                                                     .shuffle_seed = seed,
                                                     .poison_on_free = true});
    Start();
  }

  void Step() {
    if (sequences_.empty()) return Start();
    const auto index = random_.Below(static_cast<uint32_t>(sequences_.size()));
    Sequence& sequence = sequences_[index];
    switch (random_.Below(10)) {
      case 0:
        return Fork(&sequence);
      case 1:
        return Rollback(&sequence);
      case 2:
        return End(index);
      case 3:
      case 4:
      case 5:
        return UpdateRows(&sequence);
      case 6:
      case 7:
        return Reserve(&sequence);
      default:
        return Commit(&sequence);
    }
  }

  // "" when all is well.
  std::string Check() const {
    std::vector<const PagedKvCache*> caches;
    for (const Sequence& sequence : sequences_) caches.push_back(sequence.cache.get());
    const auto faults = AuditBlocks(*pool_, caches);
    if (!faults.empty()) return fmt::format("{}", fmt::join(faults, "; "));
    for (size_t i = 0; i < sequences_.size(); ++i) {
      if (!sequences_[i].EqualsModel()) return fmt::format("sequence {} is not its model", i);
    }
    return "";
  }

  int exhausted() const { return exhausted_; }
  int refused() const { return refused_; }

 private:
  void Start() {
    sequences_.emplace_back();
    sequences_.back().cache = std::make_unique<PagedKvCache>(
        PagedKvCacheOptions{.geometry = kSmall, .block_size = pool_->block_size(), .pool = pool_});
  }

  void Fork(Sequence* sequence) {
    if (sequences_.size() >= 4) return;
    Sequence fork;
    fork.cache.reset(static_cast<PagedKvCache*>(sequence->cache->Fork().release()));
    sequence->ForgetAllOpen();
    fork.model = sequence->model;
    fork.unspecified = sequence->unspecified;
    sequences_.push_back(std::move(fork));
  }

  void End(size_t index) {
    sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void Rollback(Sequence* sequence) {
    const int32_t length = random_.Between(0, sequence->cache->current_length());
    sequence->ForgetAllOpen();
    if (length == 0 && random_.Below(2) == 0) {
      sequence->cache->Clear();
    } else {
      sequence->cache->Rollback(length);
    }
    sequence->model.Rollback(length);
    sequence->ForgetRowsPast(length);
  }

  void UpdateRows(Sequence* sequence) {
    const int32_t layer = RandomLayer();
    std::vector<int32_t> positions;
    for (uint32_t n = random_.Below(4); n-- > 0;) {
      positions.push_back(random_.Between(0, kSmall.max_length - 1));
    }
    const auto before = Observe(*sequence->cache);
    try {
      contract::Update(sequence->cache.get(), layer, positions, ++version_);
    } catch (const PoolExhausted&) {
      ++exhausted_;
      EXPECT_EQ(Observe(*sequence->cache), before);
      return;
    }
    if (!positions.empty()) sequence->ForgetOpen(layer);
    Write(sequence, layer, positions, version_);
  }

  void Reserve(Sequence* sequence) {
    const int32_t layer = RandomLayer();
    const int32_t first = random_.Between(0, kSmall.max_length - 1);
    const auto positions = Range(first, first + random_.Between(1, 3));
    const auto before = Observe(*sequence->cache);
    const auto slot = sequence->cache->TryReserveSlot(layer, positions);
    if (!slot) {
      ++refused_;
      EXPECT_EQ(Observe(*sequence->cache), before);
      return;
    }
    sequence->ForgetOpen(layer);
    contract::Fill(*sequence->cache, *slot, layer, positions, ++version_);
    sequence->open[static_cast<size_t>(layer)] = OpenSlot{positions, version_};
  }

  void Commit(Sequence* sequence) {
    const int32_t layer = RandomLayer();
    auto& slot = sequence->open[static_cast<size_t>(layer)];
    if (!slot) return;
    sequence->cache->CommitSlot(layer, slot->positions);
    Write(sequence, layer, slot->positions, slot->version);
    slot.reset();
  }

  static void Write(Sequence* sequence, int32_t layer, const std::vector<int32_t>& positions,
                    int version) {
    // Rows past the length that an abandoned slot touched come into being as gap rows.
    std::erase_if(sequence->unspecified, [&](const auto& row) {
      return row.first == layer && (row.second >= sequence->model.length(layer) ||
                                    std::ranges::count(positions, row.second) > 0);
    });
    sequence->model.Write(layer, positions, version);
  }

  int32_t RandomLayer() { return random_.Between(0, kSmall.num_layers - 1); }

  Random random_;
  std::shared_ptr<BlockPool> pool_;
  std::vector<Sequence> sequences_;
  int version_ = 0;
  int exhausted_ = 0;
  int refused_ = 0;
};

class PagedScriptTest : public testing::TestWithParam<int32_t> {};

TEST_P(PagedScriptTest, BooksBalanceAndSequencesEqualTheirModels) {
  int exhausted = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Script script(seed, GetParam());
    for (int step = 0; step < 120; ++step) {
      script.Step();
      const std::string fault = script.Check();
      ASSERT_EQ(fault, "") << "seed " << seed << " step " << step;
      ASSERT_FALSE(HasFailure()) << "seed " << seed << " step " << step;
    }
    exhausted += script.exhausted();
    refused += script.refused();
  }
  // The scripts reach what they are there for.
  EXPECT_GT(exhausted, 10);
  EXPECT_GT(refused, 100);
}

INSTANTIATE_TEST_SUITE_P(BlockSizes, PagedScriptTest, testing::Values(1, 2, 4, 16),
                         [](const auto& param) { return fmt::format("{}", param.param); });

}  // namespace
}  // namespace lockstep
