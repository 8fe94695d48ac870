#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "reports/compare_report.h"

namespace lockstep {
namespace {

std::string PercentText(double share) { return fmt::format("{:.1f}", 100 * share); }

// A ratio of at least 1 in percent above it.
std::string Excess(double ratio) { return PercentText(ratio - 1); }

std::string CounterText(const CounterChange& change) {
  const std::string by =
      change.baseline > 0
          ? fmt::format(" ({:+.2f} %)", 100 * (change.subject / change.baseline - 1))
          : "";
  return fmt::format("{} {:.15g} -> {:.15g}{}", change.name, change.baseline, change.subject, by);
}

int Concern(const BenchComparison& c) {
  if (c.regressed()) return 0;
  if (c.verdict == BenchVerdict::kInconclusive) return 1;
  return c.verdict == BenchVerdict::kFaster ? 2 : 3;
}

std::string RoundsText(const BenchComparison& c) {
  return c.rounds_left == 0 ? fmt::format("{}", c.rounds)
                            : fmt::format("{} of {}", c.rounds, c.rounds + c.rounds_left);
}

std::string BuildText(const BenchRun& run) {
  std::string text = run.commit.empty() ? "" : "commit " + run.commit.substr(0, 12);
  for (const std::string& part :
       {run.toolchain, run.build.empty() ? "" : "build " + run.build.substr(0, 12)}) {
    if (part.empty()) continue;
    text += (text.empty() ? "" : ", ") + part;
  }
  return text.empty() ? "unknown build" : text;
}

int64_t CountIf(const Comparison& comparison, bool (*predicate)(const BenchComparison&)) {
  return std::ranges::count_if(comparison.benchmarks, predicate);
}

std::string MachineNote(const BenchMachine& machine) {
  const std::string memory =
      machine.memory_mib > 0 ? fmt::format(", {} MiB", machine.memory_mib) : "";
  return fmt::format("Machine {}: {}, {} processors{}.", machine.Fingerprint(), machine.processor,
                     machine.processors, memory);
}

std::string RegressionParts(const Comparison& comparison) {
  std::string text;
  const auto add = [&](int64_t count, const char* what) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, what);
  };
  add(CountIf(comparison, [](const auto& c) { return c.bits_changed; }), "with changed bits");
  add(CountIf(comparison, [](const auto& c) { return c.counters_worse(); }),
      "with higher counters");
  add(CountIf(comparison, [](const auto& c) { return c.verdict == BenchVerdict::kSlower; }),
      "slower");
  return text;
}

std::string OneSidedText(const char* what, const OneSided& one) {
  const std::string kind = one.part.empty()       ? "benchmark"
                           : one.part == "digest" ? "digest of"
                                                  : fmt::format("counter '{}' of", one.part);
  const std::string text = one.text.empty() ? "" : fmt::format(" ({})", one.text);
  return fmt::format("{}: {} '{}'{}", what, kind, one.benchmark, text);
}

// "; 2 new, 1 gone".
std::string OneSidedCounts(const Comparison& comparison) {
  std::string text;
  for (const auto& [ones, what] :
       {std::pair(&comparison.added, "new"), std::pair(&comparison.gone, "gone")}) {
    if (!ones->empty())
      text += fmt::format("{}{} {}", text.empty() ? "; " : ", ", ones->size(), what);
  }
  return text;
}

// Of the benchmarks that both sides have.
std::string SentenceOfBoth(const Comparison& comparison) {
  const size_t all = comparison.benchmarks.size();
  const int64_t open =
      CountIf(comparison, [](const auto& c) { return c.verdict == BenchVerdict::kInconclusive; });
  switch (comparison.outcome()) {
    case Comparison::Outcome::kRegression:
      return fmt::format("REGRESSION: {} of {} benchmarks: {}",
                         CountIf(comparison, [](const auto& c) { return c.regressed(); }), all,
                         RegressionParts(comparison));
    case Comparison::Outcome::kInconclusive:
      return fmt::format("INCONCLUSIVE: {} of {} benchmarks are not decided", open, all);
    case Comparison::Outcome::kHolds:
      break;
  }
  if (comparison.identical) return "HOLDS: the two executables are the same, byte for byte";
  const int64_t faster =
      CountIf(comparison, [](const auto& c) { return c.verdict == BenchVerdict::kFaster; });
  return fmt::format("HOLDS: {} of {} benchmarks the same, {} faster",
                     static_cast<int64_t>(all) - faster, all, faster);
}

}  // namespace

std::string ValueText(double value, const std::string& unit) {
  if (unit != "s") return fmt::format("{:.4g} {}", value, unit);
  constexpr std::pair<double, const char*> kUnits[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}};
  for (const auto& [size, name] : kUnits) {
    if (value >= size) return fmt::format("{:.3g} {}", value / size, name);
  }
  return fmt::format("{:.3g} ns", value / 1e-9);
}

