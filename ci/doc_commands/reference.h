// docs/reference.md against the program and the tree: what it has to name, and what it does not.
#ifndef LOCKSTEP_CI_DOC_COMMANDS_REFERENCE_H_
#define LOCKSTEP_CI_DOC_COMMANDS_REFERENCE_H_

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct ReferenceNeeds {
  std::map<std::string, std::string> commands = {};  // "lockstep golden check" and its summary
  std::set<std::string> scripts = {};                // "ci/build"
  std::set<std::string> keys = {};                   // of GGUF metadata that the engine reads
};

// Of the manual page (`lockstep manual`): each command with its summary.
std::map<std::string, std::string> CommandsOfManual(std::string_view manual);

// Below the folders of the root that are named: each file that begins with "#!", as paths from it.
std::set<std::string> ScriptsBelow(const std::string& root, const std::set<std::string>& folders);

// The metadata keys in a C++ source: literals like "attention.head_count" that begin as one of the
// format's groups does, and that are no tensor's name.
std::set<std::string> KeysIn(std::string_view source);

// What is wrong with the page, a sentence each: a command or script without its row or with a row
// though it is not there, a summary that is not the program's, a key that is not named, a link to
// a file below `root` that does not exist. `page` is the path of the page below the root.
std::vector<std::string> ReferenceFaults(std::string_view text, const std::string& page,
                                         const std::string& root, const ReferenceNeeds& needs);

}  // namespace lockstep

#endif  // LOCKSTEP_CI_DOC_COMMANDS_REFERENCE_H_
