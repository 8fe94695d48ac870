// The programs that scripts of ci/ start, as `lockstep doctor` finds them: which are there, in
// which version, and what brings those that are not.
#ifndef LOCKSTEP_CI_LOCKSTEP_DOCTOR_TOOLS_H_
#define LOCKSTEP_CI_LOCKSTEP_DOCTOR_TOOLS_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

struct Tool {
  std::string_view name;     // the program
  std::string_view package;  // of Debian; empty: none has it
  std::string_view get;      // what brings it: "ci/install --lint"
};

// In the order of the output. Those of another processor's toolchain only where ci/install takes
// them.
std::span<const Tool> KnownTools();

struct FoundTool {
  Tool tool = {};
  std::string path = {};     // empty: it is not there
  std::string version = {};  // "12.2.0"; empty: it does not tell
  std::string fault = {};    // then why: "exit code 1", "no answer in 10 s"
};

struct ToolSearch {
  std::string path = {};          // folders as PATH has them
  std::string cuda_folders = {};  // in the same form; looked at for nvcc, behind the others
  double seconds_max = 10;        // that one program may take to tell its version
};

// Of this process: PATH, and where ci/cuda.cmake looks for nvcc.
ToolSearch SearchOfThisProcess();

// All of KnownTools(). Each that is there is asked for its version.
std::vector<FoundTool> FindTools(const ToolSearch& search);

// "g++ 12.2.0, cmake 3.25.1, valgrind (does not tell its version: exit code 1)".
std::string ToolsText(std::span<const FoundTool> tools);

// One line for each thing that brings some: "valgrind, parallel: ci/install".
std::vector<std::string> LackingTexts(std::span<const FoundTool> tools);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_DOCTOR_TOOLS_H_
