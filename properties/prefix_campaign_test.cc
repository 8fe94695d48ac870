#include "properties/prefix_campaign.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// Sizes of blocks and pools that matter: one block a position, pools for one sequence and for all.
PrefixCampaignOptions Campaign(uint64_t seed) {
  constexpr int32_t kSizes[] = {4, 3, 1, 2, 8};
  const int32_t size = kSizes[seed % 5];
  const int32_t one = (26 + size - 1) / size;
  PrefixCampaignOptions options = {.seed = seed, .block_size = size};
  options.blocks = one + static_cast<int32_t>(seed % 4) * one;
  options.threads = seed % 7 == 0 ? 2 : 1;
  if (seed % 3 == 1) options.preset = "tiny-untied-4x2-q8_0";
  if (seed % 6 == 5) options.hash_bits = static_cast<int32_t>(seed % 4);
  return options;
}

TEST(PrefixCampaignTest, P2_WhatIsAttachedEqualsAColdComputation) {
  std::array<int64_t, kPrefixClasses> counts = {};
  int64_t collisions = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const PrefixRun run = RunPrefixCampaign(Campaign(seed));
    if (run.finding) {
      FAIL() << "seed " << seed << ", operation " << run.finding->op << ": [" << run.finding->clause
             << "] " << run.finding->what;
    }
    for (size_t i = 0; i < kPrefixClasses; ++i) counts[i] += run.counts[i];
    collisions += run.counters.collisions;
  }
  for (size_t i = 0; i < kPrefixClasses; ++i) EXPECT_GT(counts[i], 5) << "class " << i;
  EXPECT_GT(collisions, 5);
}

// Which blocks are given up, and so what is attached, is the same each time [P6]; what comes out
// depends on none of it.
TEST(PrefixCampaignTest, P6_TheSameSeedDoesTheSame) {
  for (const uint64_t seed : {3u, 8u}) {
    const PrefixRun one = RunPrefixCampaign(Campaign(seed)),
                    two = RunPrefixCampaign(Campaign(seed));
    EXPECT_EQ(one.counters, two.counters);
    EXPECT_EQ(one.counts, two.counts);
    EXPECT_EQ(one.digest, two.digest);
    EXPECT_GT(one.counters.evicted, 0);
  }
}

class WrongDriverTest : public testing::Test {
 protected:
  // The clauses by which campaigns find it, or "" where none does.
  template <typename Driver>
  static std::string Clause() {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
      const PrefixRun run = RunPrefixCampaign(
          Campaign(seed), [](PrefixCache& prefixes) { return std::make_unique<Driver>(prefixes); });
      if (run.finding) return run.finding->clause;
    }
    return "";
  }
};

TEST_F(WrongDriverTest, AdaptersLeftOutOfTheKey) {
  struct Driver final : PrefixDriver {
    using PrefixDriver::PrefixDriver;
    int32_t Attach(std::span<const int32_t> tokens, std::span<const AppliedAdapter>,
                   KvCache* cache) override {
      return prefixes().Attach(tokens, {}, cache);
    }
    void Register(std::span<const int32_t> tokens, std::span<const AppliedAdapter>,
                  const KvCache& cache) override {
      prefixes().Register(tokens, {}, cache);
    }
  };
  EXPECT_EQ(Clause<Driver>(), "P2");
}

TEST_F(WrongDriverTest, TokensByTheirLowBits) {
  struct Driver final : PrefixDriver {
    using PrefixDriver::PrefixDriver;
    static std::vector<int32_t> Low(std::span<const int32_t> tokens) {
      std::vector<int32_t> low;
      for (const int32_t token : tokens) low.push_back(token & 0xff);
      return low;
    }
    int32_t Attach(std::span<const int32_t> tokens, std::span<const AppliedAdapter> adapters,
                   KvCache* cache) override {
      return prefixes().Attach(Low(tokens), adapters, cache);
    }
    void Register(std::span<const int32_t> tokens, std::span<const AppliedAdapter> adapters,
                  const KvCache& cache) override {
      prefixes().Register(Low(tokens), adapters, cache);
    }
  };
  EXPECT_EQ(Clause<Driver>(), "P2");
}

TEST_F(WrongDriverTest, AllOfATextAttached) {
  struct Driver final : PrefixDriver {
    using PrefixDriver::PrefixDriver;
    int32_t Attach(std::span<const int32_t> tokens, std::span<const AppliedAdapter> adapters,
                   KvCache* cache) override {
      std::vector<int32_t> longer(tokens.begin(), tokens.end());
      longer.push_back(0);
      return prefixes().Attach(longer, adapters, cache);
    }
  };
  EXPECT_EQ(Clause<Driver>(), "P3");
}

}  // namespace
}  // namespace lockstep
