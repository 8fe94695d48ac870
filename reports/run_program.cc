#include "reports/run_program.h"

#include <fmt/format.h>

#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "reports/run_process.h"

namespace lockstep {

ProgramEnd RunProgram(const std::vector<std::string>& argv, int timeout_seconds) {
  const TemporaryFolder folder;
  const std::string out = folder.File("out"), err = folder.File("err");
  const ProcessEnd end = RunProcess({.argv = argv,
                                     .folder = ".",
                                     .log = out,
                                     .errors = err,
                                     .seconds_max = static_cast<double>(timeout_seconds),
                                     .bytes_max = 0});
  ProgramEnd program{.exit_code = end.kind == ProcessEnd::Kind::kExited ? end.code : -1,
                     .out = ReadWholeTextFile(out),
                     .err = ReadWholeTextFile(err)};
  if (end.kind == ProcessEnd::Kind::kTimeout) {
    program.err += fmt::format("\nkilled after {} seconds", timeout_seconds);
  }
  return program;
}

}  // namespace lockstep
