// The shift of the context: the bits that engine/ARITHMETIC.md says, on every cache, by every
// kernel table; what a turn is in real numbers; and what a shifted text has in common with a
// computed one.
#include "engine/shift.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "caches/paged_kv_cache.h"
#include "caches/registry.h"
#include "caches/simple_kv_cache.h"
#include "engine/synthetic.h"
#include "engine/test_models.h"
#include "engine/transformer.h"
#include "oracle/difference.h"
#include "oracle/model_cache.h"
#include "oracle/plain_shift.h"
#include "oracle/reference/ops.h"

namespace lockstep {
namespace {

constexpr int32_t kPositions = 40;
constexpr int32_t kTokens = 30;

// Of both pairings, partial rotary, every scaling, layers without positions, and with their own.
std::vector<std::string> Presets() {
  std::vector<std::string> names;
  for (const SyntheticSpec& spec : SyntheticPresets()) {
    if (spec.context_length >= kPositions && spec.dim <= 512) names.push_back(spec.name);
  }
  return names;
}

std::shared_ptr<const GgufFile> FileOf(const std::string& preset) {
  return MakeSyntheticModel(SyntheticPreset(preset), 7);
}

std::vector<int32_t> TokensOf(const ModelConfig& config) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < kTokens; ++i) tokens.push_back((i * 37 + 5) % config.vocab_size);
  return tokens;
}

std::vector<int32_t> Positions(int32_t first, int32_t end) {
  std::vector<int32_t> positions(static_cast<size_t>(end - first));
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

void Prefill(const std::shared_ptr<const Model>& model, std::span<const int32_t> tokens,
             KvCache* cache) {
  Transformer(model).Forward(tokens, Positions(0, static_cast<int32_t>(tokens.size())), *cache);
}

KvRows RowsOf(const KvCache& cache, int32_t layer) {
  KvView view;
  cache.View(layer, &view);
  return DecodeRows(view, cache.geometry().kv_stride());
}

constexpr DeletedSpan kSpans[] = {{0, 1}, {0, 7}, {3, 4}, {4, 13}, {2, 29}, {11, 30}, {0, 30}};

// What the text of the arithmetic makes of the cache, as a model cache of the same rows.
std::unique_ptr<ModelCache> Expected(const ModelConfig& config, const CacheSpec& spec,
                                     const KvCache& cache, const DeletedSpan& deleted) {
  const auto stride = static_cast<size_t>(config.kv_dim());
  auto model = std::make_unique<ModelCache>(ModelCacheOptions{.geometry = cache.geometry(),
                                                              .key_type = spec.key_type,
                                                              .value_type = spec.value_type,
                                                              .window = spec.window,
                                                              .window_type = spec.window_type,
                                                              .refuses_host_slots = true});
  const auto gone = static_cast<size_t>(deleted.end) * stride;
  const int32_t left = cache.current_length() - deleted.count();
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    const KvRows rows = RowsOf(cache, layer);
    const auto kept = static_cast<size_t>(deleted.first) * stride;
    if (deleted.first > 0) {
      model->Update(layer, Positions(0, deleted.first), std::span(rows.keys).first(kept),
                    std::span(rows.values).first(kept));
    }
    std::vector<float> keys(rows.keys.begin() + static_cast<std::ptrdiff_t>(gone), rows.keys.end());
    for (size_t at = 0; at < keys.size(); at += stride) {
      PlainTurnBack(config, layer, deleted.count(), std::span(keys).subspan(at, stride));
    }
    if (left > deleted.first) {
      model->Update(layer, Positions(deleted.first, left), keys,
                    std::span(rows.values).subspan(gone));
    }
  }
  return model;
}

class ShiftOracleTest : public testing::TestWithParam<std::string> {};

