// lockstep report: what several commands wrote down, as one page, one comment, one verdict.
#include <fmt/format.h>

#include <memory>

#include "caches/error.h"
#include "caches/file_io.h"
#include "ci/lockstep/commands.h"
#include "reports/summary.h"

namespace lockstep::cli {
namespace {

struct ReportFlags {
  std::vector<std::string> files;
  std::string title = "lockstep";
  std::string html, markdown, junit, json_file;
  bool json = false;
  bool github = false;
  bool schema = false;
};

ExitCode CodeOf(ReportVerdict verdict) {
  switch (verdict) {
    case ReportVerdict::kHolds:
      return ExitCode::kHolds;
    case ReportVerdict::kOpen:
      return ExitCode::kInconclusive;
    case ReportVerdict::kFails:
      break;
  }
  return ExitCode::kDifference;
}

void WriteUnlessEmpty(const std::string& path, const std::string& text) {
  if (!path.empty()) WriteWholeTextFile(path, text);
}

ExitCode RunReport(const ReportFlags& flags) {
  if (flags.schema) {
    fmt::print("{}", ReportSchema());
    return ExitCode::kHolds;
  }
  if (flags.files.empty()) {
    throw Error({"report", "no file is given", "name what commands wrote with --json-file"});
  }
  Report report{.title = flags.title};
  for (const std::string& path : flags.files) report.parts.push_back(ReadReportPart(path));
  WriteUnlessEmpty(flags.html, ReportHtml(report));
  WriteUnlessEmpty(flags.markdown, ReportMarkdown(report));
  WriteUnlessEmpty(flags.junit, ReportJunit(report));
  WriteUnlessEmpty(flags.json_file, ReportJson(report));
  if (flags.json) {
    fmt::print("{}", ReportJson(report));
  } else {
    fmt::print("{}", ReportText(report));
    if (flags.github) fmt::print("{}", ReportAnnotations(report));
  }
  return CodeOf(report.verdict());
}

}  // namespace

Command ReportCommand() {
  const auto flags = std::make_shared<ReportFlags>();
  return {
      .name = "report",
      .summary = "Join what commands wrote down into one report",
      .flags = {{"file", "FILE ...", "any number of the files below", &flags->files},
                {"--title", "TEXT", "of the page", &flags->title},
                {"--html", "FILE", "write a page", &flags->html},
                {"--markdown", "FILE", "write a comment for a pull request", &flags->markdown},
                {"--junit", "FILE", "write JUnit's XML", &flags->junit},
                {"--json-file", "FILE", "write JSON, which --schema describes", &flags->json_file},
                {"--json", "", "the same on standard output", &flags->json},
                {"--github", "", "GitHub's annotations on standard output", &flags->github},
                {"--schema", "", "print the JSON Schema of a report, and nothing else",
                 &flags->schema}},
      .run = [flags] { return RunReport(*flags); },
      .details =
          "Files, told by what is in them:\n"
          "  lockstep verify --json           caches, write paths, granted slots\n"
          "  lockstep verify --matrix --json-file FILE, with --every-type too\n"
          "  lockstep gate --json-file FILE\n"
          "  lockstep conform --json-file FILE\n"
          "  lockstep golden explain --json   layers and stages that differ first\n"
          "  lockstep bench compare --json-file FILE\n"
          "  lockstep bench history FILE      levels over time\n"
          "  ci/faults plant --json-file FILE what the suite catches\n"
          "  a cache script                   run again, and drawn\n"
          "The exit code is that of the worst part."};
}

}  // namespace lockstep::cli
