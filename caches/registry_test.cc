#include "caches/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string>

#include "caches/contract/fixture.h"
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
                           "quantized/bf16+q8_0/w0",
                           "quantized/q8_0/w4+q4_0",
                           "quantized/q8_0+q4_0/w0-f16",
                           "quantized/q8_0+q4_0/w4-f32",
                           "quantized/q8_0+q4_0/w-f16",
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
