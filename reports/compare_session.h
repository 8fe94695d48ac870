// Measures two builds in turns until every benchmark is decided, or time is up.
#ifndef LOCKSTEP_REPORTS_COMPARE_SESSION_H_
#define LOCKSTEP_REPORTS_COMPARE_SESSION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "reports/comparison.h"

namespace lockstep {

// One measurement of one benchmark of one build.
struct Measured {
  BenchSample sample;  // the session sets its round
  std::string unit = "s";
  Direction direction = Direction::kLowerIsBetter;
  std::map<std::string, double> counters = {};
  std::string digest = {};
  std::string bound = {};
  std::string limit_of = {};
};

enum class CompareSide { kBaseline, kSubject };
using MeasureFunction = std::function<Measured(CompareSide side, const std::string& benchmark)>;

struct SessionProgress {
  int32_t round = 0;  // from 1
  size_t decided = 0;
  size_t benchmarks = 0;
  std::string measuring = {};  // the benchmark; empty at the end of a round
};

struct SessionOptions {
  ComparisonOptions comparison;  // `look` is the session's
  // Rounds after which the samples are looked at: the first, and each next one after half as many
  // again. A round measures each side twice.
  int32_t first_look = 8;
  int32_t rounds_max = 64;
  bool until_decided = true;  // false: rounds_max rounds, looked at once
  std::function<bool()> out_of_time = {};
  std::function<void(const SessionProgress&)> on_progress = {};
};

// `baseline` and `subject` say what is measured; their benchmarks are filled with `names`. What is
// in them already is of one side alone, as the options have to allow: the subject's is measured
// once, so that it has run, the baseline's never. A benchmark that is decided is not measured any
// further, and keeps its verdict. At the end of time the samples are looked at once more. Throws
// Error when a benchmark computes other bits, or counts otherwise, in another round on the same
// side; and as Compare does, after the first round. REQUIRES: names.
Comparison RunSession(BenchRun baseline, BenchRun subject, const std::vector<std::string>& names,
                      const MeasureFunction& measure, const SessionOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_COMPARE_SESSION_H_
