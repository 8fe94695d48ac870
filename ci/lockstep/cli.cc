#include "ci/lockstep/cli.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Version.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <deque>
#include <new>

#include "caches/error.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kExitCodes =
    "Exit codes: 0 holds, 1 a difference was found, 2 wrong use or unreadable input,\n"
    "3 inconclusive, 4 an internal error.";

// The whole of `text` as a number; `base` 10 or 16. False for anything else: blanks, signs that the
// type does not have, fractions, overflow.
template <typename Number>
bool ParseWhole(std::string_view text, int base, Number* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, base);
  return error == std::errc() && end == text.data() + text.size();
}

void StoreInt(std::string_view names, const std::string& text, const IntTarget& target) {
  int32_t value = 0;
  if (!ParseWhole(text, 10, &value) || value < target.low || value > target.high) {
    throw Error(
        {std::string(names),
         fmt::format("'{}' is no whole number from {} to {}", text, target.low, target.high),
         "give one in decimal"});
  }
  *target.value = value;
}

void StoreSeed(std::string_view names, const std::string& text, uint64_t* target) {
  const bool hex = text.starts_with("0x");
  if (!ParseWhole(std::string_view(text).substr(hex ? 2 : 0), hex ? 16 : 10, target)) {
    throw Error({std::string(names), fmt::format("'{}' is no seed of 64 bits", text),
                 "give a whole number in decimal, or in hexadecimal after 0x"});
  }
}

// A flag of a command as CLI11 knows it. What CLI11 would decide itself is decided in Finish, once
// it accepted the whole line: its own conversions of numbers take fractions, octals and numbers
// that wrap, and it names an absent flag where a misspelt one is the trouble.
struct BoundFlag {
  const Program* program;
  const Command* command;
  const Flag* flag;
  const CLI::Option* option = nullptr;
  std::string number = {};  // the text of a number

  void Finish() const {
    if (option->count() == 0) {
      if (!flag->required) return;
      throw Error({std::string(flag->names), "is not given",
                   fmt::format("see {} {} --help", program->name, command->name)});
    }
    if (const auto* target = std::get_if<IntTarget>(&flag->target)) {
      StoreInt(flag->names, number, *target);
    } else if (const auto* seed = std::get_if<uint64_t*>(&flag->target)) {
      StoreSeed(flag->names, number, *seed);
    }
  }
};

// What the help says of the value that stands when the flag is not given.
std::string DefaultText(const Flag& flag) {
  if (flag.required) return " (required)";
  if (const auto* target = std::get_if<IntTarget>(&flag.target)) {
    // A number that nobody may give stands for what the help says itself.
    if (*target->value < target->low) return "";
    return fmt::format(" (default: {})", *target->value);
  }
  if (uint64_t* const* seed = std::get_if<uint64_t*>(&flag.target)) {
    return fmt::format(" (default: {})", **seed);
  }
  std::string* const* text = std::get_if<std::string*>(&flag.target);
  return text == nullptr || (*text)->empty() ? "" : fmt::format(" (default: {})", **text);
}

void AddFlag(BoundFlag* bound, CLI::App* app) {
  const Flag& flag = *bound->flag;
  const std::string names(flag.names);
  const std::string help = std::string(flag.help) + DefaultText(flag);
  if (bool* const* value = std::get_if<bool*>(&flag.target)) {
    bound->option = app->add_flag(names, **value, help);
    return;
  }
  CLI::Option* option = nullptr;
  if (std::string* const* value = std::get_if<std::string*>(&flag.target)) {
    option = app->add_option(names, **value, help);
  } else if (auto* const* list = std::get_if<std::vector<std::string>*>(&flag.target)) {
    option = app->add_option(names, **list, help);
    if (flag.names.starts_with('-')) option->allow_extra_args(false);
  } else {
    option = app->add_option(names, bound->number, help);
  }
  bound->option = option->type_name(std::string(flag.value));
}

void RequireCommand(const Program& program, std::span<const Command> commands,
                    const std::vector<std::string>& args) {
  std::string names;
  for (const Command& command : commands) {
    if (!args.empty() && args[0] == command.name) return;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", command.name);
  }
  if (!args.empty() && args[0].starts_with('-')) return;  // CLI11 knows what to say
  throw Error(
      {"command line",
       args.empty() ? "no subcommand is given" : fmt::format("'{}' is no subcommand", args[0]),
       fmt::format("the subcommands are {}; see {} --help", names, program.name)});
}

ExitCode ParseAndRun(const Program& program, std::span<const Command> commands,
                     const std::vector<std::string>& args) {
  RequireCommand(program, commands, args);
  for (const Command& command : commands) {
    if (args[0] != command.name || command.subcommands.empty()) continue;
    const std::string name = fmt::format("{} {}", program.name, command.name);
    return ParseAndRun({name, command.summary}, command.subcommands,
                       {args.begin() + 1, args.end()});
  }
  const std::string name(program.name);
  CLI::App app(std::string(program.summary), name);
  app.footer(std::string(kExitCodes));
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", name + " " LOCKSTEP_VERSION);
  std::deque<BoundFlag> bound_flags;  // CLI11 keeps pointers into it
  for (const Command& command : commands) {
    CLI::App* subcommand =
        app.add_subcommand(std::string(command.name), std::string(command.summary));
    subcommand->footer(command.details.empty()
                           ? std::string(kExitCodes)
                           : fmt::format("{}\n{}", command.details, kExitCodes));
    for (const Flag& flag : command.flags) {
      AddFlag(&bound_flags.emplace_back(BoundFlag{&program, &command, &flag}), subcommand);
    }
  }

  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));  // CLI11 wants them reversed
  } catch (const CLI::Success& help) {
    app.exit(help);
    return ExitCode::kHolds;
  } catch (const CLI::ParseError& error) {
    const auto chosen = app.get_subcommands();
    throw Error({"command line", error.what(),
                 fmt::format("see {} {}--help", name,
                             chosen.empty() ? std::string() : chosen[0]->get_name() + " ")});
  }
  for (const Command& command : commands) {
    if (!app.got_subcommand(std::string(command.name))) continue;
    for (const BoundFlag& bound : bound_flags) {
      if (bound.command == &command) bound.Finish();
    }
    return command.run();
  }
  throw Error(
      {"command line", "a subcommand has to come first", fmt::format("see {} --help", name)});
}

// One line, whatever the message holds.
void PrintError(const Program& program, std::string_view kind, std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::fflush(stdout);
  fmt::print(stderr, "{}: {}: {}\n", program.name, kind, message);
}

}  // namespace

int Main(std::span<const Command> commands, const std::vector<std::string>& args,
         const Program& program) {
  ExitCode code = ExitCode::kInternal;
  try {
    code = ParseAndRun(program, commands, args);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw Error({"standard output", "could not be written", "the result above is incomplete"});
    }
  } catch (const Error& error) {
    code = ExitCode::kWrongUse;
    PrintError(program, "error", error.what());
  } catch (const std::bad_alloc&) {
    code = ExitCode::kWrongUse;
    PrintError(program, "error",
               "memory: not enough of it (use a smaller model or a shorter context)");
  } catch (const std::exception& error) {
    PrintError(program, "internal error", error.what());
  }
  return static_cast<int>(code);
}

std::string CommandLineLibrary() { return "CLI11 " CLI11_VERSION; }

}  // namespace lockstep::cli
