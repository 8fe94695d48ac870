// The exact window of the quantized cache against its definition: clauses Q1, Q2, Q3, Q5.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "caches/codec.h"
#include "caches/memory_watch.h"
#include "caches/quantized/exact_window.h"
#include "caches/quantized_kv_cache.h"
#include "caches/storage_test_util.h"

namespace lockstep {
namespace {

using storage_test::Range;
using storage_test::Read;
using storage_test::ReadForQuery;
using storage_test::Rows;
using storage_test::SameBits;
using storage_test::SnapshotOf;
using storage_test::Write;

constexpr KvGeometry kGeometry = {
    .num_layers = 2, .num_kv_heads = 3, .head_dim = 32, .max_length = 24};

QuantizedKvOptions OptionsOf(int32_t window, RowType keys = RowType::kQ8_0,
                             RowType values = RowType::kQ4_0) {
  return {.geometry = kGeometry, .key_type = keys, .value_type = values, .window = window};
}

// The definition in the header, row by row and in maps: one layer, K alone or V alone.
class WindowModel {
 public:
  WindowModel(int32_t window, RowType type, RowType window_type)
      : window_(window), type_(type), window_type_(window_type) {}

  void BeginStep() { at_query_.clear(); }

  void WriteRow(int32_t position, const std::vector<float>& row) {
    length_ = std::max(length_, position + 1);
    decoded_[position] = Through(type_, row);
    if (window_ > 0) ring_[position % window_] = {position, Through(window_type_, row)};
    at_query_[position] = ring_;
  }

  void Rollback(int32_t length) {
    at_query_.clear();
    length_ = std::min(length_, length);
    std::erase_if(decoded_, [&](const auto& entry) { return entry.first >= length; });
    std::erase_if(ring_, [&](const auto& entry) { return entry.second.position >= length; });
  }

  int32_t length() const { return length_; }

  std::vector<float> View() const { return RowsAt(length_ - 1, ring_); }

  std::vector<float> ViewForQuery(int32_t position) const {
    const auto found = at_query_.find(position);
    return RowsAt(position, found == at_query_.end() ? ring_ : found->second);
  }

 private:
  struct HeldRow {
    int32_t position;
    std::vector<float> row;
  };
  using Ring = std::map<int32_t, HeldRow>;  // by slot

  static std::vector<float> Through(RowType type, const std::vector<float>& row) {
    std::vector<std::byte> stored(static_cast<size_t>(RowBytes(type, kGeometry.kv_stride())));
    std::vector<float> decoded(row.size());
    EncodeRow(type, row, stored);
    DecodeRow(type, stored, decoded);
    return decoded;
  }

  std::vector<float> RowsAt(int32_t query, const Ring& ring) const {
    std::vector<float> all(static_cast<size_t>(length_ * kGeometry.kv_stride()));
    const auto put = [&](int32_t position, const std::vector<float>& row) {
      std::ranges::copy(row, all.begin() + position * kGeometry.kv_stride());
    };
    for (const auto& [position, row] : decoded_) put(position, row);
    for (const auto& [slot, held] : ring) {
      if (query - held.position < window_) put(held.position, held.row);
    }
    return all;
  }

  int32_t window_;
  RowType type_;
  RowType window_type_;
  int32_t length_ = 0;
  std::map<int32_t, std::vector<float>> decoded_;  // by position
  Ring ring_;
  std::map<int32_t, Ring> at_query_;  // the ring right after each row of the step in progress
};

// One cache with its model for K and V of each layer, driven by a random script.
class Script {
 public:
  Script(const QuantizedKvOptions& options, uint64_t seed)
      : random_(seed), cache_(std::make_unique<QuantizedKvCache>(options)) {
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      keys_.emplace_back(options.window, options.key_type, options.window_type);
      values_.emplace_back(options.window, options.value_type, options.window_type);
    }
  }

  void Step() {
    const uint32_t kind = random_.Below(10);
    if (kind < 7) {
      Update();
    } else if (kind < 9) {
      const int32_t length = random_.Between(0, cache_->current_length());
      trace_ += fmt::format("rollback {}\n", length);
      cache_->Rollback(length);
      for (auto* half : {&keys_, &values_}) {
        for (WindowModel& model : *half) model.Rollback(length);
      }
    } else {  // the fork goes on alone: nothing it needs may have stayed behind
      trace_ += "fork\n";
      cache_ = cache_->Fork();
    }
  }

