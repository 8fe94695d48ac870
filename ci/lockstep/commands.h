// The subcommands of `lockstep`: a line each here and in the list below.
#ifndef LOCKSTEP_CI_LOCKSTEP_COMMANDS_H_
#define LOCKSTEP_CI_LOCKSTEP_COMMANDS_H_

#include <vector>

#include "ci/lockstep/command.h"

namespace lockstep::cli {

Command GateCommand();
Command RunCommand();
Command ChatCommand();
Command BatchCommand();
Command VerifyCommand();
Command ConformCommand();
Command ReplayCommand();
Command FuzzCommand();
Command DoctorCommand();
Command DeviceCheckCommand();
Command SynthCommand();
Command BenchCommand();
Command GoldenCommand();
Command MergeCommand();
Command ReportCommand();
Command PeerCommand();
Command ManualCommand();
Command CompletionCommand();

inline std::vector<Command> AllCommands() {
  return {GateCommand(),   RunCommand(),       ChatCommand(),        BatchCommand(),
          VerifyCommand(), ConformCommand(),   ReplayCommand(),      FuzzCommand(),
          DoctorCommand(), PeerCommand(),      DeviceCheckCommand(), SynthCommand(),
          BenchCommand(),  GoldenCommand(),    MergeCommand(),       ReportCommand(),
          ManualCommand(), CompletionCommand()};
}

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_COMMANDS_H_
