#include "golden/accept.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "caches/error.h"
#include "engine/math.h"

namespace lockstep {
namespace {

using Kind = PendingGolden::Kind;

constexpr int32_t kOtherThreads = 3;

void RefuseInContinuousIntegration() {
  if (!InContinuousIntegration()) return;
  throw Error({"CI", "is set: nothing is accepted or rejected where nobody looks",
               "do it in a checkout of your own and commit the result"});
}

std::vector<GoldenName> Finish(const GoldenTree& tree) {
  const std::string ledger_path = tree.LedgerPath();
  return FinishInterrupted(ledger_path, GoldenPlaces(tree, Ledger::Read(ledger_path)));
}

std::string NamesOf(std::span<const PendingGolden> all) {
  std::string text;
  for (const PendingGolden& pending : all) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", pending.place.golden.Text());
  }
  return text;
}

void CheckAbout(const AcceptRequest& request) {
  if (request.reason.empty() && request.all_because.empty()) {
    throw Error({"--reason", "is not given", "say what changed the bits and why that is right"});
  }
  if (!request.reason.empty() && !request.all_because.empty()) {
    throw Error({"--all-because", "is a reason, and --reason is another", "give one of them"});
  }
  const bool all = request.reason.empty();
  CheckReason(all ? "--all-because" : "--reason", all ? request.all_because : request.reason);
  if (!request.issue.empty() && request.issue.find_first_of("\n\r\t") != std::string::npos) {
    throw Error({"--issue", "has several lines", "give a number or an address"});
  }
}

std::vector<PendingGolden> Choose(const AcceptRequest& request, const Ledger& ledger) {
  const std::vector<PendingGolden> all = FindPending(request.tree, ledger);
  if (all.empty()) {
    throw Error({request.tree.folder, "nothing waits for a decision",
                 "lockstep golden check writes pending files of what changed"});
  }
  if (!request.names.empty()) return ChoosePending(all, request.names);
  if (!request.all_because.empty()) return all;
  throw Error({"command line", fmt::format("no case is named; pending: {}", NamesOf(all)),
               "name what you looked at and give --reason TEXT, or give --all-because TEXT"});
}

void CheckCount(const AcceptRequest& request, std::span<const PendingGolden> chosen) {
  const auto counts = [](const PendingGolden& pending) {
    return !pending.before || pending.before->header.arithmetic >= kArithmeticVersion;
  };
  const auto count = static_cast<size_t>(std::ranges::count_if(chosen, counts));
  if (count <= kAcceptFilesMax || !request.all_because.empty()) return;
  throw Error({"command line",
               fmt::format("{} files at once, which nobody looks at one by one", count),
               fmt::format("name {} at most, or give --all-because TEXT instead of --reason",
                           kAcceptFilesMax)});
}

// Records one file again, in every way that must not change a bit.
class Prover {
 public:
  explicit Prover(const AcceptRequest& request) : request_(request) {}

  std::optional<AcceptRefusal> Refuses(const PendingGolden& pending) const {
    const GoldenName& golden = pending.place.golden;
    const Scenario scenario = ReadScenario(request_.tree.folder, golden.scenario);
    if (const auto why = WhyNotHere(scenario, request_.record.models)) {
      throw Error({golden.Text(), fmt::format("cannot be recorded again: {}", *why),
                   "accept it where the model file is"});
    }
    for (const RowsGroup& group : GroupsOf(scenario)) {
      if (group.rows + ".golden" == golden.file) return Refuses(pending, scenario, group);
    }
    return std::nullopt;
  }

 private:
  std::optional<AcceptRefusal> Refuses(const PendingGolden& pending, const Scenario& scenario,
                                       const RowsGroup& group) const {
    const GoldenName& golden = pending.place.golden;
    Tell(golden, "once");
    const MergedGolden first = RecordOn(scenario, group, {"once", &SelectKernels(), 1});
    if (!first.disagreements.empty()) {
      return RefusalOf(golden, "caches that share it differ, {}",
                       {first.disagreements, first.cache});
    }
    if (auto changes = CompareGoldens(*pending.after, first.golden); !changes.empty()) {
      return RefusalOf(golden,
                       pending.kind == Kind::kUnaccounted
                           ? "the golden file is not what this binary computes"
                           : "the pending file is not what this binary computes now; "
                             "`lockstep golden check` writes it anew",
                       {std::move(changes), ""});
    }
    for (const AcceptVariation& variation : AcceptVariations()) {
      Tell(golden, variation.name);
      const MergedGolden again = RecordOn(scenario, group, variation);
      auto changes = again.disagreements.empty() ? CompareGoldens(first.golden, again.golden)
                                                 : again.disagreements;
      if (changes.empty()) continue;
      return RefusalOf(golden, "recorded {} it gives other bits",
                       {std::move(changes), variation.name});
    }
    return std::nullopt;
  }

  MergedGolden RecordOn(const Scenario& scenario, const RowsGroup& group,
                        const AcceptVariation& variation) const {
    RecordOptions options = request_.record;
    options.kernels = variation.kernels;
    options.threads = variation.threads;
    return RecordGroup(scenario, group, options);
  }

  struct Why {
    std::vector<FactChange> changes;
    std::string who;
  };
  static AcceptRefusal RefusalOf(const GoldenName& golden, std::string_view what, Why why) {
    const std::string first = why.changes.front().Sentence();
    return {golden,
            fmt::format("{}: {}; first at {}", golden.Text(),
                        fmt::format(fmt::runtime(what), why.who), first),
            std::move(why.changes)};
  }

