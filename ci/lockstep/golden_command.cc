// lockstep golden: recorded digests of scenarios, and what became of them.
#include <fmt/format.h>

#include <cstdlib>

#include "ci/lockstep/commands.h"
#include "ci/lockstep/golden_commands.h"
#include "ci/lockstep/model_source.h"
#include "ci/lockstep/shell_word.h"

namespace lockstep::cli {

std::vector<Flag> GoldenFlags::Flags() {
  return {{"--folder", "FOLDER", "the cases", &tree.folder},
          {"--pending-dir", "FOLDER", "pending files go here instead of beside the golden files",
           &tree.pending_dir}};
}

std::string GoldenFlags::CommandLine() const {
  std::string line;
  if (tree.folder != GoldenTree().folder) {
    line += fmt::format(" --folder {}", ShellWord(tree.folder));
  }
  if (!tree.pending_dir.empty()) {
    line += fmt::format(" --pending-dir {}", ShellWord(tree.pending_dir));
  }
  return line;
}

std::string ModelsFolder() {
  const char* chosen = std::getenv("LOCKSTEP_MODELS");
  return chosen != nullptr && *chosen != '\0' ? chosen : LOCKSTEP_MODELS_DEFAULT;
}

Command GoldenCommand() {
  return {.name = "golden",
          .summary =
              "Recorded digests of scenarios: check, explain, review, accept, reject, list, show",
          .flags = {},
          .run = {},
          .subcommands = {GoldenCheckCommand(), GoldenExplainCommand(), GoldenReviewCommand(),
                          GoldenAcceptCommand(), GoldenRejectCommand(), GoldenListCommand(),
                          GoldenShowCommand()}};
}

}  // namespace lockstep::cli
