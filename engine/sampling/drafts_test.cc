#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/sampler.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Distribution Made(std::vector<Distribution::Entry> entries) {
  Distribution distribution{std::move(entries), 0};
  for (const auto& entry : distribution.entries) distribution.total += entry.weight;
  return distribution;
}

// Some of up to `tokens` tokens, with weights from 1 to `most`.
Distribution Any(Random* random, int32_t tokens, uint32_t most) {
  std::vector<Distribution::Entry> entries;
  while (entries.empty()) {
    for (int32_t token = 0; token < tokens; ++token) {
      if (random->Below(3) != 0) entries.push_back({token, 1 + random->Below(most)});
    }
  }
  return Made(std::move(entries));
}

// The proof, in whole numbers: over what the proposal draws, what stands and what is drawn instead,
// each token comes with exactly its own share of the target. All over p.total * q.total.
TEST(DraftsTest, TokensHaveExactlyTheTargetsDistribution) {
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    const Distribution p = Any(&random, 6, 9), q = Any(&random, 6, 9);
    std::map<int32_t, Uint128> of_token;
    Uint128 rejected = 0;
    for (const auto& [draft, weight] : q.entries) {
      const AcceptanceRatio acceptance = AcceptanceRatioOf(p, q, draft);
      ASSERT_EQ(acceptance.of, Uint128{weight} * p.total);
      of_token[draft] += acceptance.standing;
      rejected += acceptance.of - acceptance.standing;
    }
    const std::vector<Uint128> residual = ResidualOf(p, q);
    Uint128 sum = 0;
    for (size_t entry = 0; entry < residual.size(); ++entry) {
      sum += residual[entry];
      of_token[p.entries[entry].token] += residual[entry];
    }
    // What is rejected is what the residual gives: drawing from it needs no other normalisation.
    ASSERT_TRUE(sum == rejected);
    for (const auto& [token, share] : of_token) {
      ASSERT_TRUE(share == Uint128{p.WeightOf(token)} * q.total) << token;
    }
  }
}

// And the procedure does what the proof is about.
TEST(DraftsTest, DrawnTokensAreDistributedSo) {
  const Distribution p = Made({{0, 6}, {1, 3}, {2, 1}}), q = Made({{2, 5}, {0, 3}, {3, 2}});
  const Distribution behind = Made({{8, 1}, {9, 3}});
  const std::vector<Distribution> target = {p, behind}, proposal = {q};
  Random random(9);
  std::map<int32_t, int> first, second;
  constexpr int kRuns = 20000;
  for (int i = 0; i < kRuns; ++i) {
    const int32_t draft = Draw(q, &random);
    const Verdict verdict = JudgeDrafts(target, proposal, {{draft}}, &random);
    ++first[verdict.accepted == 1 ? draft : verdict.token];
    if (verdict.accepted == 1) ++second[verdict.token];
  }
  EXPECT_NEAR(first[0], 0.6 * kRuns, 300);
  EXPECT_NEAR(first[1], 0.3 * kRuns, 300);
  EXPECT_NEAR(first[2], 0.1 * kRuns, 300);
  EXPECT_EQ(first.count(3), 0u);
  EXPECT_NEAR(3.0 * second[8] / second[9], 1, 0.1);
}

// With the likeliest tokens alone: drafts stand as long as they are the target's own.
TEST(DraftsTest, GreedyDraftsStandUntilTheyDiffer) {
  const auto only = [](int32_t token) { return Made({{token, kWeightOne}}); };
  const std::vector<Distribution> target = {only(4), only(5), only(6), only(7)};
  const auto judge = [&](std::vector<int32_t> drafts) {
    std::vector<Distribution> proposal;
    for (const int32_t draft : drafts) proposal.push_back(only(draft));
    Random random(3);
    return JudgeDrafts(std::span(target).first(drafts.size() + 1), proposal, drafts, &random);
  };
  EXPECT_EQ(judge({4, 5, 6}), (Verdict{3, 7}));
  EXPECT_EQ(judge({4, 5, 5}), (Verdict{2, 6}));
  EXPECT_EQ(judge({5, 5, 6}), (Verdict{0, 4}));
  EXPECT_EQ(judge({}), (Verdict{0, 4}));
}

TEST(DraftsTest, LookupTakesWhatFollowedTheLastOccurrence) {
  const std::vector<int32_t> text = {1, 2, 3, 9, 1, 2, 3, 4, 5, 6, 2, 3};
  EXPECT_THAT(LookupDrafts(text, 2, 3), ElementsAre(4, 5, 6));
  EXPECT_THAT(LookupDrafts(text, 5, 2), ElementsAre(4, 5)) << "a shorter match";
  EXPECT_THAT(LookupDrafts(text, 2, 30), ElementsAre(4, 5, 6, 2, 3)) << "as far as the text goes";
  EXPECT_THAT(LookupDrafts(std::vector<int32_t>{1, 2, 3}, 3, 4), IsEmpty());
  EXPECT_THAT(LookupDrafts(std::vector<int32_t>{7, 7}, 3, 4), ElementsAre(7));
  EXPECT_THAT(LookupDrafts(std::vector<int32_t>{7}, 3, 4), IsEmpty());
  EXPECT_THAT(LookupDrafts({}, 3, 4), IsEmpty());
  EXPECT_THAT(LookupDrafts(text, 0, 4), IsEmpty());
}

}  // namespace
}  // namespace lockstep
