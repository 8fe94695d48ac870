#include "golden/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "caches/check.h"
#include "caches/digest.h"
#include "golden/explain/place.h"
#include "golden/explain/runs.h"

namespace lockstep {
namespace {

using Changes = std::vector<FactChange>;

class Explainer {
 public:
  Explainer(const Scenario& scenario, const GoldenFile& golden, std::string cache,
            const ExplainOptions& options)
      : scenario_(scenario), golden_(golden), options_(options) {
    explanation_.name = scenario.name;
    explanation_.rows = golden.header.rows;
    explanation_.cache = std::move(cache);
    now_ = Record(scenario_, ExplainedWay(explanation_.cache, options_).record).golden;
    explanation_.changes = CompareGoldens(Own(golden_), Own(now_));
  }

  const Changes& changes() const { return explanation_.changes; }

  Explanation Explain() {
    if (changes().empty()) return std::move(explanation_);
    Descend();
    Mark();
    Follow();
    const FactChange& first = changes().front();
    if (first.place.op < 0) {
      explanation_.what = "header";
      explanation_.cause = {Cause::kUnknown,
                            "the golden was recorded of something else: nothing is comparable", 0};
    } else if (first.kind == FactChange::Kind::kChanged && FindStage(first.place.base_name())) {
      explanation_.what = "stage";
      ExplainRows();
    } else if (first.place.base_name() == "rows") {
      explanation_.what = "rows";
      ExplainRows();
    } else {
      explanation_.what = "decision";
      Decide();
    }
    return std::move(explanation_);
  }

 private:
  GoldenFile Own(const GoldenFile& golden) const {
    return FactsOfCache(golden, explanation_.cache);
  }

  void Descend() {
    explanation_.place = changes().front().place;
    explanation_.place.value.clear();
    for (const Fact& fact : golden_.facts) {
      if (fact.op == explanation_.place.op && fact.name == "run")
        explanation_.operation = fact.value;
    }
  }

  // ---- What is left and right of it -------------------------------------------------------

  void Mark() {
    std::map<std::string, const FactChange*> changed;
    for (const FactChange& change : changes()) changed[change.place.Place()] = &change;
    for (const Fact& fact : golden_.facts) {
      if (fact.step < 0) continue;
      if (fact.name == "input") {
        explanation_.steps = fact.step + 1;
        explanation_.step_names.push_back(fmt::format("op {}, sequence {}, {}", fact.op,
                                                      fact.sequence,
                                                      fact.value.substr(0, fact.value.find(' '))));
      }
      if (!FindStage(fact.name)) continue;
      explanation_.marks.push_back({.step = fact.step,
                                    .layer = fact.layer,
                                    .stage = fact.name,
                                    .changed = changed.contains(fact.Place())});
    }
  }

  void Follow() {
    for (const FactChange& change : changes()) {
      if (change.place.name != "top5" || change.kind != FactChange::Kind::kChanged) continue;
      const auto best = [](const std::string& top) { return top.substr(0, top.find(' ')); };
      explanation_.downstream.push_back(
          {.op = change.place.op,
           .step = change.place.step,
           .sequence = change.place.sequence,
           .before = change.old_value,
           .now = change.new_value,
           .argmax = best(change.old_value) != best(change.new_value)});
    }
  }

  // ---- Both sides -------------------------------------------------------------------------

  // The first change of a run against the golden, as far as it does not depend on the cache.
  std::optional<FactChange> FirstChange(const GoldenFile& run) const {
    const Changes changes = CompareGoldens(FactsOfCache(golden_, {}), run);
    return changes.empty() ? std::nullopt : std::optional(changes.front());
  }

