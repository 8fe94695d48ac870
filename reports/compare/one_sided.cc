#include "reports/compare/one_sided.h"

#include <fmt/format.h>

#include <algorithm>

#include "caches/error.h"
#include "reports/compare_report.h"
#include "reports/statistics.h"

namespace lockstep {
namespace {

constexpr char kPart = '#';  // between a benchmark and its part, in a name
constexpr const char* kDigest = "digest";

enum class Looking : uint8_t { kAtNames, kAtParts };

// "1.83 ms; bytes 64, instructions 1000".
std::string ResultText(const BenchResult& result) {
  std::vector<double> values;
  for (const BenchSample& sample : result.samples) values.push_back(sample.value);
  std::string text = values.empty() ? "" : ValueText(Quantile(values, 0.5), result.unit);
  const char* between = text.empty() ? "" : "; ";
  for (const auto& [name, value] : result.counters) {
    text += fmt::format("{}{} {:.15g}", between, name, value);
    between = ", ";
  }
  return text;
}

// Enough of a digest to tell it from others.
std::string DigestText(const std::string& digest) { return digest.substr(0, 16); }

// What `one` has and `other` lacks.
std::vector<OneSided> Missing(const BenchRun& one, const BenchRun& other, Looking looking) {
  std::vector<OneSided> missing;
  for (const BenchResult& result : one.benchmarks) {
    const BenchResult* same = other.Find(result.name);
    if (same == nullptr) {
      missing.push_back({.benchmark = result.name, .text = ResultText(result)});
      continue;
    }
    if (looking == Looking::kAtNames) continue;
    for (const auto& [name, value] : result.counters) {
      if (same->counters.contains(name)) continue;
      missing.push_back(
          {.benchmark = result.name, .part = name, .text = fmt::format("{:.15g}", value)});
    }
    if (!result.digest.empty() && same->digest.empty()) {
      missing.push_back(
          {.benchmark = result.name, .part = kDigest, .text = DigestText(result.digest)});
    }
  }
  return missing;
}

// What one side alone counts would otherwise be a gate that is switched off unseen.
void Refuse(const OneSided& missing, const char* in, const char* from, const char* flag) {
  const std::string listed = fmt::format("or say that it is meant: {} '{}'", flag, missing.Name());
  if (missing.part.empty()) {
    throw Error({fmt::format("benchmark '{}'", missing.benchmark),
                 fmt::format("is missing in the {}", from),
                 "give both sides the same benchmarks, with a filter if it has to be, " + listed});
  }
  throw Error({fmt::format("benchmark '{}'", missing.benchmark),
               fmt::format("has {} in the {} alone",
                           missing.part == kDigest ? "a digest"
                                                   : fmt::format("the counter '{}'", missing.part),
                           in),
               "measure both sides alike, leave the benchmark out with a filter, " + listed});
}

// A name in the options that is missing nowhere: a word for it was mistyped, or it is there again.
// Names of parts are known to be none only where parts are looked at, or the benchmark is no
// common one.
void CheckListed(const std::set<std::string>& listed, const std::vector<OneSided>& missing,
                 const BenchRun& one, const BenchRun& other, Looking looking, const char* flag) {
  for (const std::string& name : listed) {
    if (std::ranges::find(missing, name, &OneSided::Name) != missing.end()) continue;
    const std::string benchmark = name.substr(0, name.rfind(kPart));
    const bool part = benchmark != name;
    const bool common = one.Find(benchmark) != nullptr && other.Find(benchmark) != nullptr;
    if (looking == Looking::kAtNames && part && common) continue;
    std::string all;
    for (const OneSided& each : missing) all += (all.empty() ? "" : ", ") + each.Name();
    throw Error({fmt::format("{} '{}'", flag, name), "is of no side alone",
                 all.empty() ? "leave it out: nothing is" : "these are: " + all});
  }
}

void CheckUnits(const BenchRun& baseline, const BenchRun& subject) {
  bool any = false;
  for (const BenchResult& result : baseline.benchmarks) {
    const BenchResult* same = subject.Find(result.name);
    if (same == nullptr) continue;
    any = true;
    if (same->unit == result.unit && same->direction == result.direction) continue;
    throw Error(
        {fmt::format("benchmark '{}'", result.name),
         fmt::format("is in {}, {} is better, but in the subject in {}, {} is better", result.unit,
                     DirectionName(result.direction), same->unit, DirectionName(same->direction)),
         "measure both sides alike"});
  }
  if (any) return;
  throw Error({"comparison", "there is no benchmark that both sides have",
               "measure some, or widen the filter"});
}

void FindOneSided(const BenchRun& baseline, const BenchRun& subject,
                  const ComparisonOptions& options, Looking looking, std::vector<OneSided>* added,
                  std::vector<OneSided>* gone) {
  *gone = Missing(baseline, subject, looking);
  for (const OneSided& each : *gone) {
    if (!options.gone.contains(each.Name())) Refuse(each, "baseline", "subject", "--gone");
  }
  *added = Missing(subject, baseline, looking);
  for (const OneSided& each : *added) {
    const bool allowed = options.subject_is_newer || options.added.contains(each.Name());
    if (!allowed) Refuse(each, "subject", "baseline", "--new");
  }
  CheckListed(options.gone, *gone, baseline, subject, looking, "--gone");
  CheckListed(options.added, *added, baseline, subject, looking, "--new");
  CheckUnits(baseline, subject);
}

}  // namespace

std::string OneSided::Name() const { return part.empty() ? benchmark : benchmark + kPart + part; }

void CheckNames(const BenchRun& baseline, const BenchRun& subject,
                const ComparisonOptions& options) {
  std::vector<OneSided> added, gone;
  FindOneSided(baseline, subject, options, Looking::kAtNames, &added, &gone);
}

void CheckSides(const BenchRun& baseline, const BenchRun& subject,
                const ComparisonOptions& options) {
  std::vector<OneSided> added, gone;
  FindOneSided(baseline, subject, options, Looking::kAtParts, &added, &gone);
}

namespace internal {

void SplitSides(const BenchRun& baseline, const BenchRun& subject, const ComparisonOptions& options,
                Comparison* out) {
  FindOneSided(baseline, subject, options, Looking::kAtParts, &out->added, &out->gone);
}

}  // namespace internal
}  // namespace lockstep
