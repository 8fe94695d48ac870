// A subcommand as data: what it is called, which flags it takes, and the function that does it.
//
// Commands know nothing of the library that reads the command line; cli.cc alone does, because it
// is slow to compile. A new subcommand is one file with a `Command XxxCommand()` and one line in
// commands.h.
#ifndef LOCKSTEP_CI_LOCKSTEP_COMMAND_H_
#define LOCKSTEP_CI_LOCKSTEP_COMMAND_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep::cli {

// What every subcommand answers with, and `lockstep` exits with.
enum class ExitCode : int {
  kHolds = 0,
  kDifference = 1,    // a difference or a regression was found
  kWrongUse = 2,      // wrong use, or something outside that cannot be read or written
  kInconclusive = 3,  // nothing was proved
  kInternal = 4,      // an exception that nobody foresaw: a bug of lockstep
};

// A whole number of [low, high] in decimal, checked as the command line is read.
struct IntTarget {
  int32_t* value = nullptr;
  int32_t low = 0;
  int32_t high = INT32_MAX;
};

struct Flag {
  std::string_view names;  // "-n,--decode"; without '-' it has its place, not a name, on the line
  std::string_view value;  // what the help calls its value: "FILE"; "" for a switch
  std::string_view help;
  // Where the value goes; what stands there at first is the default. A vector takes one value each
  // time the flag is given, or all words of the line that are left. A uint64_t is a seed: decimal,
  // or hexadecimal after "0x".
  std::variant<bool*, std::string*, std::vector<std::string>*, IntTarget, uint64_t*> target;
  bool required = false;
};

struct Command {
  std::string_view name;
  std::string_view summary;  // one line, no full stop
  std::vector<Flag> flags;   // targets live as long as `run`
  std::function<ExitCode()> run;
  std::string details = {};               // what the help says after the flags
  std::vector<Command> subcommands = {};  // instead of flags and run: the next word names one
};

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_COMMAND_H_
