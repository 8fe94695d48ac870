#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "caches/check.h"
#include "caches/error.h"
#include "caches/random.h"
#include "reports/compare_session.h"

namespace lockstep {
namespace {

constexpr int32_t kInNoRound = -1;

class Session {
 public:
  Session(BenchRun baseline, BenchRun subject, const std::vector<std::string>& names,
          const MeasureFunction& measure, const SessionOptions& options)
      : baseline_(std::move(baseline)),
        subject_(std::move(subject)),
        measure_(measure),
        options_(options),
        random_(Random(options.comparison.seed).Split(1)) {
    LS_CHECK(!names.empty(), "a session without benchmarks");
    for (BenchRun* run : {&baseline_, &subject_}) {
      std::vector<BenchResult> results;
      for (const std::string& name : names) results.push_back({.name = name});
      results.insert(results.end(), run->benchmarks.begin(), run->benchmarks.end());
      run->benchmarks = std::move(results);
    }
    decided_.resize(names.size());
    subject_first_.resize(names.size());
  }

  Comparison Run() {
    for (size_t i = decided_.size(); i < subject_.benchmarks.size(); ++i) {
      Report(subject_.benchmarks[i].name);
      MeasureOnce(CompareSide::kSubject, i, kInNoRound);
    }
    int32_t next_look = options_.until_decided ? options_.first_look : options_.rounds_max;
    for (round_ = 0; round_ < options_.rounds_max && (round_ == 0 || !OutOfTime());) {
      MeasureRound();
      // What one side alone counts is refused before minutes have gone by.
      if (++round_ == 1) CheckSides(baseline_, subject_, options_.comparison);
      if (round_ < next_look) continue;
      Look();
      next_look += (next_look + 1) / 2;
      if (options_.until_decided && CountDecided() == decided_.size()) break;
    }
    if (last_look_ < round_ || round_ == 0) Look();
    return std::move(result_);
  }

 private:
  bool OutOfTime() const { return options_.out_of_time && options_.out_of_time(); }

  size_t CountDecided() const {
    return static_cast<size_t>(std::ranges::count_if(
        decided_, [](const auto& d) { return d.verdict != BenchVerdict::kInconclusive; }));
  }

  void Report(const std::string& measuring) const {
    if (!options_.on_progress) return;
    options_.on_progress({.round = round_ + 1,
                          .decided = CountDecided(),
                          .benchmarks = decided_.size(),
                          .measuring = measuring});
  }

  // A round is whole for every benchmark or is not there for it: time is looked at before each.
  void MeasureRound() {
    for (size_t i = 0; i < decided_.size(); ++i) {
      const bool done = decided_[i].verdict != BenchVerdict::kInconclusive;
      // One whole round of every benchmark, however little time there is: a name must not vanish.
      if (done || (round_ > 0 && OutOfTime())) continue;
      Report(baseline_.benchmarks[i].name);
      const bool subject_first = round_ % 2 == 0 ? random_.Below(2) == 1 : !subject_first_[i];
      subject_first_[i] = subject_first;
      const CompareSide outer = subject_first ? CompareSide::kSubject : CompareSide::kBaseline;
      const CompareSide inner = subject_first ? CompareSide::kBaseline : CompareSide::kSubject;
      for (const CompareSide side : {outer, inner, inner, outer}) MeasureOnce(side, i, round_);
    }
  }

  void MeasureOnce(CompareSide side, size_t index, int32_t round) {
    BenchRun& run = side == CompareSide::kBaseline ? baseline_ : subject_;
    BenchResult& result = run.benchmarks[index];
    Measured measured = measure_(side, result.name);
    measured.sample.round = round;
    if (result.samples.empty()) {
      result.unit = measured.unit;
      result.direction = measured.direction;
      result.counters = measured.counters;
      result.digest = measured.digest;
      result.bound = measured.bound;
      result.limit_of = measured.limit_of;
    } else if (result.digest != measured.digest || result.counters != measured.counters) {
      throw Error({fmt::format("benchmark '{}' of the {}", result.name,
                               side == CompareSide::kBaseline ? "baseline" : "subject"),
                   "computes other bits, or counts otherwise, in another round",
                   "repair it first: equal inputs have to give equal bits and counts"});
    }
    result.samples.push_back(measured.sample);
  }

  void Look() {
    ComparisonOptions options = options_.comparison;
    if (options_.until_decided) options.look = ++looks_;
    result_ = Compare(baseline_, subject_, options);
    for (size_t i = 0; i < decided_.size(); ++i) {
      const bool done = decided_[i].verdict != BenchVerdict::kInconclusive;
      if (done) {
        result_.benchmarks[i] = decided_[i];
      } else {
        decided_[i] = result_.benchmarks[i];
      }
    }
    last_look_ = round_;
  }

  BenchRun baseline_, subject_;
  const MeasureFunction& measure_;
  const SessionOptions& options_;
  // Which side comes first, drawn for two rounds of a benchmark: a place in the round that costs
  // more (the first, or those after the other side) then does so to both sides equally often.
  Random random_;
  std::vector<bool> subject_first_;  // in the last round, of each
  int32_t round_ = 0, looks_ = 0, last_look_ = 0;
  std::vector<BenchComparison> decided_;  // as of the last look
  Comparison result_;
};

}  // namespace

Comparison RunSession(BenchRun baseline, BenchRun subject, const std::vector<std::string>& names,
                      const MeasureFunction& measure, const SessionOptions& options) {
  return Session(std::move(baseline), std::move(subject), names, measure, options).Run();
}

}  // namespace lockstep
