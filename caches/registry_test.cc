#include "caches/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string>

#include "caches/contract/fixture.h"
#include "caches/cuda_quantized_kv_cache.h"
#include "caches/error.h"

namespace lockstep {
namespace {

TEST(RegistryTest, NamesAreUniqueAndReadBack) {
  std::set<std::string> names;
  for (const CacheSpec& spec : AllCaches()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    const CacheSpec parsed = ParseCacheSpec(spec.name);
    EXPECT_EQ(parsed.name, spec.name);
    EXPECT_EQ(parsed.make({.geometry = contract::kGeometry})->name(), spec.name);
  }
}

TEST(RegistryTest, FactsAreTrue) {
  for (const CacheSpec& spec : AllCaches()) {
    SCOPED_TRACE(spec.name);
    const auto cache = spec.make({.geometry = contract::kGeometry});
    EXPECT_EQ(cache->geometry(), contract::kGeometry);
    EXPECT_EQ(cache->key_type(), spec.key_type);
    EXPECT_EQ(cache->value_type(), spec.value_type);
    EXPECT_EQ(cache->view_depends_on_query(), spec.window > 0);
    EXPECT_EQ(cache->TryReserveSlot(0, contract::Range(0, 1)).has_value(), spec.grants_host_slots);
    EXPECT_EQ(BlockCountsOf(*cache).has_value(), spec.block_size > 0);
    KvGeometry odd = contract::kGeometry;
    odd.head_dim = 33;
    if (spec.head_dim_multiple == 1) {
      EXPECT_NO_THROW(spec.make({.geometry = odd}));
    } else {
      EXPECT_THROW(spec.make({.geometry = odd}), std::invalid_argument);
    }
  }
}

TEST(RegistryTest, ReadsParametersThatAreNotListed) {
  EXPECT_EQ(ParseCacheSpec("paged/7").block_size, 7);
  const CacheSpec quantized = ParseCacheSpec("quantized/q4_0+f32/w128");
  EXPECT_EQ(quantized.key_type, RowType::kQ4_0);
  EXPECT_EQ(quantized.value_type, RowType::kF32);
  EXPECT_EQ(quantized.window, 128);
  EXPECT_EQ(quantized.head_dim_multiple, 32);
  const CacheSpec half = ParseCacheSpec("quantized/f32+f16/w3");
  EXPECT_EQ(half.value_type, RowType::kF16);
  EXPECT_EQ(half.head_dim_multiple, 1);
  EXPECT_EQ(ParseCacheSpec("quantized/q8_0+f16/w0").head_dim_multiple, 32);
  const CacheSpec brain = ParseCacheSpec("quantized/bf16+q4_0/w2");
  EXPECT_EQ(brain.key_type, RowType::kBf16);
  EXPECT_EQ(brain.head_dim_multiple, 32);
  EXPECT_EQ(quantized.window_type, RowType::kF32);
  EXPECT_EQ(ParseCacheSpec("quantized/q8_0+q4_0/w4-f16").window_type, RowType::kF16);
}

TEST(RegistryTest, RefusesUnknownNamesAndSaysWhatThereIs) {
  for (const char* name : {"",
                           "Simple",
                           "simple ",
                           "paged",
                           "paged/",
                           "paged/0",
                           "paged/-1",
                           "paged/016",
                           "paged/+4",
                           "paged/4x",
                           "paged/99999999999",
                           "quantized",
                           "quantized/",
                           "quantized/q8_0/w4",
                           "quantized/q8_0+q4_0",
                           "quantized/q8_0+q4_0/w",
                           "quantized/q8_0+q4_0/w-1",
                           "quantized/q8_0+q5_0/w4",
                           "quantized/bfloat16+q8_0/w0",
                           "quantized/q8_0/w4+q4_0",
                           "quantized/q8_0+q4_0/w0-f16",
                           "quantized/q8_0+q4_0/w4-f32",
                           "quantized/q8_0+q4_0/w-f16",
                           "ring",
                           "ring/",
                           "ring/model",
                           "ring/model+0",
                           "ring/4+2",
                           "ring/w4",
                           "ring/w4+",
                           "ring/w4+0",
                           "ring/w4-+2",
                           "ring/w04+2",
                           "ring/w4,2+2",
                           "ring/w-1+2",
                           "ring/w4+2,3",
                           "ring/f16/w4+2",
                           "ring/f16+/w4+2",
                           "ring/f16+f16/",
                           "ring/f16+f16/4+2",
                           "ring/f32+f32/w4+2",
                           "ring/q8_0+q8_0/w4+2",
                           "ring/f16+q4_0/w4+2",
                           "ring/f16+f16/f16+f16/w4+2",
                           "cuda/1",
                           "cuda-quantized/q8_0+q4_0/w4-f16",
                           "cuda-quantized/q8_0",
                           "hybrid",
                           "hybrid/-1",
                           "hybrid/01"}) {
    try {
      ParseCacheSpec(name);
      ADD_FAILURE() << "accepted '" << name << "'";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::StartsWith(std::string("cache '") + name + "'"));
      EXPECT_THAT(error.what(), testing::HasSubstr("paged/16"));
    }
  }
}

TEST(RegistryTest, RingsHaveTheWindowsOfTheirNameOrOfTheGeometry) {
  KvGeometry geometry = contract::kGeometry;
  geometry.num_layers = 5;
  const CacheSpec named = ParseCacheSpec("ring/w6-0-9+4");
  EXPECT_EQ(named.undo_rows, 4);
  EXPECT_THAT(WindowsOf(named, geometry), testing::ElementsAre(6, 0, 9, 6, 0));
  EXPECT_EQ(named.make({.geometry = geometry})->attention_window(3), 6);
  const CacheSpec halves = ParseCacheSpec("ring/f16+bf16/w6-0-9+4");
  EXPECT_THAT(WindowsOf(halves, geometry), testing::ElementsAre(6, 0, 9, 6, 0));
  EXPECT_EQ(halves.key_type, RowType::kF16);
  EXPECT_EQ(halves.make({.geometry = geometry})->value_type(), RowType::kBf16);
  EXPECT_FALSE(halves.grants_host_slots);
  const CacheSpec of_model = ParseCacheSpec("ring/model+4");
  EXPECT_THAT(WindowsOf(of_model, geometry), testing::IsEmpty());
  EXPECT_EQ(of_model.make({.geometry = geometry})->max_step_rows(), geometry.max_length);
  geometry.window = 7;
  geometry.full_interval = 2;
  EXPECT_THAT(WindowsOf(of_model, geometry), testing::ElementsAre(7, 0, 7, 0, 7));
  EXPECT_EQ(of_model.make({.geometry = geometry})->max_step_rows(), 4);
  EXPECT_EQ(Misfit(of_model, geometry), "");
  EXPECT_EQ(Misfit(ParseCacheSpec("ring/w7-0+1"), geometry), "");
  EXPECT_EQ(Misfit(ParseCacheSpec("ring/w8-9+1"), geometry),
            "ring/w8-9+1 keeps 9 rows for a query, layer 1 of the model sees all");
  EXPECT_EQ(Misfit(ParseCacheSpec("ring/w6-0+1"), geometry),
            "ring/w6-0+1 keeps 6 rows for a query, layer 0 of the model sees 7");
  EXPECT_THAT([&] { CheckFits(ParseCacheSpec("ring/w6+2"), geometry, "--cache"); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("choose ring/model+2")));
}

TEST(RegistryTest, PoolHoldsTheSequencesAskedFor) {
  const CacheSpec spec = ParseCacheSpec("paged/4");
  for (int32_t sequences : {1, 2, 3}) {
    const auto cache = spec.make({.geometry = contract::kGeometry, .sequences = sequences});
    EXPECT_EQ(BlockCountsOf(*cache)->free_blocks, 6 * sequences);
  }
  EXPECT_THAT([&] { spec.make({.geometry = contract::kGeometry, .sequences = 0}); },
              testing::ThrowsMessage<std::invalid_argument>(
                  testing::StartsWith("paged/4: 0 sequences of ")));
  EXPECT_THROW(spec.make({.geometry = {1, 1, 1, 1 << 30}, .sequences = 64}), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
