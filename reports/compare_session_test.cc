// Sessions on a made-up shared machine (reports/compare/noise_machine.h): how often equal builds
// raise an alarm, how often a real regression is found, and that a session ends when it may.
#include "reports/compare_session.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "caches/error.h"
#include "reports/compare/noise_machine.h"
#include "reports/statistics.h"

namespace lockstep {
namespace {

using internal::NoiseMachine;

const std::vector<std::string> kNames = {"decode", "prefill", "copy"};

struct Simulation {
  double slower = 1;        // factor of "prefill" of the subject
  double instructions = 1;  // factor of its instructions
  int32_t rounds_max = 40;
  internal::NoiseOptions noise = {};
  std::vector<double> places = {1, 1, 1, 1};  // factors of the places in a round
  std::map<std::string, double> floors = {};
  std::string build = {};  // of both, in an A/A comparison
};

Comparison Simulate(uint64_t seed, const Simulation& simulation) {
  NoiseMachine machine(Random(seed), simulation.noise);
  Random counted(seed);
  double counts[2] = {};
  for (double& count : counts) count = 1e7 + counted.Between(0, 5000);  // addresses differ
  SessionOptions options = {
      .comparison = {.noise_floors = simulation.floors, .resamples = 400, .seed = seed},
      .rounds_max = simulation.rounds_max};
  size_t step = 0;
  const auto measure = [&](CompareSide side, const std::string& name) {
    const bool changed = side == CompareSide::kSubject && name == "prefill";
    const double place = simulation.places[step++ % simulation.places.size()];
    return Measured{.sample = machine.Measure(0.01 * place * (changed ? simulation.slower : 1)),
                    .counters = {{"instructions", counts[static_cast<int>(side)] *
                                                      (changed ? simulation.instructions : 1)}}};
  };
  return RunSession({.build = simulation.build}, {.build = simulation.build}, kNames, measure,
                    options);
}

// Of 200 sessions each: of equal builds, and of one that takes 10 % longer in "prefill".
struct Rates {
  int alarms = 0;  // sessions of equal builds that tell any of them apart
  int found = 0;
  int missed = 0;  // sessions that call the longer one the same, or faster
};

Rates RatesOf(const char* name, Simulation simulation) {
  constexpr int kSessions = 200;
  Rates rates;
  for (uint64_t seed = 1; seed <= kSessions; ++seed) {
    simulation.slower = 1;
    const Comparison equal = Simulate(seed, simulation);
    const bool alarm = std::ranges::any_of(equal.benchmarks, [](const BenchComparison& c) {
      return c.verdict == BenchVerdict::kSlower || c.verdict == BenchVerdict::kFaster;
    });
    rates.alarms += alarm ? 1 : 0;
    simulation.slower = 1.10;
    const BenchComparison longer = Simulate(1000000 + seed, simulation).benchmarks[1];
    rates.found += longer.verdict == BenchVerdict::kSlower ? 1 : 0;
    const bool open = longer.verdict == BenchVerdict::kInconclusive;
    rates.missed += open || longer.verdict == BenchVerdict::kSlower ? 0 : 1;
  }
  fmt::print("{}: of {} sessions each, {} alarms; 10 % of time found in {}, missed in {}\n", name,
             kSessions, rates.alarms, rates.found, rates.missed);
  return rates;
}

// What a comparison of medians would say that runs one side after the other, and calls 5 % a
// difference.
bool NaiveAlarm(uint64_t seed) {
  NoiseMachine machine(Random(seed), {});
  std::vector<double> sides[2];
  for (auto& side : sides) {
    for (int i = 0; i < 16; ++i) side.push_back(machine.Measure(0.01).value);
  }
  return Quantile(sides[1], 0.5) > 1.05 * Quantile(sides[0], 0.5);
}

TEST(CompareSessionTest, EqualBuildsRaiseAtMostOneAlarmInTwoHundred) {
  constexpr int kSessions = 1400;
  int alarms = 0, open = 0, naive = 0, left = 0;
  for (uint64_t seed = 1; seed <= kSessions; ++seed) {
    const Comparison result = Simulate(seed, {});
    const auto differs = [](const BenchComparison& c) {
      return c.verdict == BenchVerdict::kSlower || c.verdict == BenchVerdict::kFaster;
    };
    if (std::ranges::any_of(result.benchmarks, differs)) ++alarms;
    for (const BenchComparison& c : result.benchmarks) {
      open += c.verdict == BenchVerdict::kInconclusive ? 1 : 0;
      left += c.rounds_left;
    }
    naive += NaiveAlarm(seed) ? 1 : 0;
  }
  const double rate = static_cast<double>(alarms) / kSessions;
  fmt::print(
      "A/A: {} alarms in {} sessions of {} series ({:.2f} %); {} series inconclusive; "
      "medians one after the other: {} alarms\n",
      alarms, kSessions, kNames.size(), 100 * rate, open, naive);
  EXPECT_LE(rate, 1.0 / 200);
  // The series are bad enough to show something, and most are decided all the same.
  EXPECT_GT(naive, kSessions / 10);
  EXPECT_GT(left, kSessions);
  EXPECT_LT(open, kSessions * 3 / 20);
}

TEST(CompareSessionTest, ARegressionOfTenPercentIsFoundNineteenTimesOfTwenty) {
  constexpr int kSessions = 200;
  int found = 0, elsewhere = 0;
  int64_t rounds = 0;
  for (uint64_t seed = 1; seed <= kSessions; ++seed) {
    const Comparison result = Simulate(1000000 + seed, {.slower = 1.10});
    for (const BenchComparison& c : result.benchmarks) {
      if (c.verdict != BenchVerdict::kSlower) continue;
      ++(c.name == "prefill" ? found : elsewhere);
      rounds += c.rounds + c.rounds_left;
    }
  }
  fmt::print("10 % of time: found {} of {} times, after {} rounds in the mean; elsewhere {}\n",
             found, kSessions, rounds / std::max(1, found), elsewhere);
  EXPECT_GE(found, kSessions * 19 / 20);
  EXPECT_LE(elsewhere, kSessions / 100);
}

// A machine on which nothing is steady, neither the times nor what is stated beside them: to leave
// out each round in which it moved would be to leave out nearly all.
TEST(CompareSessionTest, OnARestlessMachineRoundsStillCount) {
  const internal::NoiseOptions restless = {.own = 0.05, .state = 0.15, .state_outliers = 0.1};
  constexpr int kSessions = 200;
  int alarms = 0, found = 0;
  int64_t rounds = 0, left = 0;
  for (uint64_t seed = 1; seed <= kSessions; ++seed) {
    const auto differs = [](const BenchComparison& c) {
      return c.verdict == BenchVerdict::kSlower || c.verdict == BenchVerdict::kFaster;
    };
    const Simulation equal = {.rounds_max = 64, .noise = restless};
    if (std::ranges::any_of(Simulate(seed, equal).benchmarks, differs)) ++alarms;
    const Simulation slower = {.slower = 1.10, .rounds_max = 64, .noise = restless};
    for (const BenchComparison& c : Simulate(1000000 + seed, slower).benchmarks) {
      rounds += c.rounds;
      left += c.rounds_left;
      if (c.name == "prefill" && c.verdict == BenchVerdict::kSlower) ++found;
    }
  }
  fmt::print("restless: {} alarms in {}; 10 % of time found {} times; {} of {} rounds left out\n",
             alarms, kSessions, found, left, rounds + left);
  EXPECT_LE(alarms, kSessions / 200);
  EXPECT_GE(found, kSessions * 19 / 20);
  EXPECT_LT(left, (rounds + left) / 5);
}

// Where every other round sees a change, changes are the rule and no round is left out for them:
// the interval is wide then, and says so.
TEST(CompareSessionTest, AMachineThatChangesOftenRaisesNoAlarmAndHidesNoRegression) {
  const Rates rates = RatesOf("frequent changes", {.noise = {.regime_change = 0.15}});
  EXPECT_LE(rates.alarms, 1);
  EXPECT_EQ(rates.missed, 0);
}

// It gets warmer, or a neighbour grows: each measurement takes longer than the one before.
TEST(CompareSessionTest, ADriftThatNeverComesBackHitsBothSides) {
  const Rates rates = RatesOf("drift", {.noise = {.trend = 0.003}});
  EXPECT_LE(rates.alarms, 1);
  EXPECT_EQ(rates.missed, 0);
  EXPECT_GE(rates.found, 190);
}

// The middle of a round finds warm what its ends, next to other benchmarks, do not. Were each order
// drawn by itself, one series in 128 would have a side in the middle eight times.
TEST(CompareSessionTest, APlaceInTheRoundThatCostsLessIsNoDifference) {
  const Rates rates = RatesOf("a warm place", {.places = {1, 0.9, 0.9, 1}});
  EXPECT_LE(rates.alarms, 1);
  EXPECT_EQ(rates.missed, 0);
}

// Equal builds that differ by more than a regression make it undecidable, not the same.
TEST(CompareSessionTest, NoNoiseFloorMakesTenPercentTheSame) {
  int wide = 0, undecided = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Simulation noisy = {
        .rounds_max = 8, .noise = {.own = 0.05, .regime_change = 0.15}, .build = "0123"};
    const auto floors = NoiseFloors(Simulate(seed, noisy));
    const Simulation quiet = {
        .slower = 1.10,
        .noise = {.own = 0.005, .drift = 0, .interrupted = 0, .regime_change = 0},
        .floors = floors};
    const BenchComparison longer = Simulate(1000000 + seed, quiet).benchmarks[1];
    EXPECT_NE(longer.verdict, BenchVerdict::kSame) << seed << ", floor " << longer.floor;
    if (floors.contains("prefill") && floors.at("prefill") > 0.12) {
      ++wide;
      undecided += longer.in_noise ? 1 : 0;
    }
  }
  fmt::print("floors beyond 12 %: {}, of which {} leave 10 % undecided\n", wide, undecided);
  EXPECT_GE(wide, 10);
  EXPECT_EQ(undecided, wide);
}

TEST(CompareSessionTest, ThreePercentOfInstructionsAreFoundAlways) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Comparison with = Simulate(seed, {.instructions = 1.03, .rounds_max = 2});
    EXPECT_EQ(with.outcome(), Comparison::Outcome::kRegression) << seed;
    const Comparison without = Simulate(seed, {.rounds_max = 2});
    EXPECT_FALSE(std::ranges::any_of(without.benchmarks, &BenchComparison::counters_worse));
  }
}