// Rows before the deleted ones are as they were; of a window some are exact that were not before,
// so there they are compared as stored.
TEST_P(ShiftOracleTest, F4_EveryCacheAndTableGivesTheBitsOfTheText) {
  const auto model = Model::Load(FileOf(GetParam()));
  const ModelConfig& config = model->config();
  for (const CacheSpec& spec : AllCaches()) {
    if (!Misfit(spec, config.geometry(kPositions)).empty()) continue;
    const auto cache = spec.make({.geometry = config.geometry(kPositions), .sequences = 40});
    Prefill(model, TokensOf(config), cache.get());
    if (!MayShift(*cache)) {
      const Digest before = DigestOfCache(*cache);
      EXPECT_THROW(ShiftContext(config, SelectKernels(), {28, 29}, cache.get()),
                   std::invalid_argument);
      EXPECT_EQ(DigestOfCache(*cache), before);
      continue;
    }
    for (const DeletedSpan& deleted : kSpans) {
      const auto expected = Expected(config, spec, *cache, deleted);
      for (const KernelTable* table : AvailableKernels()) {
        const auto shifted = cache->Fork();
        ShiftContext(config, *table, deleted, shifted.get());
        for (int32_t layer = 0; layer < config.num_layers; ++layer) {
          ASSERT_EQ(shifted->length(layer), kTokens - deleted.count());
          if (spec.window > 0) continue;
          const auto difference = FirstRowDifference(*shifted, *expected, layer);
          ASSERT_FALSE(difference) << spec.name << ", " << table->name << ", [" << deleted.first
                                   << ", " << deleted.end << "): " << difference->Sentence();
        }
        if (spec.window > 0) {
          EXPECT_EQ(shifted->StorageDigest(), expected->StorageDigest()) << spec.name;
        }
      }
    }
  }
}

// In real numbers a turn back is a rotation by minus the distance, within the bound of one rotation
// in the canonical arithmetic.
TEST_P(ShiftOracleTest, F4_ATurnIsARotationByTheDistance) {
  const auto file = FileOf(GetParam());
  const auto model = Model::Load(file);
  const ModelConfig& config = model->config();
  const oracle::Hyperparameters hp = oracle::ReadWeights(file).hp;
  SimpleKvCache cache(config.geometry(kPositions));
  Prefill(model, TokensOf(config), &cache);
  const DeletedSpan deleted = {3, 14};
  const auto shifted = cache.Fork();
  ShiftContext(config, SelectKernels("scalar"), deleted, shifted.get());
  bool turned = false;
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    const KvRows before = RowsOf(cache, layer), after = RowsOf(*shifted, layer);
    oracle::Rows moved(kTokens - deleted.end, config.kv_dim());
    const auto gone = static_cast<std::ptrdiff_t>(deleted.end * config.kv_dim());
    std::copy(before.keys.begin() + gone, before.keys.end(), moved.values.begin());
    if (hp.no_rope_interval == 0 || (layer + 1) % hp.no_rope_interval != 0) {
      const bool local = hp.global_interval == 0 || (layer + 1) % hp.global_interval != 0;
      moved = oracle::Turned(moved, -deleted.count(), oracle::RopeShapeOf(hp, local));
    }
    const auto kept = static_cast<size_t>(deleted.first * config.kv_dim());
    for (size_t i = 0; i < moved.values.size(); ++i) {
      const double key = after.keys[kept + i];
      ASSERT_LE(std::fabs(key - moved.values[i]), moved.bounds[i]) << layer << ", " << i;
      turned = turned || after.keys[kept + i] != before.keys[i + static_cast<size_t>(gone)];
    }
    EXPECT_TRUE(std::equal(before.values.begin() + gone, before.values.end(),
                           after.values.begin() + static_cast<std::ptrdiff_t>(kept)));
  }
  EXPECT_TRUE(turned);
}

