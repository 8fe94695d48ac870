// lockstep golden review: what waits for a decision, one file after the other, a key each. Keys are
// those of cargo-insta's review.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "caches/error.h"
#include "ci/lockstep/git_author.h"
#include "ci/lockstep/golden_commands.h"
#include "ci/lockstep/terminal.h"
#include "engine/math.h"
#include "golden/accept.h"
#include "golden/explain.h"

namespace lockstep::cli {
namespace {

struct ReviewFlags {
  GoldenFlags golden;
  std::vector<std::string> names;
  std::string issue;
  bool markdown = false;
};

constexpr std::string_view kKeys =
    "  a accept   take the new file; you are asked why\n"
    "  r reject   drop the pending file, keep the golden one\n"
    "  s skip     decide later\n"
    "  d detail   show every fact that changes, or the outline again\n"
    "  i explain  say what probably caused it\n"
    "  q quit     leave the rest undecided\n";

class Review {
 public:
  explicit Review(const ReviewFlags& flags) : flags_(flags), tree_(flags.golden.tree) {}

  ExitCode Run() {
    for (const GoldenName& golden : FinishAcceptances(tree_)) {
      fmt::print("finished {}, whose acceptance was interrupted\n", golden.Text());
    }
    const std::vector<PendingGolden> all = Waiting();
    for (size_t i = 0; i < all.size() && !quit_; ++i) {
      fmt::print("\n[{}/{}] {}\n", i + 1, all.size(), PendingTitle(all[i]));
      Decide(all[i]);
    }
    const size_t left = all.size() - accepted_ - rejected_;
    fmt::print("\naccepted {}, rejected {}, undecided {}\n", accepted_, rejected_, left);
    if (accepted_ > 0) {
      fmt::print("commit what you accepted together with {}, which says why\n", tree_.LedgerPath());
    }
    if (rejected_ > 0) {
      fmt::print(
          "lockstep golden check brings back what you rejected, as long as it is computed\n");
    }
    return left > 0 ? ExitCode::kDifference : ExitCode::kHolds;
  }

  std::vector<PendingGolden> Waiting() const {
    const std::vector<PendingGolden> all = FindPending(tree_, Ledger::Read(tree_.LedgerPath()));
    return flags_.names.empty() ? all : ChoosePending(all, flags_.names);
  }

 private:
  // Until the file is decided or left.
  void Decide(const PendingGolden& pending) {
    bool detail = false;
    PrintWhatItIs(pending);
    fmt::print("{}{}", PendingText(pending, detail), kKeys);
    for (;;) {
      const auto key = ReadKey();
      if (!key || *key == 'q') {
        quit_ = true;
        return;
      }
      if (*key == 's') return;
      if (*key == 'a' && Accept(pending)) return;
      if (*key == 'r' && Reject(pending)) return;
      if (*key == 'd') {
        detail = !detail;
        fmt::print("{}", PendingText(pending, detail));
      }
      if (*key == 'i') ShowCause(pending);
      fmt::print("{}: a accept, r reject, s skip, d detail, i explain, q quit\n",
                 pending.place.golden.Text());
    }
  }

  void PrintWhatItIs(const PendingGolden& pending) const {
    const GoldenName& golden = pending.place.golden;
    if (pending.after) {
      fmt::print("{}", TopicText("case", ReadScenario(tree_.folder, golden.scenario).why));
    }
    const Ledger ledger = Ledger::Read(tree_.LedgerPath());
    if (const LedgerEntry* last = ledger.Last(golden)) {
      fmt::print("{}", TopicText("last", fmt::format("{} by {}: {}", last->date, last->author,
                                                     last->reason)));
    }
  }

