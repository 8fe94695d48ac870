// lockstep: one command for everything that the harness does. `lockstep --help` lists it.
#include <string>
#include <vector>

#include "ci/lockstep/cli.h"
#include "ci/lockstep/commands.h"

int main(int argc, char** argv) {
  return lockstep::cli::Main(lockstep::cli::AllCommands(),
                             std::vector<std::string>(argv + 1, argv + argc));
}
