// A shared machine on which measured times are made up, for tests of the comparison: seeded, and
// worse than most. Times drift, two regimes of the machine alternate (other cores, other
// tenants), single measurements are interrupted, and every measurement has its own noise.
#ifndef LOCKSTEP_REPORTS_COMPARE_NOISE_MACHINE_H_
#define LOCKSTEP_REPORTS_COMPARE_NOISE_MACHINE_H_

#include <cmath>

#include "caches/random.h"
#include "reports/results.h"

namespace lockstep::internal {

struct NoiseOptions {
  double own = 0.015;           // standard deviation of one measurement, relative
  double drift = 0.004;         // of the step between neighbours, added up
  double trend = 0;             // of every step, added up, and never comes back
  double interrupted = 0.05;    // share of measurements that take up to three times as long
  double regime_change = 0.02;  // probability between neighbours
  double slow_regime = 1.8;     // factor; the state beside a sample shows it
  double state = 0.02;          // standard deviation of what is stated, relative
  double state_outliers = 0;    // share of stated barrier latencies that are up to ten times larger
};

class NoiseMachine {
 public:
  NoiseMachine(Random random, const NoiseOptions& options) : random_(random), options_(options) {}

  // What takes `seconds` on a quiet machine.
  BenchSample Measure(double seconds) {
    if (Uniform() < options_.regime_change) slow_ = !slow_;
    level_ += options_.drift * Normal();
    level_ *= 0.98;  // comes back
    trend_ += options_.trend;
    double factor = std::exp(level_ + trend_ + options_.own * Normal());
    if (slow_) factor *= options_.slow_regime;
    if (Uniform() < options_.interrupted) factor *= 1 + 2 * Uniform();
    const auto stated = [&](double value) { return value * std::exp(options_.state * Normal()); };
    const double jump = Uniform() < options_.state_outliers ? 1 + 9 * Uniform() : 1;
    return {.value = seconds * factor,
            .state = {.read_bandwidth_one = stated(slow_ ? 2.2e10 : 4e10),
                      .barrier_seconds = jump * stated(slow_ ? 6e-7 : 3e-7),
                      .others = 0.02 * Uniform()}};
  }

 private:
  double Uniform() { return static_cast<double>(random_.Next() >> 11) * 0x1p-53; }

  // Of variance 1, a sum of uniform numbers: its tails do not matter here.
  double Normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += Uniform();
    return sum;
  }

  Random random_;
  NoiseOptions options_;
  double level_ = 0, trend_ = 0;
  bool slow_ = false;
};

}  // namespace lockstep::internal

#endif  // LOCKSTEP_REPORTS_COMPARE_NOISE_MACHINE_H_