  void Check() const {
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      const WindowModel& k = keys_[static_cast<size_t>(layer)];
      const WindowModel& v = values_[static_cast<size_t>(layer)];
      ASSERT_EQ(cache_->length(layer), k.length()) << trace_;
      const KvRows rows = Read(*cache_, layer);
      ASSERT_TRUE(SameBits(rows.keys, k.View())) << "layer " << layer << "\n" << trace_;
      ASSERT_TRUE(SameBits(rows.values, v.View())) << "layer " << layer << "\n" << trace_;
      for (int32_t query = 0; query < k.length(); ++query) {
        const KvRows at = ReadForQuery(*cache_, layer, query);
        ASSERT_TRUE(SameBits(at.keys, k.ViewForQuery(query))) << "query " << query << "\n"
                                                              << trace_;
        ASSERT_TRUE(SameBits(at.values, v.ViewForQuery(query))) << "query " << query << "\n"
                                                                << trace_;
      }
    }
  }

 private:
  void Update() {
    const int32_t layer = random_.Between(0, kGeometry.num_layers - 1);
    const int32_t length = cache_->length(layer);
    std::vector<int32_t> positions;
    const int32_t count = random_.Between(0, 9);
    const uint32_t kind = random_.Below(3);
    int32_t first = kind == 0 ? length : random_.Between(0, kGeometry.max_length - 1);
    for (int32_t i = 0; i < count; ++i) {  // append, a run anywhere, or positions at random
      const int32_t p = kind == 2 ? random_.Between(0, kGeometry.max_length - 1) : first + i;
      if (p < kGeometry.max_length) positions.push_back(p);
    }
    trace_ += fmt::format("update layer {} positions {}\n", layer, fmt::join(positions, " "));
    ++version_;
    std::vector<float> keys, values;
    if (!positions.empty()) {
      keys_[static_cast<size_t>(layer)].BeginStep();
      values_[static_cast<size_t>(layer)].BeginStep();
    }
    for (size_t i = 0; i < positions.size(); ++i) {  // duplicates differ too
      const std::vector<int32_t> one = {positions[i]};
      const auto version = version_ * 100 + static_cast<int32_t>(i);
      const auto key = Rows(kGeometry, layer, one, version, true);
      const auto value = Rows(kGeometry, layer, one, version, false);
      keys_[static_cast<size_t>(layer)].WriteRow(positions[i], key);
      values_[static_cast<size_t>(layer)].WriteRow(positions[i], value);
      keys.insert(keys.end(), key.begin(), key.end());
      values.insert(values.end(), value.begin(), value.end());
    }
    cache_->Update(layer, positions, keys, values);
  }

  Random random_;
  std::unique_ptr<KvCache> cache_;
  std::vector<WindowModel> keys_, values_;  // [num_layers]
  int32_t version_ = 0;
  std::string trace_;
};

TEST(QuantizedWindowTest, Q1Q2Q5ViewsFollowTheDefinitionInRandomScripts) {
  for (int32_t window : {0, 1, 2, 3, 4, 7, 8, 23, 24, 25, 1 << 30}) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      const bool first = seed % 2 == 0;
      QuantizedKvOptions options = OptionsOf(window, first ? RowType::kQ8_0 : RowType::kQ4_0,
                                             first ? RowType::kF32 : RowType::kQ8_0);
      if (seed % 3 == 2) options.window_type = RowType::kF16;
      Script script(options, seed * 100 + static_cast<uint64_t>(window));
      for (int step = 0; step < 25; ++step) {
        script.Step();
        script.Check();
        if (testing::Test::HasFatalFailure()) {
          FAIL() << "window " << window << " seed " << seed;
        }
      }
    }
  }
}

// Rows [0, query] of two views; what lies past a query it does not read.
void ExpectSameForQuery(const KvCache& whole, const KvCache& pieces, int32_t query) {
  const KvRows a = ReadForQuery(whole, 0, query);
  const KvRows b = ReadForQuery(pieces, 0, query);
  const auto read = static_cast<size_t>((query + 1) * kGeometry.kv_stride());
  EXPECT_TRUE(SameBits(std::span(a.keys).first(read), std::span(b.keys).first(read))) << query;
  EXPECT_TRUE(SameBits(std::span(a.values).first(read), std::span(b.values).first(read))) << query;
}

