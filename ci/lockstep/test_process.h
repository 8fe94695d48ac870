// Runs the real `lockstep` binary, for tests.
#ifndef LOCKSTEP_CI_LOCKSTEP_TEST_PROCESS_H_
#define LOCKSTEP_CI_LOCKSTEP_TEST_PROCESS_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

struct ProcessResult {
  int exit_code = -1;  // -1 when a signal ended it
  int signal = 0;
  std::string out;
  std::string err;
};

// Runs `lockstep args...` to its end, with no standard input. `environment` is added to this
// process's ("NAME=value"). With `out_path`, standard output goes there and is not read back.
ProcessResult RunLockstepCommand(const std::vector<std::string>& args,
                                 const std::vector<std::string>& environment = {},
                                 const std::string& out_path = {});

// A file below the test's own temporary folder, which holds these bytes.
std::string WriteTestFile(std::string_view name, std::span<const std::byte> bytes);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_TEST_PROCESS_H_
