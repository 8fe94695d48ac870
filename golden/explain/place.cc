#include "golden/explain/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "caches/digest.h"
#include "golden/explain/known_rows.h"

namespace lockstep {
namespace {

bool IsHeld(Stage stage) { return stage == Stage::kCacheKey || stage == Stage::kCacheValue; }

std::vector<float> AsFloats(std::span<const double> values) {
  std::vector<float> floats;
  for (double value : values) floats.push_back(static_cast<float>(value));
  return floats;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(a, b, {}, CanonicalBits, CanonicalBits);
}

// Both versions into the explanation.
void KeepValues(std::span<const float> before, std::span<const float> now, int64_t width,
                std::span<const int32_t> positions, std::span<const double> bounds,
                Explanation* explanation) {
  explanation->positions.assign(positions.begin(), positions.end());
  explanation->values = CompareValues(before, now, width, bounds);
  explanation->elements.clear();
  for (const RowDifference& row : explanation->values.rows) {
    const auto index = static_cast<size_t>(row.row);
    explanation->elements.push_back({.position = index < positions.size() ? positions[index] : -1,
                                     .row = row.row,
                                     .element = row.first,
                                     .before = row.before,
                                     .now = row.now});
  }
}

// Rows of one side of a cache, K or V, as they are and as they should be.
struct HeldRows {
  HeldPlace place;
  std::span<const float> is;
  std::span<const float> should;
};

CauseVerdict CauseOfHeldRows(const ExplainedRuns& runs, const HeldRows& rows) {
  const std::vector<double> should(rows.should.begin(), rows.should.end());
  const CausePlace place{.stage = rows.place.values ? Stage::kCacheValue : Stage::kCacheKey,
                         .width = runs.model.model->config().kv_dim(),
                         .positions = rows.place.positions,
                         .head_dim = runs.model.model->config().head_dim,
                         .row_type = rows.place.values ? runs.spec.value_type : runs.spec.key_type,
                         .is = rows.is,
                         .should = should};
  HeldPlace held = rows.place;
  held.should = rows.should;
  return ClassifyCause(place, {}, RowsAround(runs.old_run, runs.spec, held));
}

// ---- Attention --------------------------------------------------------------------------

struct Attention {
  std::vector<KvRows> now;
  std::vector<KvRows> before;
};

// Which of the steps of its operation at these positions a step is.
size_t NthOf(const ValuedRun& run, int32_t step) {
  const auto& steps = run.recording.steps;
  const RecordedStep& own = steps[static_cast<size_t>(step)];
  size_t nth = 0;
  for (int32_t i = 0; i < step; ++i) {
    const RecordedStep& other = steps[static_cast<size_t>(i)];
    if (other.op == own.op && other.positions == own.positions) ++nth;
  }
  return nth;
}

// What attention of the logged layer read in a step.
std::vector<KvRows> ViewsAt(const ValuedRun& run, int32_t step) {
  const RecordedStep* recorded = run.StepAt(step);
  if (recorded == nullptr) return {};
  return run.log.Read(recorded->op, recorded->positions, NthOf(run, step));
}

// The rows that attention read, where they are not what they should be. False when they are.
bool ExplainReadRows(const ExplainedRuns& runs, const StageRowsAt& at, const Attention& views,
                     Explanation* explanation) {
  if (views.now.size() != views.before.size()) return false;
  const auto width = static_cast<size_t>(runs.model.model->config().kv_dim());
  for (size_t query = 0; query < views.now.size(); ++query) {
    // One view serves all queries, the last of which sees the most rows.
    const int32_t last = views.now.size() == 1 ? at.positions.back() : at.positions[query];
    const size_t elements = (static_cast<size_t>(last) + 1) * width;
    for (const bool values : {false, true}) {
      const auto side = [&](const KvRows& rows) {
        return std::span(values ? rows.values : rows.keys);
      };
      const auto now = side(views.now[query]);
      const auto before = side(views.before[query]);
      if (now.size() < elements || before.size() < elements) continue;
      if (SameBits(now.first(elements), before.first(elements))) continue;
      std::vector<int32_t> positions(static_cast<size_t>(last) + 1);
      std::iota(positions.begin(), positions.end(), 0);
      const HeldRows rows{.place = {.values = values,
                                    .layer = at.layer,
                                    .sequence = explanation->place.sequence,
                                    .last_op = explanation->place.op,
                                    .positions = positions},
                          .is = now.first(elements),
                          .should = before.first(elements)};
      KeepValues(rows.should, rows.is, static_cast<int64_t>(width), positions, {}, explanation);
      explanation->side = fmt::format("{} of layer {}, as the query at position {} reads it",
                                      values ? "V" : "K", at.layer, last);
      explanation->cause = CauseOfHeldRows(runs, rows);
      return true;
    }
  }
  return false;
}

// ---- What the engine computes -----------------------------------------------------------

int32_t HeadsOf(const ModelConfig& config, Stage stage) {
  return stage >= Stage::kQuery && stage <= Stage::kAttention ? config.head_dim : 0;
}

// The same stage of the other sequences of the operation, computed again; of attention, over their
// rows.
void AddOtherSequences(const ExplainedRuns& runs, const StageRowsAt& at, const MistakeInputs& right,
                       const MistakeMaker& maker, int32_t step,
                       std::vector<CauseCandidate>* candidates) {
  const RecordedStep* own = runs.now.StepAt(step);
  const auto width = static_cast<size_t>(runs.model.model->config().kv_dim());
  for (int32_t i = 0; i < std::ssize(runs.now.recording.steps); ++i) {
    const RecordedStep& other = *runs.now.StepAt(i);
    if (other.op != own->op || other.sequence == own->sequence) continue;
    std::optional<MistakeInputs> inputs;
    if (at.stage == Stage::kAttention) {
      const auto views = ViewsAt(runs.old_run, i);
      const auto rows = static_cast<size_t>(*std::ranges::max_element(right.visible));
      if (views.size() != 1 || views[0].keys.size() < rows * width) continue;
      inputs = right;
      inputs->views = views;
    } else {
      inputs = InputsOf(other.entries, other.tokens, other.positions, at.layer, at.stage);
    }
    if (!inputs) continue;
    inputs->adapters = other.adapters;
    ReferenceRows rows = maker.Expected(*inputs);
    if (rows.values.size() != at.rows.size()) continue;
    candidates->push_back({Cause::kOtherSequence, fmt::format("sequence {}", other.sequence),
                           std::move(rows.values), std::move(rows.bounds)});
  }
}

// Whether an earlier step had rows of this stage at positions past 0: they were right, as the place
// is the first that differs.
bool RotatedBefore(const ExplainedRuns& runs, int32_t step) {
  for (int32_t i = 0; i < step; ++i) {
    if (runs.now.StepAt(i)->positions.back() > 0) return true;
  }
  return false;
}

struct Computed {
  std::vector<CauseCandidate> candidates;
  std::optional<ReferenceRows> expected;
};

Computed ComputeAgain(const ExplainedRuns& runs, const StageRowsAt& at,
                      const std::vector<KvRows>& views, int32_t step) {
  Computed computed;
  const RecordedStep* recorded = runs.now.StepAt(step);
  auto inputs =
      InputsOf(recorded->entries, recorded->tokens, recorded->positions, at.layer, at.stage);
  if (!inputs || (at.stage == Stage::kAttention && views.empty())) return computed;
  inputs->views = views;
  inputs->rotated_before = RotatedBefore(runs, step);
  inputs->adapters = recorded->adapters;
  const MistakeMaker maker(runs.model.model);
  computed.expected = maker.Expected(*inputs);
  if (computed.expected->values.size() != at.rows.size()) return {};
  computed.candidates = maker.Mistakes(*inputs);
  AddOtherSequences(runs, at, *inputs, maker, step, &computed.candidates);
  return computed;
}

// What should be there: of an agreeing run, or computed again.
struct Should {
  std::vector<double> values;
  std::vector<double> bounds = {};  // empty: to the bit
};

std::optional<Should> ShouldBe(const ExplainedRuns& runs, const StageRowsAt& at,
                               const std::string& digest, const Computed& computed,
                               Explanation* explanation) {
  if (runs.exact) {
    const auto old = RowsAt(runs.old_run, explanation->place);
    if (!old || old->rows.size() != at.rows.size()) return std::nullopt;
    return Should{{old->rows.begin(), old->rows.end()}};
  }
  if (runs.old_rows) return Should{{runs.old_rows->begin(), runs.old_rows->end()}};
  if (!computed.expected) return std::nullopt;
  const std::vector<double>& values = computed.expected->values;
  if (DigestOfFloats(AsFloats(values)).Hex() == digest) {
    explanation->old_side = OldSide::kExact;
    explanation->old_from = "the reference transformer, whose rows have the golden's digest";
    return Should{values};
  }
  if (IsHeld(at.stage)) return std::nullopt;  // rows are stored, and not rounded
  explanation->old_side = OldSide::kApproximate;
  explanation->old_from =
      "the reference transformer in double precision, from the rows of the stages before, which "
      "are the golden's: within the rounding bounds of the stage";
  return Should{values, computed.expected->bounds};
}

}  // namespace

void ExplainStage(const ExplainedRuns& runs, const StageRowsAt& at, const std::string& digest,
                  Explanation* explanation) {
  const ModelConfig& config = runs.model.model->config();
  const int32_t step = explanation->place.step;
  explanation->positions.assign(at.positions.begin(), at.positions.end());
  Attention views;
  if (at.stage == Stage::kAttention) {
    views = {ViewsAt(runs.now, step), ViewsAt(runs.old_run, step)};
    if (ExplainReadRows(runs, at, views, explanation)) return;
  }
  const Computed computed = ComputeAgain(runs, at, views.before, step);
  const std::optional<Should> should = ShouldBe(runs, at, digest, computed, explanation);
  if (!should) {
    explanation->cause.evidence = "nothing gives the rows of the golden's side";
    return;
  }
  const std::vector<float> before = AsFloats(should->values);
  KeepValues(before, at.rows, at.width, at.positions, should->bounds, explanation);
  if (IsHeld(at.stage)) {
    const HeldRows rows{.place = {.values = at.stage == Stage::kCacheValue,
                                  .layer = at.layer,
                                  .sequence = explanation->place.sequence,
                                  .last_op = explanation->place.op,
                                  .step = step,
                                  .positions = at.positions},
                        .is = at.rows,
                        .should = before};
    explanation->cause = CauseOfHeldRows(runs, rows);
    return;
  }
  const CausePlace place{.stage = at.stage,
                         .width = at.width,
                         .positions = at.positions,
                         .head_dim = HeadsOf(config, at.stage),
                         .is = at.rows,
                         .should = should->values,
                         .bounds = should->bounds};
  explanation->cause = ClassifyCause(place, computed.candidates, {});
}

void ExplainHeldRows(const ExplainedRuns& runs, Explanation* explanation) {
  const std::pair key(explanation->place.op, explanation->place.sequence);
  const auto now = runs.now.states.find(key);
  const auto& old_states = runs.same_rows ? runs.now.states : runs.old_run.states;
  const auto before = old_states.find(runs.same_rows.value_or(key));
  explanation->cause.evidence = "nothing gives the rows of the golden's side";
  if (now == runs.now.states.end() || before == old_states.end()) return;
  const auto width = static_cast<size_t>(runs.model.model->config().kv_dim());
  for (size_t layer = 0; layer < now->second.size(); ++layer) {
    for (const bool values : {false, true}) {
      const auto side = [&](const KvRows& rows) {
        return std::span(values ? rows.values : rows.keys);
      };
      const auto is = side(now->second[layer]);
      const auto should = side(before->second[layer]);
      if (is.size() != should.size() || SameBits(is, should)) continue;
      std::vector<int32_t> positions(is.size() / width);
      std::iota(positions.begin(), positions.end(), 0);
      const HeldRows rows{.place = {.values = values,
                                    .layer = static_cast<int32_t>(layer),
                                    .sequence = explanation->place.sequence,
                                    .last_op = explanation->place.op,
                                    .positions = positions},
                          .is = is,
                          .should = should};
      KeepValues(should, is, static_cast<int64_t>(width), positions, {}, explanation);
      explanation->side = fmt::format("{} of layer {}", values ? "V" : "K", layer);
      explanation->cause = CauseOfHeldRows(runs, rows);
      return;
    }
  }
}

}  // namespace lockstep
