// From the command line to an exit code.
#ifndef LOCKSTEP_CI_LOCKSTEP_CLI_H_
#define LOCKSTEP_CI_LOCKSTEP_CLI_H_

#include <span>
#include <string>
#include <vector>

#include "ci/lockstep/command.h"

namespace lockstep::cli {

// A program with subcommands, as its help names it.
struct Program {
  std::string_view name = "lockstep";
  std::string_view summary = "Deterministic testing and verification for LLM KV caches.";
};

// Reads `args` (without the program's name), fills in the flags of the command that they name and
// runs it. Nothing is thrown: each failure becomes one line on standard error, "PROGRAM: error:
// where: what (remedy)", and the exit code that belongs to it. Help goes to standard output.
int Main(std::span<const Command> commands, const std::vector<std::string>& args,
         const Program& program = {});

// The version of the library that reads the command line, for `lockstep doctor`.
std::string CommandLineLibrary();

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_CLI_H_