// The forecast of an inconclusive comparison is about right: with so many rounds more, most are
// decided.
TEST(CompareSessionTest, RoundsNeededAreAboutEnough) {
  int forecasts = 0, decided = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    const auto with_rounds = [&](int32_t rounds) {
      NoiseMachine machine(Random(seed), {.regime_change = 0});
      const auto measure = [&](CompareSide side, const std::string&) {
        return Measured{.sample = machine.Measure(side == CompareSide::kSubject ? 1.06 : 1)};
      };
      return RunSession({}, {}, {"a"}, measure,
                        {.comparison = {.resamples = 400, .seed = seed},
                         .rounds_max = rounds,
                         .until_decided = false})
          .benchmarks[0];
    };
    const BenchComparison first = with_rounds(8);
    if (!first.rounds_needed || *first.rounds_needed > 200) continue;
    ++forecasts;
    if (!with_rounds(8 + *first.rounds_needed).rounds_needed) ++decided;
  }
  fmt::print("rounds needed: {} forecasts, {} decided with as many\n", forecasts, decided);
  EXPECT_GE(forecasts, 20);
  EXPECT_GE(decided, forecasts / 2);
}

TEST(CompareSessionTest, DecidedBenchmarksAreNotMeasuredAnyFurther) {
  std::map<std::string, int> measured;
  std::string order;
  const auto measure = [&](CompareSide side, const std::string& name) {
    ++measured[name];
    if (name == "quiet") order += side == CompareSide::kBaseline ? 'A' : 'B';
    NoiseMachine noisy(Random(static_cast<uint64_t>(measured[name])), {.own = 0.3});
    return Measured{.sample = name == "quiet" ? BenchSample{.value = 1 + 1e-6 * measured[name]}
                                              : noisy.Measure(1)};
  };
  const Comparison result = RunSession({}, {}, {"noisy", "quiet"}, measure,
                                       {.comparison = {.resamples = 200}, .rounds_max = 20});
  EXPECT_EQ(measured["quiet"], 4 * 8);
  EXPECT_EQ(measured["noisy"], 4 * 20);
  EXPECT_EQ(result.benchmarks[1].verdict, BenchVerdict::kSame);
  int mirrored = 0;
  for (size_t i = 0; i < order.size(); i += 4) {
    const std::string round = order.substr(i, 4);
    EXPECT_TRUE(round == "ABBA" || round == "BAAB") << round;
    mirrored += round == "BAAB" ? 1 : 0;
  }
  EXPECT_EQ(mirrored, 4) << "each order as often as the other";
  EXPECT_NE(order, "ABBABAABABBABAABABBABAABABBABAAB") << "and in no order";
}

