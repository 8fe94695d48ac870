// What may be said about two runs: verdicts on made-up series whose truth is known.
#include "reports/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "caches/error.h"
#include "caches/random.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A run of one benchmark with two samples a round, `values[round]` and a little more.
BenchRun RunWith(const std::vector<double>& values) {
  BenchRun run;
  run.benchmarks.push_back({.name = "a"});
  for (size_t i = 0; i < values.size(); ++i) {
    for (double more : {1.0, 1.0004}) {
      run.benchmarks[0].samples.push_back(
          {.value = values[i] * more, .round = static_cast<int32_t>(i)});
    }
  }
  return run;
}

// Rounds whose level changes by up to a half; the same for the same number.
std::vector<double> Levels(int rounds) {
  Random random(5);
  std::vector<double> levels;
  for (int i = 0; i < rounds; ++i) levels.push_back(random.Between(1000, 1500));
  return levels;
}

std::vector<double> Times(std::vector<double> values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

std::string RefusalOf(const BenchRun& baseline, const BenchRun& subject,
                      const ComparisonOptions& options = {}) {
  try {
    Compare(baseline, subject, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ComparisonTest, VerdictsOfKnownRatios) {
  const std::vector<double> levels = Levels(10);
  const auto verdict = [&](double factor) {
    return Compare(RunWith(levels), RunWith(Times(levels, factor)), {}).benchmarks[0];
  };
  EXPECT_EQ(verdict(1.1).verdict, BenchVerdict::kSlower);
  EXPECT_NEAR(verdict(1.1).ratio, 1.1, 1e-9);
  EXPECT_EQ(verdict(0.9).verdict, BenchVerdict::kFaster);
  EXPECT_EQ(verdict(1.02).verdict, BenchVerdict::kSame);
  EXPECT_EQ(verdict(0.98).verdict, BenchVerdict::kSame);
  EXPECT_EQ(verdict(1.1).rounds, 10);
  EXPECT_TRUE(Compare(RunWith(levels), RunWith(levels), {}).interleaved);
}

// Two rounds say nothing, and so do rounds whose order could be chance: three have p = 0.009.
TEST(ComparisonTest, FewRoundsAreInconclusive) {
  for (int rounds : {2, 3}) {
    const std::vector<double> levels = Levels(rounds);
    const Comparison result = Compare(RunWith(levels), RunWith(Times(levels, 2)), {});
    EXPECT_EQ(result.benchmarks[0].verdict, BenchVerdict::kInconclusive) << rounds;
    EXPECT_EQ(result.outcome(), Comparison::Outcome::kInconclusive);
  }
}

TEST(ComparisonTest, SamplesOfDifferentRegimesAreNeverCompared) {
  const std::vector<double> levels = Levels(10);
  BenchRun baseline = RunWith(levels), subject = RunWith(Times(levels, 1.3));
  const auto stated = [](BenchRun* run, auto set) {
    for (BenchSample& sample : run->benchmarks[0].samples) set(&sample.state);
  };
  stated(&baseline, [](MachineState* s) { s->barrier_seconds = 3e-7; });
  stated(&subject, [](MachineState* s) { s->barrier_seconds = 6e-7; });
  const BenchComparison apart = Compare(baseline, subject, {}).benchmarks[0];
  EXPECT_EQ(apart.rounds, 0);
  EXPECT_EQ(apart.rounds_left, 10);
  EXPECT_EQ(apart.verdict, BenchVerdict::kInconclusive);
  stated(&subject, [](MachineState* s) { s->barrier_seconds = 4e-7; });
  EXPECT_EQ(Compare(baseline, subject, {}).benchmarks[0].verdict, BenchVerdict::kSlower);

  const RegimeTolerance tolerance;
  EXPECT_FALSE(SameRegime({.read_bandwidth_one = 4e10}, {.read_bandwidth_one = 3e10}, tolerance));
  EXPECT_FALSE(SameRegime({.read_bandwidth_all = 4e10}, {.read_bandwidth_all = 6e10}, tolerance));
  EXPECT_FALSE(SameRegime({.others = 0.0}, {.others = 0.3}, tolerance));
  EXPECT_FALSE(SameRegime({.steal = 0.3}, {.steal = 0.0}, tolerance));
  EXPECT_TRUE(SameRegime({.read_bandwidth_one = 4e10, .steal = 0.1}, {.steal = 0.2}, tolerance));
}

// Files of two sessions: three regimes, one of which only one side saw.
TEST(ComparisonTest, WithoutRoundsEachRegimeIsComparedWithItself) {
  BenchRun baseline, subject;
  baseline.benchmarks.push_back({.name = "a"});
  subject.benchmarks.push_back({.name = "a"});
  Random random(3);
  const auto add = [&](BenchRun* run, double level, double bandwidth) {
    for (int i = 0; i < 12; ++i) {
      run->benchmarks[0].samples.push_back({.value = level * (1 + 0.0001 * random.Between(-50, 50)),
                                            .state = {.read_bandwidth_one = bandwidth}});
    }
  };
  add(&baseline, 1.0, 4e10);
  add(&baseline, 1.8, 2e10);
  add(&subject, 1.1 * 1.8, 2e10);
  add(&subject, 1.1, 4e10);
  add(&subject, 7, 1e10);
  const Comparison result = Compare(baseline, subject, {});
  EXPECT_FALSE(result.interleaved);
  EXPECT_EQ(result.benchmarks[0].verdict, BenchVerdict::kSlower);
  EXPECT_NEAR(result.benchmarks[0].ratio, 1.1, 0.01);
  EXPECT_EQ(result.benchmarks[0].rounds, 24);
}

TEST(ComparisonTest, FractionsOfTheLimitAreComparedWhereBothHaveIt) {
  const std::vector<double> levels = Levels(10);
  BenchRun baseline = RunWith(levels), subject = RunWith(Times(levels, 1.5));
  for (BenchSample& sample : baseline.benchmarks[0].samples) sample.limit = 500;
  EXPECT_EQ(Compare(baseline, subject, {}).benchmarks[0].verdict, BenchVerdict::kSlower);
  for (BenchSample& sample : subject.benchmarks[0].samples) sample.limit = 750;
  const BenchComparison same = Compare(baseline, subject, {}).benchmarks[0];
  EXPECT_EQ(same.verdict, BenchVerdict::kSame);
  EXPECT_TRUE(same.by_limit);
  EXPECT_NEAR(same.subject / same.baseline, 1.5, 0.1);  // the values stay what they are
}

TEST(ComparisonTest, ALowerRateIsSlower) {
  const std::vector<double> levels = Levels(10);
  BenchRun baseline = RunWith(levels), subject = RunWith(Times(levels, 1 / 1.1));
  for (BenchRun* run : {&baseline, &subject}) {
    run->benchmarks[0].direction = Direction::kHigherIsBetter;
  }
  const BenchComparison result = Compare(baseline, subject, {}).benchmarks[0];
  EXPECT_EQ(result.verdict, BenchVerdict::kSlower);
  EXPECT_NEAR(result.ratio, 1.1, 1e-9);
}

TEST(ComparisonTest, CountersAndBitsGateWhateverTheTime) {
  const std::vector<double> levels = Levels(10);
  BenchRun baseline = RunWith(levels), subject = RunWith(Times(levels, 0.8));
  baseline.benchmarks[0].counters = {{"instructions", 1e6}, {"allocations", 0}, {"bytes", 64}};
  subject.benchmarks[0].counters = {{"instructions", 1.004e6}, {"allocations", 0}, {"bytes", 60}};
  Comparison result = Compare(baseline, subject, {});
  EXPECT_FALSE(result.benchmarks[0].counters_worse()) << "0.4 % of instructions, fewer bytes";
  EXPECT_EQ(result.benchmarks[0].counters.size(), 2u);
  EXPECT_EQ(result.outcome(), Comparison::Outcome::kHolds);

  subject.benchmarks[0].counters["instructions"] = 1.03e6;
  result = Compare(baseline, subject, {});
  EXPECT_TRUE(result.benchmarks[0].counters_worse());
  EXPECT_EQ(result.benchmarks[0].verdict, BenchVerdict::kFaster);
  EXPECT_EQ(result.outcome(), Comparison::Outcome::kRegression);

  subject.benchmarks[0].counters["instructions"] = 1e6;
  subject.benchmarks[0].counters["allocations"] = 1;
  EXPECT_EQ(Compare(baseline, subject, {}).outcome(), Comparison::Outcome::kRegression);

  subject.benchmarks[0].counters["allocations"] = 0;
  baseline.benchmarks[0].digest = "ab";
  subject.benchmarks[0].digest = "cd";
  result = Compare(baseline, subject, {});
  EXPECT_TRUE(result.benchmarks[0].bits_changed);
  EXPECT_EQ(result.outcome(), Comparison::Outcome::kRegression);
}

TEST(ComparisonTest, WhatIsMissingOrElsewhereIsAnError) {
  BenchRun baseline = RunWith(Levels(4)), subject = RunWith(Levels(4));
  subject.benchmarks.push_back({.name = "b"});
  EXPECT_THAT(RefusalOf(baseline, subject), HasSubstr("'b': is missing in the baseline"));
  EXPECT_THAT(RefusalOf(subject, baseline), HasSubstr("'b': is missing in the subject"));
  EXPECT_THAT(RefusalOf({}, {}), HasSubstr("there is no benchmark"));
  subject = baseline;
  subject.benchmarks[0].unit = "tokens/s";
  EXPECT_THAT(RefusalOf(baseline, subject), HasSubstr("tokens/s"));
  subject = baseline;
  subject.machine.processor = "another";
  EXPECT_THAT(RefusalOf(baseline, subject), HasSubstr("--across-machines"));
  EXPECT_EQ(Compare(baseline, subject, {.across_machines = true}).benchmarks.size(), 1u);
}

// Else a gate would be off without anyone's knowledge.
TEST(ComparisonTest, CountersAndDigestsOfOneSideAloneAreAnError) {
  BenchRun baseline = RunWith(Levels(4)), subject = RunWith(Levels(4));
  baseline.benchmarks[0].counters["instructions"] = 1e6;
  EXPECT_THAT(RefusalOf(baseline, subject),
              HasSubstr("'a': has the counter 'instructions' in the baseline alone"));
  EXPECT_THAT(RefusalOf(subject, baseline), HasSubstr("'instructions' in the subject alone"));
  baseline.benchmarks[0].counters.clear();
  baseline.benchmarks[0].digest = "ab";
  EXPECT_THAT(RefusalOf(baseline, subject), HasSubstr("a digest in the baseline alone"));
  EXPECT_THAT(RefusalOf(subject, baseline), HasSubstr("a digest in the subject alone"));
}

// What a change adds is no fault of it: told, with what it is, and compared with nothing.
TEST(ComparisonTest, WhatTheNewerSideAloneHasIsNew) {
  BenchRun baseline = RunWith(Levels(10)), subject = baseline;
  subject.benchmarks[0].counters["bytes"] = 64;
  subject.benchmarks[0].digest = "0123456789abcdef0123456789abcdef";
  subject.benchmarks.push_back({.name = "b", .samples = {{.value = 0.002}}});
  subject.benchmarks[1].counters["allocations"] = 3;
  EXPECT_NE(RefusalOf(baseline, subject), "");
  const ComparisonOptions newer = {.subject_is_newer = true};
  const Comparison result = Compare(baseline, subject, newer);
  EXPECT_EQ(result.outcome(), Comparison::Outcome::kHolds);
  EXPECT_EQ(result.benchmarks.size(), 1u);
  EXPECT_FALSE(result.benchmarks[0].bits_changed);
  EXPECT_TRUE(result.interleaved) << "a new benchmark has no rounds";
  EXPECT_THAT(result.added,
              ElementsAre(OneSided{.benchmark = "a", .part = "bytes", .text = "64"},
                          OneSided{.benchmark = "a", .part = "digest", .text = "0123456789abcdef"},
                          OneSided{.benchmark = "b", .text = "2 ms; allocations 3"}));
  EXPECT_THAT(result.gone, IsEmpty());
  // The other way round each of them is an error still: a gate would be off.
  EXPECT_THAT(RefusalOf(subject, baseline, newer), HasSubstr("'a': has the counter 'bytes'"));
  subject.benchmarks[0] = baseline.benchmarks[0];
  EXPECT_THAT(RefusalOf(subject, baseline, newer), HasSubstr("'b': is missing in the subject"));
  // And so is another value of what both have.
  baseline.benchmarks[0].counters["bytes"] = 64;
  subject.benchmarks[0].counters["bytes"] = 65;
  EXPECT_EQ(Compare(baseline, subject, newer).outcome(), Comparison::Outcome::kRegression);
}

TEST(ComparisonTest, WhatIsListedMayBeOfOneSideAlone) {
  const BenchRun fewer = RunWith(Levels(10));
  BenchRun more = fewer;
  more.benchmarks[0].counters["bytes"] = 64;
  more.benchmarks.push_back({.name = "b#x"});
  EXPECT_THAT(RefusalOf(more, fewer), HasSubstr("--gone 'a#bytes'"));
  EXPECT_THAT(RefusalOf(more, fewer, {.gone = {"a#bytes"}}), HasSubstr("--gone 'b#x'"));
  EXPECT_THAT(RefusalOf(fewer, more, {.gone = {"a#bytes", "b#x"}}), HasSubstr("--new 'a#bytes'"));
  const Comparison less = Compare(more, fewer, {.gone = {"a#bytes", "b#x"}});
  EXPECT_EQ(less.outcome(), Comparison::Outcome::kHolds);
  EXPECT_THAT(less.gone, ElementsAre(OneSided{.benchmark = "a", .part = "bytes", .text = "64"},
                                     OneSided{.benchmark = "b#x"}));
  const Comparison grown = Compare(fewer, more, {.added = {"a#bytes", "b#x"}});
  EXPECT_EQ(grown.added, less.gone);
}

// A list that outlives its reason would let the next one vanish unseen.
TEST(ComparisonTest, WhatIsListedAndOfNoSideAloneIsRefused) {
  const BenchRun fewer = RunWith(Levels(10));
  BenchRun more = fewer;
  more.benchmarks.push_back({.name = "b"});
  EXPECT_THAT(RefusalOf(fewer, fewer, {.gone = {"a"}}),
              AllOf(HasSubstr("--gone 'a': is of no side alone"), HasSubstr("nothing is")));
  EXPECT_THAT(RefusalOf(more, fewer, {.gone = {"b", "B"}}),
              AllOf(HasSubstr("--gone 'B'"), HasSubstr("these are: b")));
  EXPECT_THAT(RefusalOf(more, fewer, {.gone = {"b", "a#bytes"}}), HasSubstr("--gone 'a#bytes'"));
  EXPECT_THAT(RefusalOf(fewer, more, {.subject_is_newer = true, .added = {"c"}}),
              HasSubstr("--new 'c'"));
  // Before anything is counted, nothing is known of counters of what both have.
  CheckNames(more, fewer, {.gone = {"b", "a#bytes"}});
  EXPECT_THROW(CheckNames(more, fewer, {.gone = {"b", "b#bytes"}}), Error);
  EXPECT_THROW(CheckNames(more, fewer, {}), Error);
  EXPECT_THROW(CheckSides(more, fewer, {.gone = {"b", "a#bytes"}}), Error);
  // Nothing in common is no comparison.
  BenchRun other = fewer;
  other.benchmarks[0].name = "z";
  EXPECT_THAT(RefusalOf(fewer, other, {.added = {"z"}, .gone = {"a"}}),
              HasSubstr("no benchmark that both sides have"));
}

TEST(ComparisonTest, NoiseFloorOfEqualBuildsWidensWhatIsTheSame) {
  const std::vector<double> levels = Levels(10);
  BenchRun baseline = RunWith(levels), subject = RunWith(Times(levels, 1.06));
  baseline.build = subject.build = "0123";
  const Comparison aa = Compare(baseline, subject, {});
  EXPECT_TRUE(aa.identical);
  const auto floors = NoiseFloors(aa);
  EXPECT_NEAR(floors.at("a"), 0.06, 0.002);
  subject.build = "4567";
  const Comparison same = Compare(baseline, subject, {.noise_floors = floors});
  EXPECT_EQ(same.benchmarks[0].verdict, BenchVerdict::kSame);
  EXPECT_NEAR(same.benchmarks[0].within, 0.06, 0.002);
}

// What equal builds show besides is neither slower nor the same: 8 % is the most that is.
TEST(ComparisonTest, BetweenTheLimitOfSameAndAWideNoiseFloorNothingIsDecided) {
  const std::vector<double> levels = Levels(10);
  const auto compare = [&](double factor, double within) {
    return Compare(RunWith(levels), RunWith(Times(levels, factor)),
                   {.within = within, .noise_floors = {{"a", 0.15}}})
        .benchmarks[0];
  };
  for (const double factor : {1.10, 1 / 1.10, 1.149}) {
    const BenchComparison c = compare(factor, 0.03);
    EXPECT_EQ(c.verdict, BenchVerdict::kInconclusive) << factor;
    EXPECT_TRUE(c.in_noise);
    EXPECT_FALSE(c.rounds_needed);
    EXPECT_EQ(c.within, 0.08);
    EXPECT_EQ(c.floor, 0.15);
  }
  EXPECT_EQ(compare(1.07, 0.03).verdict, BenchVerdict::kSame);
  EXPECT_EQ(compare(1.16, 0.03).verdict, BenchVerdict::kSlower);
  EXPECT_EQ(compare(1 / 1.16, 0.03).verdict, BenchVerdict::kFaster);
  // Who asks for more gets it.
  EXPECT_EQ(compare(1.10, 0.12).verdict, BenchVerdict::kSame);
}

// Normal noise of 2 % on each sample: a round's log ratio has 2 %, the median of n rounds
// 1.2533 * 2 % / sqrt(n).
TEST(ComparisonTest, DetectableEffectAndNoiseAreThoseOfTheSpread) {
  Random random(9);
  const auto normal = [&] {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(random.Next() >> 11) * 0x1p-53;
    return sum;
  };
  for (int rounds : {25, 100}) {
    double detectable = 0, noise = 0;
    constexpr int kRuns = 40;
    for (int run = 0; run < kRuns; ++run) {
      BenchRun baseline = RunWith(Levels(rounds)), subject = baseline;
      for (BenchRun* side : {&baseline, &subject}) {
        for (BenchSample& sample : side->benchmarks[0].samples) {
          sample.value *= std::exp(0.02 * normal());
        }
      }
      const BenchComparison c = Compare(baseline, subject, {.resamples = 1000}).benchmarks[0];
      detectable += c.detectable / kRuns;
      noise += c.noise / kRuns;
    }
    const double error = 1.2533 * 0.02 / std::sqrt(rounds);
    EXPECT_NEAR(detectable / ((2.807 + 0.8416) * error), 1, 0.25) << rounds;
    EXPECT_NEAR(noise / (2.807 * error), 1, 0.15) << rounds;
  }
}

TEST(ComparisonTest, EqualSeedsGiveEqualIntervals) {
  const std::vector<double> levels = Levels(12);
  std::vector<double> other = levels;
  Random random(2);
  for (double& value : other) value *= 1 + 0.001 * random.Between(-40, 40);
  const auto with_seed = [&](uint64_t seed) {
    return Compare(RunWith(levels), RunWith(other), {.seed = seed}).benchmarks[0];
  };
  EXPECT_EQ(with_seed(1).low, with_seed(1).low);
  EXPECT_EQ(with_seed(1).high, with_seed(1).high);
  EXPECT_EQ(with_seed(1).ratio, with_seed(2).ratio);
}

}  // namespace
}  // namespace lockstep
