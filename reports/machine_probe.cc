#include "reports/machine_probe.h"

#include <algorithm>
#include <cmath>

#include "engine/thread_team.h"

namespace lockstep {
namespace {

constexpr double kLoadSeconds = 0.5;

std::optional<double> Mean(const std::optional<double>& a, const std::optional<double>& b) {
  return a && b ? std::sqrt(*a * *b) : std::optional<double>();
}

std::optional<double> Larger(const std::optional<double>& a, const std::optional<double>& b) {
  return a && b ? std::max(*a, *b) : std::optional<double>();
}

}  // namespace

MachineProbe::MachineProbe()
    : limits_({.read_bytes = int64_t{64} << 20, .seconds = 1e-3, .attempts = 2}) {}

MachineState MachineProbe::Measure() {
  last_.read_bandwidth_one = limits_.ReadBandwidth(1);
  if (UsableCpus() > 1) last_.read_bandwidth_all = limits_.ReadBandwidth(UsableCpus());
  last_.barrier_seconds = limits_.BarrierLatency();
  if (since_load_.seconds() >= kLoadSeconds) {
    const std::optional<ForeignLoad> load = load_.Load();
    if (load) {
      last_.others = load->others;
      last_.steal = std::clamp(load->steal, 0.0, 1.0);
    }
    load_ = LoadMeter();
    since_load_ = Stopwatch();
  }
  return last_;
}

MachineState Between(const MachineState& before, const MachineState& after) {
  return {.read_bandwidth_one = Mean(before.read_bandwidth_one, after.read_bandwidth_one),
          .read_bandwidth_all = Mean(before.read_bandwidth_all, after.read_bandwidth_all),
          .barrier_seconds = Mean(before.barrier_seconds, after.barrier_seconds),
          .others = Larger(before.others, after.others),
          .steal = Larger(before.steal, after.steal)};
}

}  // namespace lockstep
