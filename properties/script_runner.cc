#include "properties/script_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "caches/aligned_buffer.h"
#include "caches/cache_file.h"
#include "caches/memory_watch.h"
#include "caches/plugin_cache.h"
#include "properties/runner/run.h"
#include "properties/runner/stage.h"

namespace lockstep {
namespace {

using runner::kModel;
using runner::kSubject;
using runner::Probe;
using runner::Sequence;
using runner::WriteRule;

struct Saved {
  std::vector<std::byte> file;
  std::unique_ptr<KvCache> model;
  std::vector<std::set<int32_t>> unspecified;
};

// Rows as a caller hands them to a cache: between guard pages, where there are any, at the very
// edge of their memory, so that reading past the last one shows.
class HandedRows {
 public:
  explicit HandedRows(const std::vector<float>& rows) : rows_(rows) {
    const auto& watch = MemoryWatch::Current();
    if (watch == nullptr || watch->options().guard == GuardPages::kNone || rows.empty()) return;
    guarded_ = AlignedBuffer<float>(std::ssize(rows));
    std::ranges::copy(rows, guarded_.data());
    rows_ = guarded_.span();
  }
  operator std::span<const float>() const { return rows_; }

 private:
  AlignedBuffer<float> guarded_;
  std::span<const float> rows_;
};

// Memory that no row was written to has a content all the same, so that a subject which shows it
// does so in every run: what the heap left there would come and go.
class DefinedMemory {
 public:
  DefinedMemory() {
    if (MemoryWatch::Current() == nullptr) watch_.emplace(MemoryWatchOptions{});
  }

 private:
  std::optional<MemoryWatch> watch_;
};

class Runner : private runner::Stage {
 public:
  using Stage::Stage;

  ScriptRun Run(int32_t first_compared = 0) {
    for (size_t i = 0; i < script_.ops.size() && !run_.finding; ++i) {
      const ScriptOp& op = script_.ops[i];
      op_ = static_cast<int32_t>(i);
      try {
        Step(op);
        if (op_ >= first_compared) Compare();
      } catch (const PluginError& e) {
        Find("border", e.parts().what);
      } catch (const std::exception& e) {  // what may throw is called by OutcomeOf
        Find("V1", fmt::format("reading throws: {}", e.what()));
      }
      ++run_.counts.operations;
    }
    run_.counts.rows_compared = comparer_.rows_compared();
    return std::move(run_);
  }

 private:
  void Step(const ScriptOp& op) {
    rule_ = {.sequence = current().id};
    outcome_ = Outcome::kDone;
    if (probe_ != nullptr) probe_->Before(sequences_);
    const OperationContext context = ContextOf(op);
    Operate(op);
    classes_.Count(op, outcome_, context, &run_.counts.sequences);
    if (probe_ != nullptr) Take(probe_->After(kind(), outcome_, rule_, sequences_));
  }

  OperationContext ContextOf(const ScriptOp& op) {
    OperationContext context{.sequence = current().id, .length = 0, .open = {}, .any_open = false};
    for (size_t layer = 0; layer < current().open.size(); ++layer) {
      const std::vector<int32_t>& open = current().open[layer].positions;
      context.any_open = context.any_open || !open.empty();
      if (static_cast<int32_t>(layer) != op.layer) continue;
      context.open = open;
      context.length = current().model->length(op.layer);
    }
    return context;
  }

  void Operate(const ScriptOp& op) {
    switch (op.kind) {
      case ScriptOpKind::kUpdate:
        return Update(op);
      case ScriptOpKind::kReserve:
        return Reserve(op);
      case ScriptOpKind::kWrite:
        return Write(op);
      case ScriptOpKind::kCommit:
        return Commit(op);
      case ScriptOpKind::kAbandon:
        return;  // the slot stays as it is and is never committed
      case ScriptOpKind::kRollback:
        return Rollback(op.target);
      case ScriptOpKind::kClear:
        return Clear();
      case ScriptOpKind::kFork:
        return Fork();
      case ScriptOpKind::kEnd:
        return End();
      case ScriptOpKind::kSwitch:
        current_ = static_cast<size_t>(static_cast<uint32_t>(op.target)) % sequences_.size();
        return;
      case ScriptOpKind::kSave:
        return Save();
      case ScriptOpKind::kRestore:
        return Restore();
      case ScriptOpKind::kRead:
        return Read(op);
    }
  }

  void CountClasses(const ScriptOp& op) {
    const bool has_layer = HasLayer(op.layer);
    const int32_t length = has_layer ? current().model->length(op.layer) : 0;
    // An exact window, or that of a layer which forgets.
    const int32_t kept = has_layer ? current().model->attention_window(op.layer) : 0;
    CountPositionClasses(op.positions,
                         {length, geometry_.max_length, subject_.model.block_size,
                          std::max(subject_.model.window, kept)},
                         &run_.counts.positions);
  }

