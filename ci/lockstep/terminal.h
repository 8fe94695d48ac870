// Single keys and lines from the terminal of the one who runs a command.
#ifndef LOCKSTEP_CI_LOCKSTEP_TERMINAL_H_
#define LOCKSTEP_CI_LOCKSTEP_TERMINAL_H_

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::cli {

// Whether standard input and standard output are both a terminal.
bool HasTerminal();

// Waits for a key and returns its byte; kEscape for keys that send several, such as arrows. Nothing
// at the end of input. The terminal reads single keys only while this waits: it is as it was before
// when this returns, when a signal ends the process, and while one stops it. REQUIRES: HasTerminal.
inline constexpr char kEscape = '\x1b';
std::optional<char> ReadKey();

// Prints `prompt` and waits for a line, which the terminal lets its user edit. Without its end, and
// without blanks at its begin and end. Nothing at the end of input.
std::optional<std::string> ReadTerminalLine(std::string_view prompt);

// A line of standard input, whatever that is, without its end. Nothing at the end of input.
std::optional<std::string> ReadInputLine();

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_TERMINAL_H_