  // The first way that agrees with the golden at the place and before it. `before`: the model
  // cache, when it agrees before it alone.
  std::optional<RunWay> FindWay(std::optional<RunWay>* before) {
    const Fact& place = explanation_.place;
    for (const RunWay& way : WaysBeside(scenario_, explanation_.cache, options_)) {
      const std::optional<FactChange> first = FirstChange(FactsOfWay(scenario_, way));
      TriedWay tried{.name = way.name, .agrees = !first || FactBefore(place, first->place)};
      if (!tried.agrees) tried.differs = first->place.Place();
      if (!tried.agrees && way.model_cache && !FactBefore(first->place, place)) *before = way;
      if (options_.reference_only) continue;
      explanation_.tried.push_back(tried);
      if (tried.agrees) return way;
    }
    return std::nullopt;
  }

  void ExplainRows() {
    const Fact& place = explanation_.place;
    const RunWay own = ExplainedWay(explanation_.cache, options_);
    std::optional<RunWay> before;
    const std::optional<RunWay> chosen = FindWay(&before);
    const ValuedRun now = RunWithValues(scenario_, own, place.layer);
    const RunWay& other = chosen ? *chosen : before ? *before : own;
    const ValuedRun old_run = RunWithValues(scenario_, other, place.layer);
    if (chosen) {
      explanation_.old_side = OldSide::kExact;
      explanation_.old_from =
          fmt::format("{}: all its digests up to this place are the golden's", chosen->name);
    }
    const ScenarioModel model = LoadScenarioModel(scenario_, options_.models);
    const CacheSpec spec = ParseCacheSpec(explanation_.cache);
    ExplainedRuns runs{model, spec, now, old_run, chosen.has_value()};
    const std::optional<StageRowsAt> at = RowsAt(now, place);
    if (!chosen && at) runs.old_rows = OneByOne(*now.StepAt(place.step), *at);
    if (!chosen && explanation_.what == "rows") runs.same_rows = SameRows();
    ExplainAt(runs, &explanation_);
    if (explanation_.cause.cause == Cause::kUnknown) AskPoison(own, runs);
  }

  // Another hash of the golden that is the same, as after a save or a fork, and holds.
  std::optional<std::pair<int32_t, int32_t>> SameRows() {
    for (const Fact& fact : golden_.facts) {
      if (fact.name != "rows" || fact.value != changes().front().old_value) continue;
      if (std::ranges::find(now_.facts, fact) == now_.facts.end()) continue;
      explanation_.old_side = OldSide::kExact;
      explanation_.old_from = fmt::format(
          "what sequence {} holds after operation {}, whose hash is the golden's of this place",
          fact.sequence, fact.op);
      return std::pair(fact.op, fact.sequence);
    }
    return std::nullopt;
  }

  void ExplainAt(const ExplainedRuns& runs, Explanation* explanation) const {
    if (explanation->what == "rows") return ExplainHeldRows(runs, explanation);
    const std::optional<StageRowsAt> at = RowsAt(runs.now, explanation->place);
    if (!at) {
      explanation->cause.evidence = "the step has no such rows now";
      return;
    }
    ExplainStage(runs, *at, changes().front().old_value, explanation);
  }

  // Memory without rows may hold anything. Once more with poison in it: what is NaN then was never
  // written.
  void AskPoison(RunWay own, const ExplainedRuns& runs) {
    own.poisoned = true;
    const ValuedRun now = RunWithValues(scenario_, own, explanation_.place.layer);
    Explanation poisoned = explanation_;
    ExplainAt({runs.model, runs.spec, now, runs.old_run, runs.exact, runs.old_rows, runs.same_rows},
              &poisoned);
    if (poisoned.cause.cause != Cause::kUnwritten) return;
    explanation_.cause = poisoned.cause;
    explanation_.cause.evidence += ", once memory without rows is poisoned";
  }

