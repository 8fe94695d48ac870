#include "properties/operation_classes.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, kOperationClasses> kNames = {"refused_then_committed",
                                                                    "reserve_replaces",
                                                                    "commit_twice",
                                                                    "commit_other",
                                                                    "commit_with_gap",
                                                                    "update_over_reservation",
                                                                    "rollback_over_reservation",
                                                                    "write_after_rollback",
                                                                    "fork_over_reservation",
                                                                    "end_over_reservation",
                                                                    "restore_over_reservation",
                                                                    "exhausted_over_reservation",
                                                                    "interleaved",
                                                                    "redo",
                                                                    "rewrite_after_fork"};

}  // namespace

std::string_view OperationClassName(OperationClass operation_class) {
  return kNames.at(static_cast<size_t>(operation_class));
}

void OperationClassCounter::Add(OperationClass operation_class, bool holds) {
  (*counts_)[static_cast<size_t>(operation_class)] += holds ? 1 : 0;
}

void OperationClassCounter::CountReserve(const ScriptOp& op, bool granted,
                                         const OperationContext& context) {
  Layer& layer = At(context.sequence, op.layer);
  if (granted) Add(OperationClass::kReserveReplaces, !context.open.empty());
  layer.refused = !granted && !context.open.empty();
  if (granted) layer.closed_by_rollback = false;
}

void OperationClassCounter::CountCommit(const ScriptOp& op, const OperationContext& context) {
  Layer& layer = At(context.sequence, op.layer);
  if (op.positions.empty()) return;
  if (op.positions != context.open) {
    Add(OperationClass::kCommitTwice, op.positions == layer.committed);
    Add(OperationClass::kCommitOther, !context.open.empty());
    return;
  }
  Add(OperationClass::kRefusedThenCommitted, layer.refused);
  Add(OperationClass::kCommitWithGap, op.positions[0] > context.length);
  layer.committed = op.positions;
  layer.refused = false;
  CountWritten(op, context);
}

// Rows became visible.
void OperationClassCounter::CountWritten(const ScriptOp& op, const OperationContext& context) {
  Layer& layer = At(context.sequence, op.layer);
  const auto taken = [&](int32_t p) { return p >= context.length && p < layer.taken_to; };
  Add(OperationClass::kRedo, std::ranges::any_of(op.positions, taken));
  const int32_t shared = std::min(layer.shared_rows, context.length);
  const auto in_both = [&](int32_t p) { return p < shared; };
  Add(OperationClass::kRewriteAfterFork, std::ranges::any_of(op.positions, in_both));
  Add(OperationClass::kInterleaved,
      writers_[1] == context.sequence && writers_[0] != context.sequence);
  if (writers_[0] != context.sequence) writers_ = {context.sequence, writers_[0]};
  int32_t& length = lengths_[{context.sequence, op.layer}];
  length = std::max(context.length, *std::ranges::max_element(op.positions) + 1);
}

void OperationClassCounter::CountRollback(const OperationContext& context) {
  Add(OperationClass::kRollbackOverReservation, context.any_open);
  for (auto& [place, length] : lengths_) {
    if (place.first != context.sequence) continue;
    Layer& layer = layers_[place];
    layer.taken_to = std::max(layer.taken_to, length);
  }
  if (!context.any_open) return;
  for (auto& [place, layer] : layers_) {
    if (place.first == context.sequence) layer.closed_by_rollback = true;
  }
}

void OperationClassCounter::Count(const ScriptOp& op, Outcome outcome,
                                  const OperationContext& context, OperationClassCounts* counts) {
  counts_ = counts;
  const bool done = outcome == Outcome::kDone;
  Add(OperationClass::kExhaustedOverReservation,
      outcome == Outcome::kExhausted && context.any_open);
  switch (op.kind) {
    case ScriptOpKind::kReserve:
      if (outcome <= Outcome::kRefused) CountReserve(op, outcome == Outcome::kGranted, context);
      return;
    case ScriptOpKind::kCommit:
      if (outcome == Outcome::kDone || outcome == Outcome::kLogic) CountCommit(op, context);
      return;
    case ScriptOpKind::kUpdate:
      if (!done || op.positions.empty()) return;
      Add(OperationClass::kUpdateOverReservation, !context.open.empty());
      return CountWritten(op, context);
    case ScriptOpKind::kRollback:
    case ScriptOpKind::kClear:
      if (done) CountRollback(context);
      return;
    case ScriptOpKind::kWrite:
      return Add(OperationClass::kWriteAfterRollback,
                 context.open.empty() && At(context.sequence, op.layer).closed_by_rollback);
    case ScriptOpKind::kFork:
      Add(OperationClass::kForkOverReservation, done && context.any_open);
      if (!done) return;
      for (const auto& [place, length] : lengths_) {
        if (place.first == context.sequence) layers_[place].shared_rows = length;
      }
      return;
    case ScriptOpKind::kEnd:
      return Add(OperationClass::kEndOverReservation, done && context.any_open);
    case ScriptOpKind::kRestore:
      return Add(OperationClass::kRestoreOverReservation, done && context.any_open);
    default:
      return;
  }
}

}  // namespace lockstep
