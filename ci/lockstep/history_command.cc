// lockstep bench history: runs kept over time, and where benchmarks changed for good.
#include <fmt/format.h>

#include <memory>

#include "caches/error.h"
#include "caches/file_io.h"
#include "ci/lockstep/bench_commands.h"
#include "reports/history.h"
#include "reports/table.h"

namespace lockstep::cli {
namespace {

struct HistoryOptions {
  std::string file;
  std::vector<std::string> add;
  std::string import, export_to, machine;
};

std::string Short(const std::string& commit) {
  return commit.empty() ? "unknown" : commit.substr(0, 12);
}

void PrintEntries(const History& history) {
  Table table{.header = {"run", "commit", "started", "machine", "toolchain", "benchmarks"}};
  for (const HistoryEntry& entry : history.Entries()) {
    table.rows.push_back({fmt::format("{}", entry.id), Short(entry.commit), entry.started,
                          entry.fingerprint, entry.toolchain, fmt::format("{}", entry.benchmarks)});
  }
  fmt::print("{}\n", TableText(table));
}

ExitCode PrintChanges(const History& history, const std::string& machine) {
  const std::vector<HistoryChange> changes = history.Changes(machine);
  bool worse = false;
  for (const HistoryChange& change : changes) {
    worse = worse || change.ratio > 1;
    fmt::print("{}: cost x{:.3f} between {} and {}{}\n", change.benchmark, change.ratio,
               Short(change.commit_before), Short(change.commit_after),
               change.bits_changed ? ", and other bits" : "");
  }
  fmt::print("{} changes of level\n", changes.size());
  return worse ? ExitCode::kDifference : ExitCode::kHolds;
}

ExitCode RunHistory(const HistoryOptions& options) {
  History history(options.file);
  for (const std::string& path : options.add) {
    fmt::print("{}: {}\n", path, history.Add(ReadRun(path)) ? "added" : "is there already");
  }
  if (!options.import.empty()) {
    const int64_t added = history.Import(ReadWholeTextFile(options.import));
    fmt::print("{}: {} runs added\n", options.import, added);
  }
  if (!options.export_to.empty()) {
    WriteWholeTextFile(options.export_to, history.Export());
    return ExitCode::kHolds;
  }
  if (!options.add.empty() || !options.import.empty()) return ExitCode::kHolds;
  PrintEntries(history);
  return PrintChanges(history, options.machine);
}

}  // namespace

Command BenchHistoryCommand() {
  const auto options = std::make_shared<HistoryOptions>();
  return {
      "history",
      "Runs kept over time, and where benchmarks changed for good",
      {{"file", "FILE", "the history, an SQLite file; made when there is none", &options->file,
        true},
       {"--add", "RUN", "add a run: a file of lockstep or of Google Benchmark", &options->add},
       {"--import", "FILE", "add runs from lines of JSON", &options->import},
       {"--export", "FILE", "write all runs as lines of JSON", &options->export_to},
       {"--machine", "FINGERPRINT", "look at the runs of this machine alone", &options->machine}},
      [options] { return RunHistory(*options); },
      "Without --add, --import or --export: prints the runs and the changes of level, with the\n"
      "commits around each. Exit code 1 when one of them costs more than before.\n"};
}

}  // namespace lockstep::cli
