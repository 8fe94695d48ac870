#include "reports/serve_bench.h"

#include <gtest/gtest.h>

#include "caches/error.h"
#include "engine/synthetic.h"

namespace lockstep {
namespace {

std::shared_ptr<const Model> BenchModel() {
  return Model::Load(MakeSyntheticModel(SyntheticPreset("tiny-mha-4x4-f32"), 1));
}

TEST(ServeBenchTest, TogetherGivesTheBitsOfInTurn) {
  int32_t samples = 0;
  const auto results = RunServeBench(BenchModel(), {.requests = {1, 3},
                                                    .threads = {1, 2},
                                                    .prompt_tokens = 5,
                                                    .new_tokens = 4,
                                                    .rounds = 2,
                                                    .on_sample = [&](int32_t done, int32_t total) {
                                                      EXPECT_EQ(done, ++samples);
                                                      EXPECT_EQ(total, 8);
                                                    }});
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(samples, 8);
  EXPECT_EQ(results[1].requests, 3);
  EXPECT_EQ(results[1].tokens, 12);
  EXPECT_EQ(results[1].together_seconds.size(), 2u);
  EXPECT_TRUE(ServeBenchHolds(results));
  EXPECT_EQ(ServeTableOf(results).rows[3][1], "2");
}

TEST(ServeBenchTest, OtherBitsDoNotHold) {
  const ServeBenchResult good = {.equal_bits = true};
  EXPECT_TRUE(ServeBenchHolds({good}));
  EXPECT_FALSE(ServeBenchHolds({good, {}}));
}

TEST(ServeBenchTest, LongRequestsAreRefused) {
  EXPECT_THROW(RunServeBench(BenchModel(), {.prompt_tokens = 1 << 20}), Error);
}

}  // namespace
}  // namespace lockstep