  static void Resize(std::vector<float>* rows, int32_t extra) {
    const int64_t size = static_cast<int64_t>(rows->size()) + extra;
    rows->resize(static_cast<size_t>(std::max<int64_t>(size, 0)), 1.0f);
  }

  // Rows of the layer that a write names, and those of the gap that it makes.
  void MayWrite(int32_t layer, std::span<const int32_t> positions, int32_t length) {
    rule_.kind = WriteRule::Kind::kRows;
    rule_.layer = layer;
    rule_.positions.assign(positions.begin(), positions.end());
    const int32_t end = positions.empty() ? 0 : *std::ranges::max_element(positions);
    for (int32_t p = length; p < end; ++p) rule_.positions.push_back(p);
  }

  void MayWriteFrom(int32_t length) {
    rule_.kind = WriteRule::Kind::kRowsFrom;
    rule_.from = length;
  }

  void Update(const ScriptOp& op) {
    CountClasses(op);
    ScriptRows rows = RowValues(geometry_, op.rows, op.layer, op.positions);
    Resize(&rows.keys, op.extra_keys);
    Resize(&rows.values, op.extra_values);
    const int32_t length = HasLayer(op.layer) ? current().model->length(op.layer) : 0;
    const HandedRows keys(rows.keys);
    const HandedRows values(rows.values);
    const Outcome outcome = Both(current(), [&](KvCache& cache, size_t) {
      cache.Update(op.layer, op.positions, keys, values);
      return Outcome::kDone;
    });
    if (outcome != Outcome::kDone || op.positions.empty()) return;
    ++run_.counts.updated;
    current().LayerChanged(op.layer);
    MayWrite(op.layer, op.positions, length);
    const auto layer = static_cast<size_t>(op.layer);
    for (int32_t p : op.positions) current().unspecified[layer].erase(p);
    current().open[layer] = {};
    DropForgotten(op.layer);
  }

  // Nothing is expected of rows that nobody can read any more [W2].
  void DropForgotten(int32_t layer) {
    auto& rows = current().unspecified[static_cast<size_t>(layer)];
    rows.erase(rows.begin(), rows.lower_bound(current().model->first_position(layer)));
  }

  void Reserve(const ScriptOp& op) {
    CountClasses(op);
    std::array<std::optional<KvSlot>, 2> slots;
    const Outcome outcome = Both(current(), [&](KvCache& cache, size_t side) {
      slots[side] = cache.TryReserveSlot(op.layer, op.positions);
      return slots[side] ? Outcome::kGranted : Outcome::kRefused;
    });
    run_.counts.refused += outcome == Outcome::kRefused ? 1 : 0;
    if (outcome != Outcome::kGranted) return;
    ++run_.counts.granted;
    current().LayerChanged(op.layer);
    const size_t elements = op.positions.size() * static_cast<size_t>(geometry_.kv_stride());
    for (const auto& slot : slots) {
      if (slot->keys.size() != elements || slot->values.size() != elements) {
        return Find("R4", fmt::format("a slot of {} and {} elements for {} positions",
                                      slot->keys.size(), slot->values.size(), op.positions.size()));
      }
    }
    const auto layer = static_cast<size_t>(op.layer);
    MayWrite(op.layer, op.positions, op.positions.back());  // the gap is written by the commit
    current().open[layer] = {op.positions, false, *slots[kSubject], *slots[kModel]};
    for (int32_t p : op.positions) {
      if (p < current().model->length(op.layer)) current().unspecified[layer].insert(p);
    }
  }

  void Write(const ScriptOp& op) {
    if (!HasLayer(op.layer)) return;
    Sequence::Open& open = current().open[static_cast<size_t>(op.layer)];
    if (open.positions.empty()) return;
    const ScriptRows rows = RowValues(geometry_, op.rows, op.layer, open.positions);
    for (const KvSlot* slot : {&open.subject, &open.model}) {
      std::ranges::copy(rows.keys, slot->keys.begin());
      std::ranges::copy(rows.values, slot->values.begin());
    }
    rule_.kind = WriteRule::Kind::kSlot;
    rule_.slot = open.subject;
    open.written = true;
  }

  void Commit(const ScriptOp& op) {
    CountClasses(op);
    const int32_t length = HasLayer(op.layer) ? current().model->length(op.layer) : 0;
    const Outcome outcome = Both(current(), [&](KvCache& cache, size_t) {
      cache.CommitSlot(op.layer, op.positions);
      return Outcome::kDone;
    });
    if (outcome != Outcome::kDone || op.positions.empty()) return;
    const auto layer = static_cast<size_t>(op.layer);
    Sequence::Open& open = current().open[layer];
    if (open.positions != op.positions) return;
    ++run_.counts.committed;
    current().LayerChanged(op.layer);
    // Published as they were written: the gap alone is the cache's to write [C1].
    std::vector<int32_t> gap(static_cast<size_t>(std::max(0, op.positions[0] - length)));
    std::iota(gap.begin(), gap.end(), length);
    MayWrite(op.layer, gap, op.positions[0]);
    for (int32_t p : op.positions) {
      if (open.written) {
        current().unspecified[layer].erase(p);
      } else {
        current().unspecified[layer].insert(p);
      }
    }
    open = {};
    DropForgotten(op.layer);
  }

