// What a campaign makes of inputs that are slow, that hang and that crash.
#include "ci/lockstep/byte_campaign.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace lockstep::cli {
namespace {

constexpr int32_t kInputMs = 400;
constexpr useconds_t kSlowUs = 60'000;
constexpr int64_t kInputs = 24;  // take more than three times as long as one may

// Every input takes its time; one in ten, by its length, does what was planted.
class SlowTarget final : public FuzzTarget {
 public:
  explicit SlowTarget(const FuzzTargetOptions& options) : deed_(options.plant) {}

  std::optional<FuzzFinding> Run(std::span<const std::byte> bytes) const override {
    return RunText(std::to_string(bytes.size()), "");
  }
  std::string Text(std::span<const std::byte> bytes) const override {
    return std::to_string(bytes.size());
  }
  std::optional<FuzzFinding> RunText(std::string_view text, std::string_view) const override {
    usleep(kSlowUs);
    if (deed_.empty() || text.back() != '3') return std::nullopt;
    if (deed_ == "abort") std::abort();
    while (deed_ == "hang") pause();
    return FuzzFinding{"a place", "a sentence\nof two lines"};
  }
  std::string Shrink(std::string_view text, const FuzzJudge& judge) const override {
    EXPECT_TRUE(judge(std::string(text)));
    return std::string(text);
  }

 private:
  std::string deed_;
};

constexpr FuzzTargetInfo kSlow = {
    "slow", "", "finding", "", "slow", [](const FuzzTargetOptions& options) {
      return std::unique_ptr<FuzzTarget>(std::make_unique<SlowTarget>(options));
    }};

struct Seen {
  int64_t known = 0;
  std::vector<FuzzFinding> findings;
  ShardResult result;
};

// All inputs, and what was found once.
Seen RunCampaignOn(const std::string& deed) {
  ByteCampaign campaign(kSlow, {.plant = deed, .seed = 7, .corpus = {}, .input_ms = kInputMs});
  Seen seen;
  campaign.Run(
      kInputs, [&](const FuzzFinding&) { return !seen.findings.empty() && ++seen.known > 0; },
      [&](const FuzzFinding& finding, const std::string&) {
        seen.findings.push_back(finding);
        return true;
      });
  seen.result = campaign.result();
  EXPECT_EQ(campaign.drawn(), kInputs);
  return seen;
}

TEST(ByteCampaignTest, InputsThatAreSlowTogetherHold) {
  const Seen seen = RunCampaignOn("");
  EXPECT_EQ(seen.result.inputs, kInputs);
  EXPECT_TRUE(seen.findings.empty());
}

TEST(ByteCampaignTest, WhateverAnInputDoesTheOthersRunAndAreCounted) {
  const Seen found = RunCampaignOn("find");
  EXPECT_EQ(found.result.inputs, kInputs);
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].place, "a place");
  EXPECT_EQ(found.findings[0].what, "a sentence\nof two lines");
  EXPECT_GT(found.known, 0);

  const Seen aborted = RunCampaignOn("abort");
  EXPECT_EQ(aborted.result.inputs, kInputs);
  EXPECT_EQ(aborted.known, found.known);
  EXPECT_EQ(aborted.findings.at(0).place, "a crash");
  EXPECT_THAT(aborted.findings.at(0).what, testing::StartsWith("ended by SIGABRT"));
  EXPECT_NE(aborted.result.sum.Hex(), found.result.sum.Hex());
}

TEST(ByteCampaignTest, AnInputThatDoesNotReturnIsAFinding) {
  const Seen hung = RunCampaignOn("hang");
  EXPECT_EQ(hung.result.inputs, kInputs);
  EXPECT_EQ(hung.findings.at(0).place, "a hang");
  EXPECT_EQ(hung.findings.at(0).what, "did not return in 400 ms");
}

}  // namespace
}  // namespace lockstep::cli
