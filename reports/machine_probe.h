// The state of the machine, asked again and again between samples: a few milliseconds each time.
#ifndef LOCKSTEP_REPORTS_MACHINE_PROBE_H_
#define LOCKSTEP_REPORTS_MACHINE_PROBE_H_

#include "engine/stopwatch.h"
#include "reports/limits.h"
#include "reports/results.h"

namespace lockstep {

class MachineProbe {
 public:
  MachineProbe();

  // Now. The load is that since half a second ago or more, as the system counts in coarse steps.
  MachineState Measure();

 private:
  MachineLimits limits_;
  LoadMeter load_;
  Stopwatch since_load_;
  MachineState last_;
};

// What stands beside a sample taken between two states: geometric means, so that a change in the
// meantime looks like neither regime.
MachineState Between(const MachineState& before, const MachineState& after);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_MACHINE_PROBE_H_