  void Shrunk(int32_t length) {
    for (auto& rows : current().unspecified) rows.erase(rows.lower_bound(length), rows.end());
    for (Sequence::Open& open : current().open) open = {};
    current().AllChanged();
    MayWriteFrom(length);
  }

  void Rollback(int32_t length) {
    const Outcome outcome = Both(current(), [&](KvCache& cache, size_t) {
      cache.Rollback(length);
      return Outcome::kDone;
    });
    if (outcome != Outcome::kDone) return;
    ++run_.counts.rolled_back;
    Shrunk(length);
  }

  void Clear() {
    const Outcome outcome =
        Both(current(), [](KvCache& cache, size_t) { return cache.Clear(), Outcome::kDone; });
    if (outcome == Outcome::kDone) Shrunk(0);
  }

  void Fork() {
    outcome_ = Outcome::kRefused;
    if (one_sequence() || !subject_.forks || sequences_.size() >= kMaxSequences) return;
    std::array<std::unique_ptr<KvCache>, 2> forks;
    const Outcome outcome = Both(current(), [&](KvCache& cache, size_t side) {
      forks[side] = cache.Fork();
      return Outcome::kDone;
    });
    if (outcome != Outcome::kDone) return;
    ++run_.counts.forked;
    for (Sequence::Open& open : current().open) open = {};
    current().AllChanged();
    MayWriteFrom(geometry_.max_length);
    Sequence fork(geometry_.num_layers);
    fork.id = next_id_++;
    fork.subject = std::move(forks[kSubject]);
    fork.model = std::move(forks[kModel]);
    fork.unspecified = current().unspecified;
    sequences_.push_back(std::move(fork));
  }

  void End() {
    outcome_ = Outcome::kRefused;
    if (sequences_.size() == 1) return;
    outcome_ = Outcome::kDone;
    sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(current_));
    MayWriteFrom(0);
    current_ = 0;
  }

  void Save() {
    if (one_sequence() || !subject_.saves) return;
    Rollback(current().model->current_length());
    if (run_.finding) return;
    std::vector<std::byte> file;
    const Outcome outcome = CallSubject([&] {
      StateWriter writer;
      current().subject->SaveState(&writer);
      file = writer.Finish();
      return Outcome::kDone;
    });
    if (outcome == Outcome::kNoMemory) return;
    if (outcome != Outcome::kDone) {
      return Find("S1", fmt::format("a save: {}", OutcomeName(outcome)));
    }
    saved_ = Saved{std::move(file), current().model->Fork(), current().unspecified};
  }

  void Restore() {
    outcome_ = Outcome::kRefused;
    if (!saved_) return;
    const Outcome outcome = CallSubject([&] {
      StateReader reader(saved_->file, "script");
      return current().subject->LoadState(&reader), Outcome::kDone;
    });
    if (outcome == Outcome::kNoMemory) return;
    if (outcome != Outcome::kDone) {
      return Find("S1", fmt::format("a restore of its own save: {}", OutcomeName(outcome)));
    }
    ++run_.counts.restored;
    outcome_ = Outcome::kDone;
    rule_.kind = WriteRule::Kind::kSequence;
    current().model = saved_->model->Fork();
    current().unspecified = saved_->unspecified;
    for (Sequence::Open& open : current().open) open = {};
    current().AllChanged();
  }

  void Read(const ScriptOp& op) {
    KvView view;
    const auto both = [&](auto&& call) {
      Both(current(), [&](KvCache& cache, size_t) { return call(cache), Outcome::kDone; });
    };
    both([&](KvCache& cache) { cache.View(op.layer, &view); });
    both([&](KvCache& cache) { cache.length(op.layer); });
    both([&](KvCache& cache) { cache.ViewForQuery(op.layer, op.target, &view); });
  }

  std::optional<Saved> saved_;
  OperationClassCounter classes_;
};

}  // namespace

ScriptRun runner::RunWithProbe(const CacheScript& script, const ScriptSubject& subject,
                               Probe* probe) {
  return Runner(script, subject, probe).Run();
}

ScriptRun runner::RunComparingFrom(const CacheScript& script, const ScriptSubject& subject,
                                   int32_t first) {
  const DefinedMemory defined;
  return Runner(script, subject, nullptr).Run(first);
}

ScriptRun RunScript(const CacheScript& script, const ScriptSubject& subject) {
  const DefinedMemory defined;
  return Runner(script, subject, nullptr).Run();
}

}  // namespace lockstep
