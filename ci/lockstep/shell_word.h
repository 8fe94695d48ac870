// Words of a command line that somebody will paste into a shell.
#ifndef LOCKSTEP_CI_LOCKSTEP_SHELL_WORD_H_
#define LOCKSTEP_CI_LOCKSTEP_SHELL_WORD_H_

#include <string>

namespace lockstep::cli {

// `text` as one word of a POSIX shell.
std::string ShellWord(const std::string& text);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_SHELL_WORD_H_