  void Tell(const GoldenName& golden, std::string_view way) const {
    if (request_.on_progress) {
      request_.on_progress(fmt::format("recording {} {}", golden.Text(), way));
    }
  }

  const AcceptRequest& request_;
};

std::vector<GoldenChange> ChangesOf(std::span<const PendingGolden> chosen) {
  std::vector<GoldenChange> changes;
  for (const PendingGolden& pending : chosen) {
    std::optional<std::string> text;
    if (pending.kind != Kind::kRemoved) text = pending.text;
    changes.push_back({pending.place, std::move(text)});
  }
  return changes;
}

}  // namespace

std::vector<AcceptVariation> AcceptVariations() {
  const KernelTable& usual = SelectKernels();
  std::vector<AcceptVariation> variations = {{"a second time", &usual, 1}};
  // The portable table is the one that no machine lacks, and the farthest from the others.
  const KernelTable* other = nullptr;
  for (const KernelTable* table : AvailableKernels()) {
    if (table == &usual) continue;
    if (other == nullptr || table->name == std::string_view("scalar")) other = table;
  }
  if (other != nullptr) {
    variations.push_back({fmt::format("with kernels {}", other->name), other, 1});
  }
  variations.push_back({fmt::format("with {} threads", kOtherThreads), &usual, kOtherThreads});
  return variations;
}

void CheckReason(std::string_view where, std::string_view reason) {
  size_t words = 0;
  bool in_word = false;
  bool one_line = true;
  for (const char c : reason) {
    one_line = one_line && static_cast<unsigned char>(c) >= 0x20;
    const bool starts = c != ' ' && !in_word;
    words += starts ? 1 : 0;
    in_word = c != ' ';
  }
  if (!one_line) throw Error({std::string(where), "has control characters", "give one line"});
  if (words < kReasonWordsMin) {
    throw Error({std::string(where), fmt::format("'{}' is no reason", reason),
                 fmt::format("say what changed the bits and why that is right, in {} words or more",
                             kReasonWordsMin)});
  }
  try {
    (void)nlohmann::json(reason).dump();
  } catch (const nlohmann::json::exception&) {
    throw Error({std::string(where), "is not UTF-8", "set the terminal to UTF-8"});
  }
}

std::vector<GoldenName> FinishAcceptances(const GoldenTree& tree) {
  RefuseInContinuousIntegration();
  const GoldenLock lock(tree.folder);
  return Finish(tree);
}

AcceptResult AcceptGoldens(const AcceptRequest& asked) {
  RefuseInContinuousIntegration();
  const GoldenLock lock(asked.tree.folder);
  AcceptResult result;
  result.finished = Finish(asked.tree);
  // A command that was interrupted and is given again has to hold.
  AcceptRequest request = asked;
  std::erase_if(request.names, [&](const std::string& name) {
    return std::ranges::any_of(
        result.finished, [&](const GoldenName& golden) { return ChoosesGolden(name, golden); });
  });
  const bool named = request.names.size() < asked.names.size();
  const bool no_reason = request.reason.empty() && request.all_because.empty();
  if (!result.finished.empty() && request.names.empty() && (named || no_reason)) return result;
  const std::string ledger_path = request.tree.LedgerPath();
  const std::vector<PendingGolden> chosen = Choose(request, Ledger::Read(ledger_path));
  CheckAbout(request);
  CheckCount(request, chosen);
  const Prover prover(request);
  for (const PendingGolden& pending : chosen) {
    if (pending.kind == Kind::kRemoved) continue;
    if (auto refusal = prover.Refuses(pending)) result.refusals.push_back(std::move(*refusal));
  }
  if (!result.refusals.empty()) return result;
  result.acceptance = {.date = request.date,
                       .author = request.author,
                       .reason = request.reason.empty() ? request.all_because : request.reason,
                       .issue = request.issue,
                       .arithmetic = kArithmeticVersion};
  Publish(ledger_path, ChangesOf(chosen), result.acceptance);
  result.accepted = chosen;
  return result;
}

std::vector<PendingGolden> RejectGoldens(const GoldenTree& tree,
                                         std::span<const std::string> names) {
  RefuseInContinuousIntegration();
  const GoldenLock lock(tree.folder);
  Finish(tree);
  const std::vector<PendingGolden> all = FindPending(tree, Ledger::Read(tree.LedgerPath()));
  std::vector<PendingGolden> chosen = names.empty() ? all : ChoosePending(all, names);
  const auto has_file = [](const PendingGolden& pending) {
    return pending.kind == Kind::kNew || pending.kind == Kind::kChanged;
  };
  if (names.empty()) std::erase_if(chosen, [&](const auto& pending) { return !has_file(pending); });
  if (chosen.empty()) {
    throw Error({tree.folder, "there is no pending file", "nothing is left to reject"});
  }
  for (const PendingGolden& pending : chosen) {
    if (has_file(pending)) continue;
    throw Error({pending.place.golden.Text(),
                 "there is no pending file that could be rejected: the golden file itself waits",
                 "restore it, or its case, from git"});
  }
  for (const PendingGolden& pending : chosen) {
    if (::unlink(pending.place.pending_path.c_str()) == 0 || errno == ENOENT) continue;
    throw Error({pending.place.pending_path,
                 fmt::format("cannot remove it: {}", std::strerror(errno)),
                 "let its folder be one that can be written"});
  }
  return chosen;
}

}  // namespace lockstep
