// Commands as a manual page and as completions of shells.
#ifndef LOCKSTEP_CI_LOCKSTEP_MANUAL_H_
#define LOCKSTEP_CI_LOCKSTEP_MANUAL_H_

#include <span>
#include <string>

#include "ci/lockstep/command.h"

namespace lockstep::cli {

// lockstep(1) in the man macros of roff (man(7)).
std::string ManualPage(std::span<const Command> commands);

// A script that defines and registers a completion: subcommands, then the flags of the one that is
// on the line, file names after a flag that takes a value.
std::string BashCompletion(std::span<const Command> commands);
std::string FishCompletion(std::span<const Command> commands);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_MANUAL_H_
