#include "properties/runner/stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace lockstep::runner {
namespace {

// What M1 forbids to allocate.
bool MayAllocate(ScriptOpKind kind) {
  switch (kind) {
    case ScriptOpKind::kUpdate:
    case ScriptOpKind::kReserve:
    case ScriptOpKind::kCommit:
    case ScriptOpKind::kRollback:
    case ScriptOpKind::kClear:
      return false;
    default:
      return true;
  }
}

}  // namespace

Stage::Stage(const CacheScript& script, const ScriptSubject& subject, Probe* probe)
    : script_(script),
      geometry_(script.geometry),
      subject_(subject),
      probe_(probe),
      comparer_(geometry_, subject_) {
  Sequence first(geometry_.num_layers);
  first.subject = subject.make(script);
  ModelCacheOptions options = subject.model;
  options.geometry = geometry_;
  options.blocks_available = script.blocks;
  if (subject.windows_of) options.windows = subject.windows_of(geometry_);
  if (first.subject->view_depends_on_query() || !options.windows.empty()) {
    options.max_step_rows = first.subject->max_step_rows();
  }
  first.model = std::make_unique<ModelCache>(options);
  sequences_.push_back(std::move(first));
}

void Stage::Take(std::optional<ScriptFinding> finding) {
  if (run_.finding || !finding) return;
  run_.finding = std::move(finding);
  run_.finding->op = op_;
}

void Stage::Find(std::string_view clause, std::string what) {
  Take(ScriptFinding{op_, std::string(clause), std::move(what)});
}

void Stage::Compare() {
  for (Sequence& sequence : sequences_) {
    if (run_.finding) return;
    Take(comparer_.Compare(&sequence, kind(), sequences_.size()));
    if (!subject_.observe) continue;
    const auto is_open = [](const Sequence::Open& open) { return !open.positions.empty(); };
    subject_.observe(*sequence.subject,
                     static_cast<int32_t>(std::ranges::count_if(sequence.open, is_open)));
  }
}

Outcome Stage::Judge(Outcome subject, Outcome model) {
  if (subject != model) {
    Find(OutcomeClause(kind(), model, subject_.model.refuses_host_slots),
         fmt::format("subject: {}, model: {}", OutcomeName(subject), OutcomeName(model)));
  }
  run_.counts.threw += model > Outcome::kRefused ? 1 : 0;
  run_.counts.exhausted += model == Outcome::kExhausted ? 1 : 0;
  return subject == model ? model : Outcome::kOther;
}

void Stage::CheckAllocations(Outcome outcome, int64_t allocations) {
  if (allocations == 0 || outcome > Outcome::kRefused || MayAllocate(kind())) return;
  Find("M1", fmt::format("{} allocations in {}", allocations, ScriptOpName(kind())));
}

void Stage::CheckUnchanged(const std::optional<BlockCounts>& blocks, int64_t allocation) {
  ++run_.counts.allocations_failed;
  Compare();
  if (BlockCountsOf(*current().subject) != blocks) Find("M2", "the blocks changed");
  if (!run_.finding) return;
  run_.finding->clause = "M2";
  run_.finding->what =
      fmt::format("after allocation {} failed: {}", allocation + 1, run_.finding->what);
}

}  // namespace lockstep::runner
