// One report of what several commands found. Each of them wrote a file; a file becomes a part, and
// the parts one page, one comment, one set of test cases.
#ifndef LOCKSTEP_REPORTS_SUMMARY_H_
#define LOCKSTEP_REPORTS_SUMMARY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reports/table.h"

namespace lockstep {

enum class ReportVerdict : uint8_t { kHolds, kOpen, kFails };  // from good to bad
std::string_view ReportVerdictName(ReportVerdict verdict);     // "holds", "open", "FAILS"

// A picture is a whole <svg> element without references to anything outside of it; `text` says the
// same for those who do not see it.
struct ReportPicture {
  std::string caption = {};
  std::string svg = {};
  std::string text = {};
};

struct ReportPart {
  std::string title = {};  // "Determinism matrix"
  ReportVerdict verdict = ReportVerdict::kOpen;
  std::string sentence = {};                 // the verdict in the words of the command
  std::vector<std::string> complaints = {};  // what does not hold, a line each
  Table table = {};                          // may be without rows
  std::vector<ReportPicture> pictures = {};
  std::string command = {};  // that repeats it; may be empty
  std::string source = {};   // the file
};

// What a file says, told by its content:
//   lockstep verify --json                     which caches grant slots, and what was equal
//   lockstep verify --matrix --json-file       the determinism matrix
//   lockstep gate --json-file                  the parts of a gate
//   lockstep conform --json-file               the clauses of a plug-in
//   lockstep golden explain --json             where golden files stopped to hold: layers x stages
//   lockstep bench compare --json-file         benchmark ratios with their intervals
//   ci/faults plant --json-file                what the suite catches, by class
//   lockstep bench history FILE (SQLite)       levels over time, and where they changed
//   a cache script                             run again: positions, operations and blocks
// Throws Error for a file that cannot be read or is none of these, and for one of these that lacks
// what it has to have.
ReportPart ReadReportPart(const std::string& path);

struct Report {
  std::string title = "lockstep";
  std::vector<ReportPart> parts = {};

  // The worst of its parts; kOpen without any.
  ReportVerdict verdict() const;
  // "FAILS: 1 of 4 parts: Determinism matrix".
  std::string Sentence() const;
};

// The verdict first, then the parts, the worst first.
std::string ReportText(const Report& report);
std::string ReportMarkdown(const Report& report);     // for a comment: what holds is folded away
std::string ReportHtml(const Report& report);         // one self-contained page
std::string ReportJunit(const Report& report);        // a test case a part; open ones are skipped
std::string ReportAnnotations(const Report& report);  // GitHub's workflow commands
std::string ReportJson(const Report& report);         // follows ReportSchema
std::string_view ReportSchema();                      // JSON Schema, draft 4

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_SUMMARY_H_