TEST(CompareSessionTest, EndsWhenTimeIsUpWithEveryName) {
  int left = 3;
  SessionOptions options = {.comparison = {.resamples = 100}};
  options.out_of_time = [&] { return --left < 0; };
  const auto measure = [](CompareSide, const std::string&) {
    return Measured{.sample = {.value = 1}};
  };
  const Comparison result = RunSession({}, {}, kNames, measure, options);
  ASSERT_EQ(result.benchmarks.size(), 3u);
  EXPECT_EQ(result.outcome(), Comparison::Outcome::kInconclusive);
  EXPECT_GE(result.benchmarks[2].rounds, 1);
}

// What only the subject has runs once, so that it is known to run; the baseline's is let be.
TEST(CompareSessionTest, WhatOneSideAloneHasIsNotMeasuredInRounds) {
  std::map<std::string, int> measured;
  const auto measure = [&](CompareSide side, const std::string& name) {
    ++measured[name + (side == CompareSide::kBaseline ? " A" : " B")];
    return Measured{.sample = {.value = 2 + 1e-6 * measured[name + " B"]},
                    .counters = {{"bytes", 7}}};
  };
  BenchRun baseline, subject;
  baseline.benchmarks.push_back({.name = "old"});
  subject.benchmarks.push_back({.name = "fresh"});
  const Comparison result =
      RunSession(baseline, subject, {"a"}, measure,
                 {.comparison = {.resamples = 100, .subject_is_newer = true, .gone = {"old"}}});
  EXPECT_EQ(measured, (std::map<std::string, int>{{"a A", 16}, {"a B", 16}, {"fresh B", 1}}));
  ASSERT_EQ(result.benchmarks.size(), 1u);
  EXPECT_EQ(result.benchmarks[0].verdict, BenchVerdict::kSame);
  EXPECT_TRUE(result.interleaved);
  ASSERT_EQ(result.added.size(), 1u);
  EXPECT_EQ(result.added[0].Name(), "fresh");
  EXPECT_EQ(result.added[0].text, "2 s; bytes 7");
  EXPECT_EQ(result.subject.Find("fresh")->samples[0].round, -1);
  ASSERT_EQ(result.gone.size(), 1u);
  EXPECT_EQ(result.gone[0].Name(), "old");
}

// Not after minutes of rounds.
TEST(CompareSessionTest, ACounterOfOneSideIsRefusedAfterTheFirstRound) {
  int calls = 0;
  const auto measure = [&](CompareSide side, const std::string&) {
    ++calls;
    Measured measured = {.sample = {.value = 1}};
    if (side == CompareSide::kBaseline) measured.counters["bytes"] = 1;
    return measured;
  };
  EXPECT_THROW(RunSession({}, {}, {"a"}, measure, {.comparison = {.resamples = 100}}), Error);
  EXPECT_EQ(calls, 4);
  const Comparison listed =
      RunSession({}, {}, {"a"}, measure, {.comparison = {.resamples = 100, .gone = {"a#bytes"}}});
  EXPECT_EQ(listed.gone.size(), 1u);
}

TEST(CompareSessionTest, BitsThatChangeBetweenRoundsAreAnError) {
  int calls = 0;
  const auto measure = [&](CompareSide, const std::string&) {
    return Measured{.sample = {.value = 1}, .digest = ++calls > 9 ? "b" : "a"};
  };
  EXPECT_THROW(RunSession({}, {}, {"a"}, measure, {.comparison = {.resamples = 100}}), Error);
}

}  // namespace
}  // namespace lockstep
