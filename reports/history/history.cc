#include "reports/history.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "caches/digest.h"
#include "caches/error.h"
#include "reports/statistics.h"

namespace lockstep {
namespace {

// From each version of the schema to the next; the file says how many were done.
constexpr const char* kMigrations[] = {
    // The run as it was written is the truth; the columns are for questions.
    "CREATE TABLE run (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, json TEXT NOT NULL, "
    "commit_id TEXT NOT NULL, started TEXT NOT NULL, toolchain TEXT NOT NULL, "
    "fingerprint TEXT NOT NULL);"
    "CREATE TABLE result (run INTEGER NOT NULL REFERENCES run(id), name TEXT NOT NULL, "
    "cost REAL NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (run, name)) WITHOUT ROWID;",
    "CREATE INDEX result_by_name ON result(name, run);",
};
constexpr int kVersion = static_cast<int>(std::size(kMigrations));

// Without line breaks: RunJson has them between members alone, texts have theirs escaped.
std::string LineOf(const BenchRun& run) {
  std::string line;
  bool indent = false;
  for (const char c : RunJson(run)) {
    if (c == '\n') indent = true;
    if (c != '\n' && c != ' ') indent = false;
    if (!indent) line += c;
  }
  return line;
}

// The median over samples, of fractions of the limit where all have one; nothing without samples.
double CostOf(const BenchResult& result) {
  std::vector<double> costs;
  const bool limits = std::ranges::all_of(
      result.samples, [](const BenchSample& sample) { return sample.limit.has_value(); });
  for (const BenchSample& sample : result.samples) {
    const double value = limits ? sample.value / *sample.limit : sample.value;
    costs.push_back(result.direction == Direction::kLowerIsBetter ? value : 1 / value);
  }
  return costs.empty() ? 0 : Quantile(costs, 0.5);
}

}  // namespace

struct History::Database {
  explicit Database(const std::string& file) : path(file) {
    if (sqlite3_open(file.c_str(), &handle) != SQLITE_OK) Fail("cannot be opened");
  }
  ~Database() { sqlite3_close(handle); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  [[noreturn]] void Fail(const std::string& what) const {
    throw Error({path, fmt::format("{}: {}", what, sqlite3_errmsg(handle)),
                 "give a history that lockstep made, or a path where one can be made"});
  }

  void Execute(const char* sql) const {
    if (sqlite3_exec(handle, sql, nullptr, nullptr, nullptr) != SQLITE_OK) Fail("is no history");
  }

  std::string path;
  sqlite3* handle = nullptr;
};

namespace {

// A prepared statement.
class Query {
 public:
  Query(sqlite3* handle, const char* sql) : handle_(handle) {
    if (sqlite3_prepare_v2(handle, sql, -1, &statement_, nullptr) != SQLITE_OK) Fail();
  }
  ~Query() { sqlite3_finalize(statement_); }
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  Query& Bind(int index, const std::string& text) {
    sqlite3_bind_text(statement_, index, text.data(), static_cast<int>(text.size()),
                      SQLITE_TRANSIENT);
    return *this;
  }
  Query& Bind(int index, int64_t value) {
    sqlite3_bind_int64(statement_, index, value);
    return *this;
  }
  Query& Bind(int index, double value) {
    sqlite3_bind_double(statement_, index, value);
    return *this;
  }
  // True while there is a row.
  bool Step() {
    const int result = sqlite3_step(statement_);
    if (result != SQLITE_ROW && result != SQLITE_DONE) Fail();
    return result == SQLITE_ROW;
  }
  std::string Text(int column) const {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return text == nullptr ? "" : text;
  }
  int64_t Int(int column) const { return sqlite3_column_int64(statement_, column); }
  double Real(int column) const { return sqlite3_column_double(statement_, column); }

 private:
  [[noreturn]] void Fail() const {
    throw Error({"history", sqlite3_errmsg(handle_), "check the file and the space on its disk"});
  }

  sqlite3* handle_;
  sqlite3_stmt* statement_ = nullptr;
};

// Undone at its end unless it was kept.
class Transaction {
 public:
  explicit Transaction(sqlite3* handle) : handle_(handle) {
    Query(handle, "BEGIN IMMEDIATE").Step();
  }
  ~Transaction() {
    if (!kept_) sqlite3_exec(handle_, "ROLLBACK", nullptr, nullptr, nullptr);
  }
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  void Keep() {
    Query(handle_, "COMMIT").Step();
    kept_ = true;
  }

