// Runs kept over time, in one SQLite file, and where their benchmarks changed for good.
#ifndef LOCKSTEP_REPORTS_HISTORY_H_
#define LOCKSTEP_REPORTS_HISTORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reports/change_points.h"
#include "reports/results.h"

namespace lockstep {

struct HistoryEntry {
  int64_t id = 0;  // in the order in which they were added
  std::string commit, started, toolchain;
  std::string fingerprint;  // of the machine
  int64_t benchmarks = 0;
};

struct HistoryPoint {
  std::string commit, digest;
  double cost = 0;  // the median of the run's samples, or of their fractions of a limit
};

// A benchmark over the runs of one machine, oldest first.
struct HistorySeries {
  std::string benchmark;
  std::vector<HistoryPoint> points = {};
};

struct HistoryChange {
  std::string benchmark;
  size_t at = 0;              // of its series: the first point of the new level
  double ratio = 1;           // of the costs after and before: medians of the two levels
  std::string commit_before;  // of the last run on the old level
  std::string commit_after;   // of the first on the new one
  bool bits_changed = false;  // their digests differ
};

class History {
 public:
  // Opens the file, makes it when there is none, and brings an older schema to this version's.
  // Throws Error when it cannot, or the file is of a newer version.
  explicit History(const std::string& path);
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  // False when the very same run is there already.
  bool Add(const BenchRun& run);

  std::vector<HistoryEntry> Entries() const;

  // The runs as lines of JSON, oldest first, each as RunJson writes it without line breaks; what
  // Import reads back. It adds what is not there yet, all or nothing, and returns how many.
  std::string Export() const;
  int64_t Import(std::string_view lines);

  // Every benchmark over the runs of one machine, by name. An empty fingerprint stands for the only
  // machine there is. Throws Error when there are several, or none of that fingerprint.
  std::vector<HistorySeries> Series(const std::string& fingerprint = "") const;

  // Changes of level of those, oldest first.
  std::vector<HistoryChange> Changes(const std::string& fingerprint = "",
                                     const ChangePointOptions& options = {}) const;

 private:
  struct Database;
  std::unique_ptr<Database> database_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_HISTORY_H_