  // The last way: the tokens one by one, scalar, on the model cache.
  std::optional<std::vector<float>> OneByOne(const RecordedStep& step, const StageRowsAt& at) {
    if (options_.reference_only) return std::nullopt;
    RunWay way = ExplainedWay(explanation_.cache, options_);
    way.record.subject = {};
    way.record.kernels = AvailableKernels().front();
    way.model_cache = true;
    auto rows = RowsTokenByToken(scenario_, way, step, at);
    const bool agrees = rows && DigestOfFloats(*rows).Hex() == changes().front().old_value;
    TriedWay tried{.name = "token by token on the model cache, kernels scalar", .agrees = agrees};
    if (!agrees) tried.differs = "these rows";
    explanation_.tried.push_back(tried);
    if (!agrees) return std::nullopt;
    explanation_.old_side = OldSide::kExact;
    explanation_.old_from = fmt::format("{}: the digest of these rows is the golden's", tried.name);
    return rows;
  }

  // ---- Facts without rows -----------------------------------------------------------------

  void Decide() {
    const FactChange& first = changes().front();
    const std::string_view name = first.place.base_name();
    // A step that is gone or new is what an operation that ended otherwise leaves.
    const auto outcome = std::ranges::find_if(changes(), [&](const FactChange& change) {
      return change.place.op == first.place.op && change.place.name == "outcome";
    });
    if (outcome != changes().end()) {
      explanation_.place = outcome->place;
      explanation_.cause = {
          Cause::kOutcome,
          fmt::format("operation {} ({}) ends with '{}', it ended with '{}'", first.place.op,
                      explanation_.operation, outcome->new_value, outcome->old_value),
          1};
    } else if (name == "gate") {
      explanation_.cause = {
          Cause::kWritePath,
          fmt::format("the rows are the same, the calls are not: {} instead of {}", first.new_value,
                      first.old_value),
          1};
    } else if (name == "length") {
      explanation_.cause = {Cause::kLength,
                            fmt::format("sequence {} has {} rows, it had {}", first.place.sequence,
                                        first.new_value, first.old_value),
                            1};
    } else if (name == "stored") {
      explanation_.cause = {Cause::kQuantization,
                            "the rows read as they did, and other bytes are stored for them", 1};
    } else if (name == "input") {
      const auto at = [](const std::string& input) { return input.substr(0, input.find(' ')); };
      explanation_.cause = at(first.old_value) == at(first.new_value)
                               ? CauseVerdict{Cause::kOutcome, "the step is of other tokens", 1}
                               : CauseVerdict{Cause::kWrongPosition,
                                              fmt::format("the step is {}, it was {}",
                                                          at(first.new_value), at(first.old_value)),
                                              1};
    } else {
      explanation_.cause = {Cause::kUnknown, first.Sentence(), 0};
    }
  }

  const Scenario& scenario_;
  const GoldenFile& golden_;
  const ExplainOptions& options_;
  GoldenFile now_;
  Explanation explanation_;
};

}  // namespace

std::string_view OldSideName(OldSide side) {
  switch (side) {
    case OldSide::kNone:
      return "digest only";
    case OldSide::kExact:
      return "to the bit";
    case OldSide::kApproximate:
      return "approximate";
  }
  return "?";
}

Explanation Explain(const Scenario& scenario, const GoldenFile& golden, const std::string& cache,
                    const ExplainOptions& options) {
  if (!cache.empty()) return Explainer(scenario, golden, cache, options).Explain();
  std::optional<Explainer> earliest;
  for (const RowsGroup& group : GroupsOf(scenario)) {
    if (group.rows != golden.header.rows) continue;
    for (const std::string& name : group.caches) {
      Explainer explainer(scenario, golden, name, options);
      const bool first =
          !earliest || earliest->changes().empty() ||
          (!explainer.changes().empty() &&
           FactBefore(explainer.changes().front().place, earliest->changes().front().place));
      if (first) earliest.emplace(std::move(explainer));
    }
  }
  LS_CHECK(earliest.has_value(), "case {} has no caches of rows {}", scenario.name,
           golden.header.rows);
  return earliest->Explain();
}

}  // namespace lockstep
