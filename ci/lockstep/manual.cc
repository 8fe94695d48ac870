#include "ci/lockstep/manual.h"

#include <fmt/format.h>

#include <functional>
#include <vector>

#include "ci/lockstep/shell_word.h"

namespace lockstep::cli {
namespace {

// Text of a roff document: backslashes, hyphens that are not to become typographic ones, and lines
// that would begin with a request.
std::string Roff(std::string_view text) {
  std::string roff;
  bool at_begin = true;
  for (const char c : text) {
    if (at_begin && (c == '.' || c == '\'')) roff += "\\&";
    if (c == '\\') {
      roff += "\\e";
    } else if (c == '-') {
      roff += "\\-";
    } else {
      roff += c;
    }
    at_begin = c == '\n';
  }
  return roff;
}

// Every command that is no mere group, with all words that name it.
void ForEach(std::span<const Command> commands, const std::string& before,
             const std::function<void(const std::string&, const Command&)>& visit) {
  for (const Command& command : commands) {
    const std::string words = before + std::string(command.name);
    if (command.subcommands.empty()) {
      visit(words, command);
    } else {
      ForEach(command.subcommands, words + " ", visit);
    }
  }
}

// "-n", "--decode" of "-n,--decode"; none of what has its place, not a name.
std::vector<std::string> NamesOf(const Flag& flag) {
  std::vector<std::string> names;
  for (std::string_view rest = flag.names; rest.starts_with('-');) {
    const size_t comma = std::min(rest.find(','), rest.size());
    names.emplace_back(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return names;
}

std::string FlagRoff(const Flag& flag) {
  const std::vector<std::string> names = NamesOf(flag);
  std::string head;
  for (const std::string& name : names) {
    if (!head.empty()) head += ", ";
    head += name;
  }
  std::string line = ".TP\n";
  line += names.empty() ? "" : fmt::format("\\fB{}\\fR", Roff(head));
  if (!flag.value.empty()) {
    line += fmt::format("{}\\fI{}\\fR", names.empty() ? "" : " ", Roff(flag.value));
  }
  return line + "\n" + Roff(flag.help) + "\n";
}

std::string JoinedNames(std::span<const Command> commands) {
  std::string names;
  for (const Command& command : commands) {
    if (!names.empty()) names += ' ';
    names += command.name;
  }
  return names;
}

}  // namespace

std::string ManualPage(std::span<const Command> commands) {
  std::string page =
      ".TH LOCKSTEP 1\n.SH NAME\n"
      "lockstep \\- deterministic testing and verification for LLM KV caches\n"
      ".SH SYNOPSIS\n\\fBlockstep\\fR \\fICOMMAND\\fR [\\fIARGUMENT\\fR ...]\n.SH COMMANDS\n";
  ForEach(commands, "", [&](const std::string& words, const Command& command) {
    page += fmt::format(".SS lockstep {}\n{}.\n", Roff(words), Roff(command.summary));
    for (const Flag& flag : command.flags) page += FlagRoff(flag);
    if (!command.details.empty()) {
      page += fmt::format(".PP\n.nf\n{}\n.fi\n", Roff(command.details));
    }
  });
  return page +
         ".SH EXIT STATUS\n"
         ".TP\n0\neverything that was compared is equal\n"
         ".TP\n1\na difference was found, and its place is printed\n"
         ".TP\n2\nwrong use, or a file that cannot be read\n"
         ".TP\n3\nnothing differs, and nothing was proved either\n"
         ".TP\n4\nlockstep itself failed\n";
}

std::string BashCompletion(std::span<const Command> commands) {
  std::string cases;
  std::string groups;
  ForEach(commands, "", [&](const std::string& words, const Command& command) {
    std::string flags = "--help";
    for (const Flag& flag : command.flags) {
      for (const std::string& name : NamesOf(flag)) {
        flags += ' ';
        flags += name;
      }
    }
    cases += fmt::format("    {}) words={} ;;\n", ShellWord(words), ShellWord(flags));
  });
  for (const Command& command : commands) {
    if (command.subcommands.empty()) continue;
    groups += fmt::format("    {}) words={}; command=$2 ;;\n", command.name,
                          ShellWord(JoinedNames(command.subcommands)));
  }
  return fmt::format(R"(# Completion of lockstep for bash: source <(lockstep completion bash)
_lockstep() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} words={} command=''
  COMPREPLY=()
  if ((COMP_CWORD > 1)); then
    command=${{COMP_WORDS[1]}}
    words=''
    # A group's next word is a command of its own.
    case "$command" in
{}    esac
    if [[ "$words" != '' ]] && ((COMP_CWORD > 2)); then
      command="${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}"
    elif [[ "$words" != '' ]]; then command=''
    fi
    case "$command" in
{}    esac
  fi
  if [[ "$current" == -* ]] || ((COMP_CWORD == 1)) || [[ "$command" == '' ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}}
complete -o filenames -F _lockstep lockstep
)",
                     ShellWord(JoinedNames(commands)), groups, cases);
}

std::string FishCompletion(std::span<const Command> commands) {
  std::string script =
      "# Completion of lockstep for fish: lockstep completion fish | source\n"
      "complete -c lockstep -n __fish_use_subcommand -f\n";
  for (const Command& command : commands) {
    script += fmt::format("complete -c lockstep -n __fish_use_subcommand -a {} -d {}\n",
                          command.name, ShellWord(std::string(command.summary)));
    for (const Command& sub : command.subcommands) {
      script +=
          fmt::format("complete -c lockstep -n '__fish_seen_subcommand_from {}' -f -a {} -d {}\n",
                      command.name, sub.name, ShellWord(std::string(sub.summary)));
    }
  }
  ForEach(commands, "", [&](const std::string& words, const Command& command) {
    const std::string last = words.substr(words.rfind(' ') + 1);  // npos + 1 is the begin
    for (const Flag& flag : command.flags) {
      std::string names;
      for (const std::string& name : NamesOf(flag)) {
        names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (names.empty()) continue;
      script +=
          fmt::format("complete -c lockstep -n '__fish_seen_subcommand_from {}'{}{} -d {}\n", last,
                      names, flag.value.empty() ? "" : " -r", ShellWord(std::string(flag.help)));
    }
  });
  return script;
}

}  // namespace lockstep::cli