std::string VerdictText(const BenchComparison& c) {
  switch (c.verdict) {
    case BenchVerdict::kSlower:
      return fmt::format("slower by {} % [{}, {}]", Excess(c.ratio), Excess(c.low), Excess(c.high));
    case BenchVerdict::kFaster:
      return fmt::format("faster by {} % [{}, {}]", Excess(1 / c.ratio), Excess(1 / c.high),
                         Excess(1 / c.low));
    case BenchVerdict::kSame:
      return fmt::format("same within {} %", PercentText(c.within));
    case BenchVerdict::kInconclusive:
      break;
  }
  if (c.in_noise) {
    return fmt::format("inconclusive, equal builds differ by up to {} % too", PercentText(c.floor));
  }
  if (!c.rounds_needed) return "inconclusive, too few rounds that can be compared";
  if (*c.rounds_needed > 1000) return "inconclusive, too near the border for any number of rounds";
  return fmt::format("inconclusive, needs about {} more round{}", *c.rounds_needed,
                     *c.rounds_needed == 1 ? "" : "s");
}

std::vector<std::string> CounterTexts(const BenchComparison& c) {
  std::vector<std::string> texts;
  if (c.bits_changed) {
    // Enough of them to tell them apart; all of it is in the JSON.
    texts.push_back(fmt::format("bits changed: {} -> {}", c.baseline_digest.substr(0, 16),
                                c.subject_digest.substr(0, 16)));
  }
  for (const bool worse : {true, false}) {
    for (const CounterChange& change : c.counters) {
      if (change.worse == worse) texts.push_back(CounterText(change));
    }
  }
  return texts;
}

std::string ReproachText(const BenchComparison& c) {
  std::vector<std::string> texts = CounterTexts(c);
  // What it is reproached with comes first.
  texts.insert(c.verdict == BenchVerdict::kSlower || !c.regressed() ? texts.begin() : texts.end(),
               VerdictText(c));
  std::string text;
  for (const std::string& part : texts) text += (text.empty() ? "" : "; ") + part;
  return text;
}

std::vector<const BenchComparison*> ByConcern(const Comparison& comparison) {
  std::vector<const BenchComparison*> order;
  for (const BenchComparison& c : comparison.benchmarks) order.push_back(&c);
  std::ranges::stable_sort(order, {}, [](const BenchComparison* c) { return Concern(*c); });
  return order;
}

std::string NewText(const OneSided& added) { return OneSidedText("new", added); }

std::string GoneText(const OneSided& gone) { return OneSidedText("gone", gone); }

std::vector<std::string> OneSidedTexts(const Comparison& comparison) {
  std::vector<std::string> texts;
  std::ranges::transform(comparison.gone, std::back_inserter(texts), GoneText);
  std::ranges::transform(comparison.added, std::back_inserter(texts), NewText);
  return texts;
}

std::string ComparisonSentence(const Comparison& comparison) {
  return SentenceOfBoth(comparison) + OneSidedCounts(comparison);
}

Table ComparisonTable(const Comparison& comparison) {
  Table table{.header = {"benchmark", "verdict", "baseline", "subject", "cost ratio", "detectable",
                         "rounds", "counters and bits"}};
  for (const BenchComparison* c : ByConcern(comparison)) {
    std::string texts;
    for (const std::string& text : CounterTexts(*c)) texts += (texts.empty() ? "" : "; ") + text;
    const bool measured = c->rounds > 0;
    table.rows.push_back(
        {c->name, VerdictText(*c), measured ? ValueText(c->baseline, c->unit) : "-",
         measured ? ValueText(c->subject, c->unit) : "-",
         measured ? fmt::format("{:.3f}{}", c->ratio, c->by_limit ? " of the limit" : "") : "-",
         measured ? fmt::format("{} %", PercentText(c->detectable)) : "-", RoundsText(*c),
         texts.empty() ? "equal" : texts});
  }
  return table;
}

std::vector<std::string> ComparisonNotes(const Comparison& comparison) {
  const ComparisonOptions& options = comparison.options;
  const BenchMachine& machine = comparison.subject.machine;
  std::vector<std::string> notes = {
      fmt::format("Baseline: {}. Subject: {}.", BuildText(comparison.baseline),
                  BuildText(comparison.subject)),
      MachineNote(machine),
      fmt::format("Intervals in brackets. Equal builds are called slower or faster in at most one "
                  "of {:.0f} comparisons; within {} % counts as the same. Detectable is the least "
                  "excess that so many rounds find four times in five.",
                  1 / options.alpha, PercentText(options.within))};
  if (!comparison.interleaved) {
    notes.push_back(
        "The two were not measured in turns: what the machine did in one session and not in the "
        "other is part of the ratios.");
  }
  if (comparison.baseline.machine.Fingerprint() != machine.Fingerprint()) {
    notes.push_back(fmt::format("The baseline was measured on another machine: {}.",
                                comparison.baseline.machine.processor));
  }
  const bool left =
      std::ranges::any_of(comparison.benchmarks, [](const auto& c) { return c.rounds_left > 0; });
  if (left) {
    notes.push_back(
        "Rounds in which the machine changed (bandwidth, barrier, other load, steal) are left "
        "out.");
  }
  return notes;
}

}  // namespace lockstep