// The rows of layer 0 depend on their own token and position alone: a fresh computation of the
// remaining tokens has the same V, to the bit, and K within one rotation more. Above it rows keep
// what the deleted tokens made of them.
TEST_P(ShiftOracleTest, F4_LayerZeroIsThatOfAFreshComputation) {
  const auto model = Model::Load(FileOf(GetParam()));
  const ModelConfig& config = model->config();
  const DeletedSpan deleted = {2, 12};
  std::vector<int32_t> tokens = TokensOf(config);
  SimpleKvCache shifted(config.geometry(kPositions)), fresh(config.geometry(kPositions));
  Prefill(model, tokens, &shifted);
  ShiftContext(config, SelectKernels("scalar"), deleted, &shifted);
  tokens.erase(tokens.begin() + deleted.first, tokens.begin() + deleted.end);
  Prefill(model, tokens, &fresh);
  const KvRows is = RowsOf(shifted, 0), was = RowsOf(fresh, 0);
  EXPECT_EQ(is.values, was.values);
  const int32_t half = config.rope.dim / 2;
  for (size_t head = 0; head < was.keys.size(); head += static_cast<size_t>(config.head_dim)) {
    for (int32_t i = 0; i < config.head_dim; ++i) {
      const bool halves = config.rope_pairing == RopePairing::kHalves;
      const int32_t other = halves ? (i < half ? i + half : i - half) : i ^ 1;
      const size_t at = head + static_cast<size_t>(i);
      const double length =
          i < 2 * half ? std::hypot(was.keys[at], was.keys[head + static_cast<size_t>(other)]) : 0;
      ASSERT_LE(std::fabs(is.keys[at] - was.keys[at]), 11 * 0x1p-24 * length) << at;
    }
  }
  double furthest = 0;
  for (int32_t layer = 1; layer < config.num_layers; ++layer) {
    const KvRows a = RowsOf(shifted, layer), b = RowsOf(fresh, layer);
    for (size_t i = 0; i < a.values.size(); ++i) {
      furthest = std::max<double>(furthest, std::fabs(a.values[i] - b.values[i]));
    }
  }
  EXPECT_GT(furthest, 0);
  RecordProperty("furthest_value", fmt::format("{}", furthest));
}

INSTANTIATE_TEST_SUITE_P(Presets, ShiftOracleTest, testing::ValuesIn(Presets()),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

// Half the absolute difference of two distributions, in [0, 1].
double Distance(std::span<const float> a, std::span<const float> b) {
  const auto probabilities = [](std::span<const float> logits) {
    const double largest = *std::ranges::max_element(logits);
    std::vector<double> p;
    for (const float logit : logits) p.push_back(std::exp(logit - largest));
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& share : p) share /= sum;
    return p;
  };
  const auto p = probabilities(a), q = probabilities(b);
  double distance = 0;
  for (size_t i = 0; i < p.size(); ++i) distance += std::fabs(p[i] - q[i]) / 2;
  return distance;
}

// A story of a real model, of which the older half is deleted: how far the distributions of the
// next tokens are from those of the rest computed anew, by shifts with and without turning back.
TEST(ShiftDistanceTest, TurnedKeysAreNearerToAFreshComputation) {
  LOCKSTEP_TEST_MODEL_OR_SKIP(path, "stories260K-f32.gguf");
  const auto model = Model::Load(GgufFile::Open(path));
  const ModelConfig& config = model->config();
  constexpr int32_t kText = 200, kNext = 40;
  const DeletedSpan deleted = {4, 102};
  Transformer engine(model);
  SimpleKvCache shifted(config.geometry(300)), unturned(config.geometry(300)),
      fresh(config.geometry(300));
  std::vector<int32_t> tokens = {1};
  for (int32_t i = 0; i < kText; ++i) {
    tokens.push_back(engine.ForwardGreedy({{tokens.back()}}, {{i}}, shifted));
  }
  const int32_t next = tokens.back();
  tokens.pop_back();
  Prefill(model, tokens, &unturned);
  ShiftContext(config, engine.kernels(), deleted, &shifted);
  ModelConfig no_positions = config;
  no_positions.no_rope_interval = 1;
  ShiftContext(no_positions, engine.kernels(), deleted, &unturned);
  tokens.erase(tokens.begin() + deleted.first, tokens.begin() + deleted.end);
  Prefill(model, tokens, &fresh);
  double near = 0, far = 0;
  int32_t token = next;
  for (int32_t i = 0; i < kNext; ++i) {
    const int32_t position = fresh.current_length();
    const auto step = [&](KvCache& cache) {
      const auto logits = engine.Forward({{token}}, {{position}}, cache);
      return std::vector<float>(logits.begin(), logits.end());
    };
    const auto expected = step(fresh), turned = step(shifted), other = step(unturned);
    near += Distance(turned, expected) / kNext;
    far += Distance(other, expected) / kNext;
    token = ArgMax(expected);
  }
  RecordProperty("distance", fmt::format("{:.4f}", near));
  RecordProperty("distance_unturned", fmt::format("{:.4f}", far));
  EXPECT_GT(near, 0);
  EXPECT_LT(near, 0.06);
  EXPECT_LT(10 * near, far);
}

