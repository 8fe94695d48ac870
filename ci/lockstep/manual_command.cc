// lockstep manual and lockstep completion: what the program knows of its own command line, for man
// and for shells.
#include <fmt/format.h>

#include <memory>

#include "caches/error.h"
#include "ci/lockstep/commands.h"
#include "ci/lockstep/manual.h"

namespace lockstep::cli {

Command ManualCommand() {
  return {.name = "manual",
          .summary = "Print the manual page of lockstep, for man -l -",
          .flags = {},
          .run = [] {
            fmt::print("{}", ManualPage(AllCommands()));
            return ExitCode::kHolds;
          }};
}

Command CompletionCommand() {
  const auto shell = std::make_shared<std::string>();
  return {.name = "completion",
          .summary = "Print what makes a shell complete lockstep's commands and flags",
          .flags = {{"shell", "SHELL", "bash or fish", shell.get(), true}},
          .run =
              [shell] {
                if (*shell == "bash") {
                  fmt::print("{}", BashCompletion(AllCommands()));
                } else if (*shell == "fish") {
                  fmt::print("{}", FishCompletion(AllCommands()));
                } else {
                  throw Error({"completion", fmt::format("there is none for '{}'", *shell),
                               "one of bash, fish; zsh reads bash's after autoload -U "
                               "bashcompinit && bashcompinit"});
                }
                return ExitCode::kHolds;
              },
          .details =
              "bash: source <(lockstep completion bash)\n"
              "fish: lockstep completion fish | source"};
}

}  // namespace lockstep::cli
