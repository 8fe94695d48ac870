// lockstep golden accept and reject: what `review` does, by name.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "caches/error.h"
#include "ci/lockstep/git_author.h"
#include "ci/lockstep/golden_commands.h"
#include "ci/lockstep/progress_line.h"
#include "engine/math.h"
#include "golden/accept.h"

namespace lockstep::cli {
namespace {

struct AcceptFlags {
  GoldenFlags golden;
  std::vector<std::string> names;
  std::string reason;
  std::string all_because;
  std::string issue;
  bool markdown = false;
};

void PrintFinished(const std::vector<GoldenName>& finished) {
  for (const GoldenName& golden : finished) {
    fmt::print("finished {}, whose acceptance was interrupted\n", golden.Text());
  }
}

ExitCode RunAccept(const AcceptFlags& flags) {
  CheckFloatingPointEnvironment();
  const GitAuthor author = AskGitForAuthor(flags.golden.tree.folder);
  AcceptRequest request{.tree = flags.golden.tree,
                        .names = flags.names,
                        .reason = flags.reason,
                        .all_because = flags.all_because,
                        .issue = flags.issue,
                        .author = author.author,
                        .date = author.date};
  request.record.models = ModelsFolder();
  ProgressLine line;
  request.on_progress = [&](const std::string& text) { line.Show(text); };
  const AcceptResult result = AcceptGoldens(request);
  line.Clear();
  PrintFinished(result.finished);
  for (const AcceptRefusal& refusal : result.refusals) fmt::print("{}\n", refusal.sentence);
  if (!result.refusals.empty()) {
    fmt::print("REFUSED: nothing was accepted\n");
    return ExitCode::kDifference;
  }
  if (flags.markdown) {
    fmt::print("{}", PendingMarkdown(result.accepted, result.acceptance));
    return ExitCode::kHolds;
  }
  for (const PendingGolden& pending : result.accepted) {
    fmt::print("accepted {}\n", PendingTitle(pending));
  }
  if (!result.accepted.empty()) {
    fmt::print("commit them together with {}, which says why\n", request.tree.LedgerPath());
  }
  return ExitCode::kHolds;
}

constexpr std::string_view kAcceptDetails =
    "CASE is a case (all its files), or one file: gate-gap, gate-gap/f32.golden. What waits is\n"
    "a pending file (lockstep golden check writes them), a golden file that no case produces\n"
    "any more, which is removed, and one that the ledger has no reason for.\n"
    "\n"
    "Each file is recorded again: once, a second time, with other kernels, with other threads.\n"
    "All have to equal the pending file, else nothing is accepted and the exit code is 1. The\n"
    "reason goes to the ledger beside the cases, with date and author (from git), old and new\n"
    "digest. Commit both.\n"
    "\n"
    "A reason has three words at least. More than 5 files need --all-because TEXT instead,\n"
    "which takes all that waits when no CASE is given; files recorded with an older arithmetic\n"
    "version do not count. Nothing is accepted where CI is set. A killed acceptance is\n"
    "finished by the next one.\n"
    "\n"
    "  lockstep golden accept gate-gap --reason \"RoPE comes before the bias now\"\n";

ExitCode RunReject(const AcceptFlags& flags, bool all) {
  if (flags.names.empty() != all) {
    throw Error({"command line", all ? "--all and a CASE are given" : "no case is named",
                 "name cases or files, or give --all"});
  }
  for (const PendingGolden& pending : RejectGoldens(flags.golden.tree, flags.names)) {
    fmt::print("rejected {}\n", PendingTitle(pending));
  }
  fmt::print(
      "the golden files stay as they are: lockstep golden check fails until the engine gives "
      "them again\n");
  return ExitCode::kHolds;
}

constexpr std::string_view kRejectDetails =
    "CASE is a case (all its files), or one file: gate-gap, gate-gap/f32.golden. The pending\n"
    "file is removed, the golden file stays. Where an engine gives other bits than its golden\n"
    "file and nobody wants them, the engine is what has to change.\n";

std::vector<Flag> WithShared(std::vector<Flag> flags, AcceptFlags* values) {
  const std::vector<Flag> shared = values->golden.Flags();
  flags.insert(flags.end(), shared.begin(), shared.end());
  return flags;
}

}  // namespace

Command GoldenAcceptCommand() {
  const auto values = std::make_shared<AcceptFlags>();
  return {.name = "accept",
          .summary = "Take pending golden files, and say why",
          .flags = WithShared(
              {{"case", "CASE", "cases or files to accept", &values->names},
               {"--reason", "TEXT", "why the new bits are right", &values->reason},
               {"--all-because", "TEXT", "the same for any number of files", &values->all_because},
               {"--issue", "TEXT", "number or address of an issue, for the ledger", &values->issue},
               {"--markdown", "", "print what was accepted as Markdown, for a pull request",
                &values->markdown}},
              values.get()),
          .run = [values] { return RunAccept(*values); },
          .details = std::string(kAcceptDetails)};
}

Command GoldenRejectCommand() {
  const auto values = std::make_shared<AcceptFlags>();
  const auto all = std::make_shared<bool>(false);
  return {.name = "reject",
          .summary = "Drop pending files, and keep the golden ones",
          .flags = WithShared({{"case", "CASE", "cases or files to reject", &values->names},
                               {"--all", "", "all that wait", all.get()}},
                              values.get()),
          .run = [values, all] { return RunReject(*values, *all); },
          .details = std::string(kRejectDetails)};
}

}  // namespace lockstep::cli
