#include "engine/row_watch.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <stdexcept>

#include "caches/registry.h"
#include "engine/model/test_support.h"
#include "engine/transformer.h"

namespace lockstep::testing {
namespace {

constexpr KvGeometry kGeometry = {3, 2, 32, 24};

std::vector<float> Rows(int32_t layer, int32_t count, float first) {
  std::vector<float> rows(static_cast<size_t>(count * kGeometry.kv_stride()));
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = first + static_cast<float>(layer) + 0.25f * static_cast<float>(i % 37);
  }
  return rows;
}

std::unique_ptr<KvCache> Filled(const char* kind, int32_t changed_layer = -1) {
  auto cache = ParseCacheSpec(kind).make({.geometry = kGeometry});
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
    auto keys = Rows(layer, 9, 1.0f);
    if (layer == changed_layer) keys[5 * 64 + 3] += 1.0f;  // row 5
    cache->Update(layer, Iota(0, 9), keys, Rows(layer, 9, -2.0f));
  }
  return cache;
}

TEST(RowWatchTest, IsTheDigestOfTheRowsOfEachLayer) {
  const auto cache = Filled("simple");
  std::vector<float> expected;
  for (int32_t layer = 0; layer < 3; ++layer) {
    for (float first : {1.0f, -2.0f}) {
      const auto rows = Rows(layer, 9, first);
      expected.insert(expected.end(), rows.begin() + 4 * 64, rows.begin() + 6 * 64);
    }
  }
  RowWatch watch;
  EXPECT_EQ(watch.OfRows(*cache, {{4, 5}}), DigestOfFloats(expected));
  EXPECT_NE(watch.OfRows(*cache, {{5, 4}}), DigestOfFloats(expected));
}

TEST(RowWatchTest, SeesAChangeOfItsRowsInAnyLayerAndOfNoOther) {
  RowWatch watch;
  const auto sound = Filled("paged/4");
  for (int32_t layer = 0; layer < 3; ++layer) {
    const auto changed = Filled("paged/4", layer);
    for (int32_t position = 0; position < 9; ++position) {
      const bool same = watch.OfRows(*changed, {{position}}) == watch.OfRows(*sound, {{position}});
      EXPECT_EQ(same, position != 5) << "layer " << layer << ", position " << position;
    }
  }
}

TEST(RowWatchTest, StorageDoesNotCount) {
  RowWatch watch;
  const Digest expected = watch.OfRows(*Filled("simple"), {{8}});
  for (const char* kind : {"paged/1", "paged/4", "paged/16"}) {
    EXPECT_EQ(watch.OfRows(*Filled(kind), {{8}}), expected) << kind;
  }
  // Rows of other values differ, and block formats are read as their values.
  EXPECT_NE(watch.OfRows(*Filled("quantized/q8_0+q8_0/w0"), {{0}}),
            watch.OfRows(*Filled("simple"), {{0}}));
}

TEST(RowWatchTest, EveryNanIsOneNan) {
  RowWatch watch;
  const auto a = Filled("simple");
  const auto b = Filled("simple");
  std::vector<float> row(64, std::numeric_limits<float>::quiet_NaN());
  a->Update(1, {{2}}, row, row);
  row[7] = -row[7];
  b->Update(1, {{2}}, row, row);
  EXPECT_EQ(watch.OfRows(*a, {{2}}), watch.OfRows(*b, {{2}}));
}

// Fixed tokens, so that a wrong row of the last layer reaches no row of a later step.
std::vector<Digest> WatchedDecode(const TransformerOptions& options, const char* kind, bool legacy,
                                  int32_t planted_step) {
  const auto model = PresetModel("tiny-gqa-9x3-q8_0");
  const ModelConfig& config = model->config();
  Transformer transformer(model, options);
  ProbeCache cache(ParseCacheSpec(kind).make({.geometry = config.geometry(16)}));
  cache.refuse_slots = legacy;
  const auto tokens = SomeTokens(config, 11);
  transformer.Forward(std::span(tokens).first(5), Iota(0, 5), cache);
  RowWatch watch;
  std::vector<Digest> digests;
  for (int32_t position = 5; position < 11; ++position) {
    transformer.Forward({&tokens[static_cast<size_t>(position)], 1}, {&position, 1}, cache);
    if (position - 5 == planted_step) {
      const std::vector<float> wrong(static_cast<size_t>(config.kv_dim()), 0.5f);
      cache.inner().Update(config.num_layers - 1, {&position, 1}, wrong, wrong);
    }
    digests.push_back(watch.OfRows(cache, {&position, 1}));
  }
  return digests;
}

TEST(RowWatchTest, IsTheSameForEveryWritePathCacheThreadCountAndKernelTable) {
  const auto expected = WatchedDecode({}, "simple", false, -1);
  for (size_t i = 1; i < expected.size(); ++i) EXPECT_NE(expected[i], expected[i - 1]);
  EXPECT_EQ(WatchedDecode({}, "simple", true, -1), expected);
  EXPECT_EQ(WatchedDecode({.threads = 3}, "paged/4", false, -1), expected);
  for (const KernelTable* kernels : AvailableKernels()) {
    EXPECT_EQ(WatchedDecode({.kernels = kernels}, "simple", false, -1), expected) << kernels->name;
  }
}

TEST(RowWatchTest, AWrongRowChangesTheDigestOfItsStepAlone) {
  const auto expected = WatchedDecode({}, "simple", false, -1);
  for (int32_t planted : {0, 3, 5}) {
    const auto digests = WatchedDecode({}, "simple", false, planted);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(digests[i] == expected[i], i != static_cast<size_t>(planted)) << i;
    }
  }
}

TEST(RowWatchTest, RefusesRowsThatAreNotShown) {
  RowWatch watch;
  const auto cache = Filled("simple");
  EXPECT_THROW(watch.OfRows(*cache, {{9}}), std::out_of_range);
  EXPECT_THROW(watch.OfRows(*cache, {{-1}}), std::out_of_range);
}

}  // namespace
}  // namespace lockstep::testing