// Q3: every cut of a step, every query as it was at its time; steps longer than the window,
// rewrites below the length, gaps, rollbacks in between.
TEST(QuantizedWindowTest, Q3OneUpdateEqualsManyForEveryQueryAtItsTime) {
  struct Step {
    int32_t rollback;  // to this length before the step, or -1
    std::vector<int32_t> positions;
  };
  const std::vector<Step> steps = {
      {-1, Range(0, 9)},           {-1, Range(9, 10)},  {-1, Range(3, 8)},
      {6, Range(6, 11)},           {-1, {2, 5, 9, 13}}, {11, Range(14, 20)},
      {-1, Range(0, 18)},          {0, Range(0, 24)},   {7, {7}},
      {-1, {8, 9, 10, 11, 20, 21}}};
  for (int32_t window : {0, 1, 2, 4, 5, 24}) {
    for (int32_t piece : {1, 2, 3, 7}) {
      QuantizedKvCache whole(OptionsOf(window)), pieces(OptionsOf(window));
      int32_t version = 0;
      for (const Step& step : steps) {
        SCOPED_TRACE(fmt::format("window {} piece {} version {}", window, piece, ++version));
        if (step.rollback >= 0) {
          whole.Rollback(step.rollback);
          pieces.Rollback(step.rollback);
        }
        Write(&whole, 0, step.positions, version);
        for (size_t first = 0; first < step.positions.size(); first += static_cast<size_t>(piece)) {
          const size_t end = std::min(first + static_cast<size_t>(piece), step.positions.size());
          const std::vector<int32_t> part(step.positions.begin() + static_cast<ptrdiff_t>(first),
                                          step.positions.begin() + static_cast<ptrdiff_t>(end));
          Write(&pieces, 0, part, version);
          for (int32_t query : part) ExpectSameForQuery(whole, pieces, query);
        }
        EXPECT_EQ(SnapshotOf(whole), SnapshotOf(pieces));
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

// Known wrong answer: a prefill longer than the window that quantizes rows its queries still need.
TEST(QuantizedWindowTest, Q1AStepLongerThanTheWindowIsHeldWhole) {
  QuantizedKvCache cache(OptionsOf(4));
  Write(&cache, 0, Range(0, 12), 1);
  const auto exact = Rows(kGeometry, 0, Range(0, 12), 1, true);
  const auto stride = static_cast<size_t>(kGeometry.kv_stride());
  for (int32_t query = 0; query < 12; ++query) {
    const KvRows rows = ReadForQuery(cache, 0, query);
    for (int32_t p = 0; p <= query; ++p) {
      const auto at = static_cast<size_t>(p) * stride;
      const bool same = std::equal(exact.begin() + static_cast<ptrdiff_t>(at),
                                   exact.begin() + static_cast<ptrdiff_t>(at + stride),
                                   rows.keys.begin() + static_cast<ptrdiff_t>(at));
      EXPECT_EQ(same, query - p < 4) << "query " << query << " row " << p;
    }
  }
}

// Known wrong answer: a rollback that leaves the window's boundary behind, or shows rejected rows.
TEST(QuantizedWindowTest, Q2RowsBroughtBackByARollbackReadDequantizedUntilRewritten) {
  QuantizedKvCache cache(OptionsOf(4)), never(OptionsOf(0));
  Write(&cache, 0, Range(0, 10), 1);
  Write(&never, 0, Range(0, 10), 1);
  cache.Rollback(5);  // 6..9 took the ring, so no row of 0..4 is held
  never.Rollback(5);
  EXPECT_TRUE(SameBits(Read(cache, 0).keys, Read(never, 0).keys));

  Write(&cache, 0, {4}, 2);
  const auto exact = Rows(kGeometry, 0, std::vector<int32_t>{4}, 2, true);
  const auto rows = Read(cache, 0);
  EXPECT_TRUE(std::equal(exact.begin(), exact.end(),
                         rows.keys.end() - static_cast<ptrdiff_t>(exact.size())));
}

// Views are cut into as few pieces as memory allows: encoded rows, then one or two pieces of ring.
TEST(QuantizedWindowTest, V1ViewsAreMergedAndCoverTheLength) {
  QuantizedKvCache cache(OptionsOf(4));
  KvView view;
  cache.View(0, &view);
  EXPECT_EQ(view.length, 0);
  EXPECT_TRUE(view.segments.empty());
  Write(&cache, 0, Range(0, 10), 1);
  cache.View(0, &view);  // the step in progress: its last rows lie together
  ASSERT_EQ(view.segments.size(), 2u);
  EXPECT_EQ(view.segments[0].count, 6);
  EXPECT_EQ(view.segments[0].key_type, RowType::kQ8_0);
  EXPECT_EQ(view.segments[0].value_type, RowType::kQ4_0);
  EXPECT_EQ(view.segments[1].first, 6);
  EXPECT_EQ(view.segments[1].count, 4);
  EXPECT_EQ(view.segments[1].key_type, RowType::kF32);
  Write(&cache, 0, {10}, 1);  // 7..9 have settled in slots 3, 0, 1
  cache.View(0, &view);
  ASSERT_EQ(view.segments.size(), 4u);
  EXPECT_EQ(view.segments[0].count, 7);
  EXPECT_EQ(view.segments[1].count, 1);
  EXPECT_EQ(view.segments[2].count, 2);
  EXPECT_EQ(view.segments[3].count, 1);
}

TEST(QuantizedWindowTest, AStepOfTooManyRowsIsRefusedBeforeAnyWrite) {
  QuantizedKvOptions options = OptionsOf(2);
  options.max_step_rows = 3;
  QuantizedKvCache cache(options);
  EXPECT_EQ(cache.max_step_rows(), 3);
  Write(&cache, 0, Range(0, 3), 1);
  const auto before = SnapshotOf(cache);
  const auto query = ReadForQuery(cache, 0, 0);
  EXPECT_THROW(Write(&cache, 0, Range(3, 7), 1), std::invalid_argument);
  EXPECT_EQ(SnapshotOf(cache), before);
  EXPECT_TRUE(SameBits(ReadForQuery(cache, 0, 0).keys, query.keys));

  options.window = 0;  // nothing is kept apart, so nothing limits a step
  QuantizedKvCache free(options);
  EXPECT_EQ(free.max_step_rows(), kGeometry.max_length);
  Write(&free, 0, Range(0, 24), 1);
  options.max_step_rows = 0;
  options.window = 1;
  EXPECT_EQ(QuantizedKvCache(options).max_step_rows(), kGeometry.max_length);
  options.geometry.max_length = 1000;
  EXPECT_EQ(QuantizedKvCache(options).max_step_rows(), 512);
}

// Nothing but a write or a rollback ends the step in progress.
TEST(QuantizedWindowTest, Q1ReadsRefusalsAndEmptyUpdatesDoNotEndTheStep) {
  QuantizedKvCache cache(OptionsOf(2));
  Write(&cache, 0, Range(0, 6), 1);
  const auto query = ReadForQuery(cache, 0, 2).keys;
  cache.Update(0, {}, {}, {});
  EXPECT_FALSE(cache.TryReserveSlot(0, Range(6, 7)));
  cache.CommitSlot(0, Range(0, 2));
  EXPECT_THROW(cache.CommitSlot(0, Range(5, 7)), std::logic_error);
  EXPECT_THROW(cache.Rollback(7), std::out_of_range);
  EXPECT_THROW(Write(&cache, 0, {24}, 2), std::out_of_range);
  Write(&cache, 1, Range(0, 3), 1);  // another layer
  EXPECT_TRUE(SameBits(ReadForQuery(cache, 0, 2).keys, query));
  cache.Rollback(6);
  EXPECT_FALSE(SameBits(ReadForQuery(cache, 0, 2).keys, query));
}

// What settled is nobody's memory again: a read of it shows.
TEST(ExactWindowTest, SettledRowsLeavePoisonBehind) {
  constexpr int32_t kSlots = 3, kStepRows = 4, kStride = 2;
  const MemoryWatch watch({.poison = 0x5a});
  ExactWindow window({.slots = kSlots, .max_step_rows = kStepRows, .kv_stride = kStride});
  const std::vector<float> rows(size_t{kStepRows} * kStride, 1.0f);
  const auto is_poison = [](std::byte b) { return b == std::byte{0x5a}; };
  const auto staged = [&](size_t buffer) {
    const WatchedMemory& memory = watch.live()[buffer];
    return std::span(memory.data, memory.bytes).subspan(size_t{kSlots} * kStride * sizeof(float));
  };
  window.Stage(Range(0, kStepRows), rows, rows);
  ASSERT_EQ(watch.live().size(), 2u) << "keys and values";
  for (const size_t buffer : {0u, 1u}) EXPECT_TRUE(std::ranges::none_of(staged(buffer), is_poison));
  window.DropFrom(kStepRows);
  for (const size_t buffer : {0u, 1u}) {
    EXPECT_EQ(staged(buffer).size(), size_t{kStepRows} * kStride * sizeof(float));
    EXPECT_TRUE(std::ranges::all_of(staged(buffer), is_poison)) << "buffer " << buffer;
  }
}

}  // namespace
}  // namespace lockstep
