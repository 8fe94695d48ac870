// Runs the commands of the documentation in a folder that looks like the tree to them.
#ifndef LOCKSTEP_CI_DOC_COMMANDS_TRIAL_H_
#define LOCKSTEP_CI_DOC_COMMANDS_TRIAL_H_

#include <string>

#include "ci/doc_commands/rules.h"

namespace lockstep {

class DocScratch {
 public:
  // `folder` is emptied. In it stand a copy of docs/, links to the other folders and files of
  // `root`, `build/gate` as a link to the build folder `bin`, and a repository of its own with one
  // commit, so that a command which writes or asks git leaves the tree alone. Throws Error when the
  // folder cannot be made.
  DocScratch(const std::string& folder, const std::string& root, const std::string& bin);

  struct End {
    std::string fault = {};  // empty: it did what its rule asks
    std::string log = {};    // file with all that it printed
    double seconds = 0;
  };

  // By bash, with `bin` first in the PATH and no input, for two minutes at most.
  End Run(const std::string& line, const DocRule& rule) const;

 private:
  std::string folder_;
  std::string bin_;
};

// The command of each entry of ctest in a build folder, by name. Throws Error when ctest does not
// tell.
std::map<std::string, std::string> TestCommands(const std::string& bin);

}  // namespace lockstep

#endif  // LOCKSTEP_CI_DOC_COMMANDS_TRIAL_H_