class ShiftTest : public testing::Test {
 protected:
  void ExpectRefused(KvCache* cache, const DeletedSpan& deleted) {
    const Digest before = DigestOfCache(*cache);
    EXPECT_THROW(ShiftContext(config_, SelectKernels(), deleted, cache), std::out_of_range);
    EXPECT_EQ(DigestOfCache(*cache), before);
  }

  std::shared_ptr<const Model> model_ = Model::Load(FileOf("tiny-mha-4x4-f32"));
  const ModelConfig& config_ = model_->config();
  std::vector<int32_t> tokens_ = TokensOf(config_);
};

TEST_F(ShiftTest, F4_RefusesPositionsThatAreNotThere) {
  SimpleKvCache cache(config_.geometry(kPositions));
  ExpectRefused(&cache, {0, 1});
  Prefill(model_, tokens_, &cache);
  for (const DeletedSpan& deleted : std::vector<DeletedSpan>{{0, 0},
                                                             {5, 5},
                                                             {5, 4},
                                                             {-1, 3},
                                                             {-4, -2},
                                                             {30, 31},
                                                             {29, 31},
                                                             {0, INT32_MAX},
                                                             {INT32_MIN, 2},
                                                             {5, INT32_MIN}}) {
    ExpectRefused(&cache, deleted);
  }
  const std::vector<float> row(static_cast<size_t>(config_.kv_dim()), 1.0f);
  const int32_t next = kTokens;
  cache.Update(1, {&next, 1}, row, row);
  EXPECT_THROW(ShiftContext(config_, SelectKernels(), {0, 1}, &cache), std::invalid_argument);
  KvGeometry other = config_.geometry(kPositions);
  ++other.num_layers;
  SimpleKvCache more(other);
  EXPECT_THROW(ShiftContext(config_, SelectKernels(), {0, 1}, &more), std::invalid_argument);
}

// The rows that move lie in blocks that another sequence reads, and there is none to copy them to.
TEST_F(ShiftTest, F4_AnExhaustedPoolChangesNothing) {
  for (const int32_t spare : {0, 1, 5, 6}) {
    const KvGeometry geometry = config_.geometry(kPositions);
    const auto pool = std::make_shared<BlockPool>(
        BlockPoolOptions{.geometry = geometry, .block_size = 4, .num_blocks = 8 + spare});
    PagedKvCache cache({.geometry = geometry, .block_size = 4, .pool = pool});
    Prefill(model_, tokens_, &cache);
    const auto fork = cache.Fork();
    const Digest before = DigestOfCache(cache);
    const DeletedSpan deleted = {2, 9};  // 23 rows stay, in 6 blocks, all of which are written
    if (spare < 6) {
      EXPECT_THROW(ShiftContext(config_, SelectKernels(), deleted, &cache), PoolExhausted);
      EXPECT_EQ(DigestOfCache(cache), before);
      EXPECT_EQ(pool->free_blocks(), spare);
    } else {
      ShiftContext(config_, SelectKernels(), deleted, &cache);
      EXPECT_EQ(cache.current_length(), kTokens - 7);
    }
    EXPECT_EQ(DigestOfCache(*fork), before);
  }
  // Alone it needs none, however full the pool is.
  PagedKvCache full({.geometry = config_.geometry(kTokens), .block_size = 4});
  Prefill(model_, tokens_, &full);
  EXPECT_EQ(full.pool().free_blocks(), 0);
  ShiftContext(config_, SelectKernels(), {0, 15}, &full);
  EXPECT_EQ(full.pool().free_blocks(), 4);
}

}  // namespace
}  // namespace lockstep