 private:
  sqlite3* handle_;
  bool kept_ = false;
};

// False when the same run is there.
bool Insert(sqlite3* handle, const BenchRun& run) {
  const std::string line = LineOf(run);
  Query insert(handle,
               "INSERT OR IGNORE INTO run (digest, json, commit_id, started, toolchain, "
               "fingerprint) VALUES (?, ?, ?, ?, ?, ?)");
  insert.Bind(1, DigestOfBytes(std::as_bytes(std::span(line))).Hex());
  insert.Bind(2, line).Bind(3, run.commit).Bind(4, run.started).Bind(5, run.toolchain);
  insert.Bind(6, run.machine.Fingerprint()).Step();
  if (sqlite3_changes(handle) == 0) return false;
  const int64_t id = sqlite3_last_insert_rowid(handle);
  for (const BenchResult& result : run.benchmarks) {
    const double cost = CostOf(result);
    if (cost <= 0) continue;
    Query row(handle, "INSERT INTO result (run, name, cost, digest) VALUES (?, ?, ?, ?)");
    row.Bind(1, id).Bind(2, result.name).Bind(3, cost).Bind(4, result.digest).Step();
  }
  return true;
}

void AddChanges(const HistorySeries& series, const ChangePointOptions& options,
                std::vector<HistoryChange>* changes) {
  const std::vector<HistoryPoint>& points = series.points;
  std::vector<double> logs;
  for (const HistoryPoint& point : points) logs.push_back(std::log(point.cost));
  std::vector<size_t> cuts = ChangePoints(logs, options);
  cuts.insert(cuts.begin(), 0);
  cuts.push_back(points.size());
  for (size_t i = 1; i + 1 < cuts.size(); ++i) {
    const auto level = [&](size_t piece) {
      return Quantile(std::span(logs).subspan(cuts[piece], cuts[piece + 1] - cuts[piece]), 0.5);
    };
    const HistoryPoint& before = points[cuts[i] - 1];
    const HistoryPoint& after = points[cuts[i]];
    changes->push_back({.benchmark = series.benchmark,
                        .at = cuts[i],
                        .ratio = std::exp(level(i) - level(i - 1)),
                        .commit_before = before.commit,
                        .commit_after = after.commit,
                        .bits_changed = before.digest != after.digest});
  }
}

}  // namespace

History::History(const std::string& path) : database_(std::make_unique<Database>(path)) {
  sqlite3* handle = database_->handle;
  database_->Execute("PRAGMA foreign_keys = ON");
  Transaction transaction(handle);
  Query version(handle, "PRAGMA user_version");
  version.Step();
  const int64_t done = version.Int(0);
  if (done > kVersion) {
    throw Error({path,
                 fmt::format("is a history of version {}, this is version {}", done, kVersion),
                 "use the lockstep that wrote it"});
  }
  for (int64_t i = done; i < kVersion; ++i) database_->Execute(kMigrations[i]);
  database_->Execute(fmt::format("PRAGMA user_version = {}", kVersion).c_str());
  transaction.Keep();
}

History::~History() = default;

bool History::Add(const BenchRun& run) {
  Transaction transaction(database_->handle);
  const bool added = Insert(database_->handle, run);
  transaction.Keep();
  return added;
}

std::vector<HistoryEntry> History::Entries() const {
  std::vector<HistoryEntry> entries;
  Query query(database_->handle,
              "SELECT id, commit_id, started, toolchain, fingerprint, "
              "(SELECT COUNT(*) FROM result WHERE result.run = run.id) FROM run ORDER BY id");
  while (query.Step()) {
    entries.push_back({.id = query.Int(0),
                       .commit = query.Text(1),
                       .started = query.Text(2),
                       .toolchain = query.Text(3),
                       .fingerprint = query.Text(4),
                       .benchmarks = query.Int(5)});
  }
  return entries;
}

std::string History::Export() const {
  std::string lines;
  Query query(database_->handle, "SELECT json FROM run ORDER BY id");
  while (query.Step()) lines += query.Text(0) + "\n";
  return lines;
}

int64_t History::Import(std::string_view lines) {
  Transaction transaction(database_->handle);
  int64_t added = 0, number = 0;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string line(lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
    ++number;
    if (line.empty()) continue;
    if (Insert(database_->handle, ParseRun(line, fmt::format("line {}", number)))) ++added;
  }
  transaction.Keep();
  return added;
}

std::vector<HistorySeries> History::Series(const std::string& fingerprint) const {
  std::set<std::string> machines;
  for (const HistoryEntry& entry : Entries()) machines.insert(entry.fingerprint);
  if (fingerprint.empty() ? machines.size() > 1 : !machines.contains(fingerprint)) {
    std::string all;
    for (const std::string& machine : machines) all += (all.empty() ? "" : ", ") + machine;
    throw Error({database_->path, fmt::format("has runs of the machines {}", all),
                 "choose one: times of different machines are no series"});
  }
  std::vector<HistorySeries> series;
  Query query(database_->handle,
              "SELECT name, commit_id, result.digest, cost FROM result JOIN run ON run.id = run "
              "WHERE ?1 = '' OR fingerprint = ?1 ORDER BY name, run");
  query.Bind(1, fingerprint);
  while (query.Step()) {
    if (series.empty() || series.back().benchmark != query.Text(0)) {
      series.push_back({.benchmark = query.Text(0)});
    }
    series.back().points.push_back(
        {.commit = query.Text(1), .digest = query.Text(2), .cost = query.Real(3)});
  }
  return series;
}

std::vector<HistoryChange> History::Changes(const std::string& fingerprint,
                                            const ChangePointOptions& options) const {
  std::vector<HistoryChange> changes;
  for (const HistorySeries& series : Series(fingerprint)) AddChanges(series, options, &changes);
  return changes;
}

}  // namespace lockstep