  // Whether it was accepted.
  bool Accept(const PendingGolden& pending) {
    const auto again =
        reason_.empty() ? std::string() : fmt::format(" (Enter: \"{}\" again)", reason_);
    const auto line = ReadTerminalLine(fmt::format("why are the new bits right?{}\n> ", again));
    if (!line || (line->empty() && reason_.empty())) {
      fmt::print("no reason, so nothing is accepted\n");
      return false;
    }
    AcceptRequest request{.tree = tree_,
                          .names = {pending.place.golden.Text()},
                          .reason = line->empty() ? reason_ : *line,
                          .issue = flags_.issue};
    request.record.models = ModelsFolder();
    request.on_progress = [](const std::string& text) {
      fmt::print("\r\033[K{}", text);
      std::fflush(stdout);
    };
    try {
      const GitAuthor author = AskGitForAuthor(tree_.folder);
      request.author = author.author;
      request.date = author.date;
      const AcceptResult result = AcceptGoldens(request);
      fmt::print("\r\033[K");
      for (const AcceptRefusal& refusal : result.refusals) {
        fmt::print("REFUSED {}\n", refusal.sentence);
      }
      if (!result.refusals.empty()) return false;
    } catch (const Error& error) {
      fmt::print("\r\033[K{}\n", error.what());
      return false;
    }
    reason_ = request.reason;
    ++accepted_;
    fmt::print("accepted {}: {}\n", pending.place.golden.Text(), reason_);
    return true;
  }

  bool Reject(const PendingGolden& pending) {
    try {
      RejectGoldens(tree_, std::vector<std::string>{pending.place.golden.Text()});
    } catch (const Error& error) {
      fmt::print("{}\n", error.what());
      return false;
    }
    ++rejected_;
    fmt::print("rejected {}\n", pending.place.golden.Text());
    return true;
  }

  void ShowCause(const PendingGolden& pending) const {
    if (!pending.before || !pending.after) {
      fmt::print("there is no old golden file to compare with\n");
      return;
    }
    try {
      const Scenario scenario = ReadScenario(tree_.folder, pending.place.golden.scenario);
      const Explanation explanation =
          Explain(scenario, *pending.before, {}, {.models = ModelsFolder(), .subject = {}});
      fmt::print("{}", ExplanationText(explanation));
    } catch (const Error& error) {
      fmt::print("{}\n", error.what());
    }
  }

  const ReviewFlags& flags_;
  const GoldenTree& tree_;
  std::string reason_;  // of the last acceptance
  size_t accepted_ = 0;
  size_t rejected_ = 0;
  bool quit_ = false;
};

ExitCode RunReview(const ReviewFlags& flags) {
  CheckFloatingPointEnvironment();
  Review review(flags);
  if (flags.markdown) {
    const std::vector<PendingGolden> all = review.Waiting();
    fmt::print("{}", PendingMarkdown(all, {}));
    return all.empty() ? ExitCode::kHolds : ExitCode::kDifference;
  }
  if (!HasTerminal()) {
    throw Error({"standard input or output", "is no terminal to review on",
                 "lockstep golden accept CASE --reason TEXT and lockstep golden reject CASE do the "
                 "same, lockstep golden review --markdown prints what waits"});
  }
  if (review.Waiting().empty()) {
    fmt::print("nothing waits for a decision; lockstep golden check looks for changes\n");
    return ExitCode::kHolds;
  }
  return review.Run();
}

std::string Details() {
  return fmt::format(
      "What waits for a decision is shown one file after the other, and a key decides:\n\n{}\n"
      "Accepting asks for a reason and records the file four times to be sure, see\n"
      "lockstep golden accept --help. The exit code is 1 when something stays undecided.\n",
      kKeys);
}

}  // namespace

Command GoldenReviewCommand() {
  const auto values = std::make_shared<ReviewFlags>();
  std::vector<Flag> flags = {
      {"case", "CASE", "cases or files to review (default: all that wait)", &values->names},
      {"--issue", "TEXT", "number or address of an issue, for the ledger", &values->issue},
      {"--markdown", "", "print what waits as Markdown, and ask nothing", &values->markdown}};
  const std::vector<Flag> shared = values->golden.Flags();
  flags.insert(flags.end(), shared.begin(), shared.end());
  return {.name = "review",
          .summary = "Decide on pending golden files one after the other, in a terminal",
          .flags = std::move(flags),
          .run = [values] { return RunReview(*values); },
          .details = Details()};
}

}  // namespace lockstep::cli
