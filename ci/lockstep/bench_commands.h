// The subcommands of `lockstep bench` that are files of their own: a line each here and in
// bench_command.cc.
#ifndef LOCKSTEP_CI_LOCKSTEP_BENCH_COMMANDS_H_
#define LOCKSTEP_CI_LOCKSTEP_BENCH_COMMANDS_H_

#include "ci/lockstep/command.h"

namespace lockstep::cli {

Command BenchCompareCommand();
Command BenchHistoryCommand();
Command BenchSchemaCommand();

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_BENCH_COMMANDS_H_
