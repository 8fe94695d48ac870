// The commands that a page in Markdown tells its readers to type.
#ifndef LOCKSTEP_CI_DOC_COMMANDS_MARKDOWN_H_
#define LOCKSTEP_CI_DOC_COMMANDS_MARKDOWN_H_

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct DocCommand {
  std::string page;  // path below the root of the tree
  int line = 0;      // of its first line, from 1
  std::string text;  // on one line, without its comment
  friend bool operator==(const DocCommand&, const DocCommand&) = default;
};

// In order: each line of a fenced block marked "sh" or "bash", and of other fenced blocks the lines
// that begin with "$ ". A line that ends with a backslash goes on in the next one. A "#" that
// begins a word outside quotes begins a comment. Outside blocks a row of a table whose first cell
// is code and nothing else, and begins with "ci/" or "build/gate/", gives that.
std::vector<DocCommand> CommandsOf(const std::string& page, std::string_view text);

// The commands of every *.md below `root`, by path; not of folders whose names begin with a dot
// (but .github) or that are named "build". Throws Error for what cannot be read.
std::vector<DocCommand> CommandsBelow(const std::string& root);

}  // namespace lockstep

#endif  // LOCKSTEP_CI_DOC_COMMANDS_MARKDOWN_H_
