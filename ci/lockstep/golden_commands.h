// The subcommands of `lockstep golden`, and the flags that they share.
#ifndef LOCKSTEP_CI_LOCKSTEP_GOLDEN_COMMANDS_H_
#define LOCKSTEP_CI_LOCKSTEP_GOLDEN_COMMANDS_H_

#include <string>
#include <vector>

#include "ci/lockstep/command.h"
#include "golden/store.h"

namespace lockstep::cli {

Command GoldenAcceptCommand();
Command GoldenCheckCommand();
Command GoldenExplainCommand();
Command GoldenListCommand();
Command GoldenRejectCommand();
Command GoldenReviewCommand();
Command GoldenShowCommand();

// Which tree of cases a subcommand works on.
struct GoldenFlags {
  GoldenTree tree;

  // --folder and --pending-dir, bound to this object.
  std::vector<Flag> Flags();

  // The flags that choose the same tree again, for a shell, each behind a blank.
  std::string CommandLine() const;
};

// The folder of model files: LOCKSTEP_MODELS, or the build's default.
std::string ModelsFolder();

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_GOLDEN_COMMANDS_H_
