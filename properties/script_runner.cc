#include "properties/script_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "caches/cache_file.h"
#include "caches/check.h"
#include "caches/registry.h"
#include "properties/script_clauses.h"

namespace lockstep {
namespace {

// One sequence on both sides, and what the contract leaves open about its rows.
struct Sequence {
  std::unique_ptr<KvCache> subject;
  std::unique_ptr<KvCache> model;  // a ModelCache
  // By layer: rows whose content is unspecified until they are written again [R4, R5].
  std::vector<std::set<int32_t>> unspecified;
  struct Open {
    std::vector<int32_t> positions;  // empty: no reservation
    bool written = false;
    KvSlot subject, model;
  };
  std::vector<Open> open;  // by layer
};

struct Saved {
  std::vector<std::byte> file;
  std::unique_ptr<KvCache> model;
  std::vector<std::set<int32_t>> unspecified;
};

template <typename Call>
Outcome OutcomeOf(Call&& call) {
  try {
    return call();
  } catch (const PoolExhausted&) {
    return Outcome::kExhausted;
  } catch (const std::out_of_range&) {
    return Outcome::kOutOfRange;
  } catch (const std::invalid_argument&) {
    return Outcome::kInvalid;
  } catch (const std::logic_error&) {
    return Outcome::kLogic;
  } catch (const std::exception&) {
    return Outcome::kOther;
  }
}

class Runner {
 public:
  Runner(const CacheScript& script, const ScriptSubject& subject)
      : script_(script), geometry_(script.geometry), subject_(subject) {
    Sequence first;
    first.subject = subject.make(script);
    ModelCacheOptions options = subject.model;
    options.geometry = geometry_;
    options.blocks_available = script.blocks;
    if (first.subject->view_depends_on_query()) {
      options.max_step_rows = first.subject->max_step_rows();
    }
    first.model = std::make_unique<ModelCache>(options);
    first.unspecified.resize(layers());
    first.open.resize(layers());
    sequences_.push_back(std::move(first));
  }

  ScriptRun Run() {
    for (size_t i = 0; i < script_.ops.size() && !run_.finding; ++i) {
      op_ = static_cast<int32_t>(i);
      Operate(script_.ops[i]);
      for (const Sequence& sequence : sequences_) Compare(sequence);
      ++run_.counts.operations;
    }
    return std::move(run_);
  }

 private:
  size_t layers() const { return static_cast<size_t>(geometry_.num_layers); }
  Sequence& current() { return sequences_[current_]; }
  bool HasLayer(int32_t layer) const { return layer >= 0 && layer < geometry_.num_layers; }
  // Which of two sequences gets the last block is not the model's to say.
  bool one_sequence() const { return script_.blocks > 0; }

  // The first one counts.
  template <typename... Args>
  void Find(std::string_view clause, fmt::format_string<Args...> format, Args&&... args) {
    if (run_.finding) return;
    run_.finding =
        ScriptFinding{op_, std::string(clause), fmt::format(format, std::forward<Args>(args)...)};
  }

  ScriptOpKind kind() const { return script_.ops[static_cast<size_t>(op_)].kind; }

  template <typename Call>
  Outcome Both(Sequence& s, Call&& call) {
    const Outcome subject = OutcomeOf([&] { return call(*s.subject); });
    const Outcome model = OutcomeOf([&] { return call(*s.model); });
    if (subject != model)
      Find(OutcomeClause(kind(), model, subject_.model.refuses_host_slots),
           "subject: {}, model: {}", OutcomeName(subject), OutcomeName(model));
    run_.counts.threw += model > Outcome::kRefused ? 1 : 0;
    run_.counts.exhausted += model == Outcome::kExhausted ? 1 : 0;
    return subject == model ? model : Outcome::kOther;
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
    const int32_t length = HasLayer(op.layer) ? current().model->length(op.layer) : 0;
    CountPositionClasses(
        op.positions,
        {length, geometry_.max_length, subject_.model.block_size, subject_.model.window},
        &run_.counts.positions);
  }

  static void Resize(std::vector<float>* rows, int32_t extra) {
    const int64_t size = static_cast<int64_t>(rows->size()) + extra;
    rows->resize(static_cast<size_t>(std::max<int64_t>(size, 0)), 1.0f);
  }

  void Update(const ScriptOp& op) {
    CountClasses(op);
    ScriptRows rows = RowValues(geometry_, op.rows, op.layer, op.positions);
    Resize(&rows.keys, op.extra_keys);
    Resize(&rows.values, op.extra_values);
    const Outcome outcome = Both(current(), [&](KvCache& cache) {
      cache.Update(op.layer, op.positions, rows.keys, rows.values);
      return Outcome::kDone;
    });
    if (outcome != Outcome::kDone || op.positions.empty()) return;
    ++run_.counts.updated;
    const auto layer = static_cast<size_t>(op.layer);
    for (int32_t p : op.positions) current().unspecified[layer].erase(p);
    current().open[layer] = {};
  }

  void Reserve(const ScriptOp& op) {
    CountClasses(op);
    std::vector<KvSlot> slots;
    const Outcome outcome = Both(current(), [&](KvCache& cache) {
      const std::optional<KvSlot> slot = cache.TryReserveSlot(op.layer, op.positions);
      if (slot) slots.push_back(*slot);
      return slot ? Outcome::kGranted : Outcome::kRefused;
    });
    run_.counts.refused += outcome == Outcome::kRefused ? 1 : 0;
    if (outcome != Outcome::kGranted) return;
    ++run_.counts.granted;
    const size_t elements = op.positions.size() * static_cast<size_t>(geometry_.kv_stride());
    for (const KvSlot& slot : slots) {
      if (slot.keys.size() != elements || slot.values.size() != elements) {
        return Find("R4", "a slot of {} and {} elements for {} positions", slot.keys.size(),
                    slot.values.size(), op.positions.size());
      }
    }
    const auto layer = static_cast<size_t>(op.layer);
    current().open[layer] = {op.positions, false, slots[0], slots[1]};
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
    open.written = true;
  }

  void Commit(const ScriptOp& op) {
    CountClasses(op);
    const Outcome outcome = Both(current(), [&](KvCache& cache) {
      cache.CommitSlot(op.layer, op.positions);
      return Outcome::kDone;
    });
    if (outcome != Outcome::kDone || op.positions.empty()) return;
    const auto layer = static_cast<size_t>(op.layer);
    Sequence::Open& open = current().open[layer];
    if (open.positions != op.positions) return;
    ++run_.counts.committed;
    for (int32_t p : op.positions) {
      if (open.written) {
        current().unspecified[layer].erase(p);
      } else {
        current().unspecified[layer].insert(p);
      }
    }
    open = {};
  }

  void Shrunk(int32_t length) {
    for (auto& rows : current().unspecified) rows.erase(rows.lower_bound(length), rows.end());
    for (Sequence::Open& open : current().open) open = {};
  }

  void Rollback(int32_t length) {
    const Outcome outcome =
        Both(current(), [&](KvCache& cache) { return cache.Rollback(length), Outcome::kDone; });
    if (outcome != Outcome::kDone) return;
    ++run_.counts.rolled_back;
    Shrunk(length);
  }

  void Clear() {
    Both(current(), [](KvCache& cache) { return cache.Clear(), Outcome::kDone; });
    Shrunk(0);
  }

  void Fork() {
    if (one_sequence() || !subject_.forks || sequences_.size() >= kMaxSequences) return;
    std::vector<std::unique_ptr<KvCache>> forks;
    Both(current(), [&](KvCache& cache) {
      forks.push_back(cache.Fork());
      return Outcome::kDone;
    });
    if (forks.size() != 2) return;
    ++run_.counts.forked;
    for (Sequence::Open& open : current().open) open = {};
    Sequence fork;
    fork.subject = std::move(forks[0]);
    fork.model = std::move(forks[1]);
    fork.unspecified = current().unspecified;
    fork.open.resize(layers());
    sequences_.push_back(std::move(fork));
  }

  void End() {
    if (sequences_.size() == 1) return;
    sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(current_));
    current_ = 0;
  }

  void Save() {
    if (one_sequence() || !subject_.saves) return;
    Rollback(current().model->current_length());
    if (run_.finding) return;
    StateWriter writer;
    current().subject->SaveState(&writer);
    saved_ = Saved{writer.Finish(), current().model->Fork(), current().unspecified};
  }

  void Restore() {
    if (!saved_) return;
    const Outcome outcome = OutcomeOf([&] {
      StateReader reader(saved_->file, "script");
      return current().subject->LoadState(&reader), Outcome::kDone;
    });
    if (outcome != Outcome::kDone)
      return Find("S1", "a restore of its own save: {}", OutcomeName(outcome));
    ++run_.counts.restored;
    current().model = saved_->model->Fork();
    current().unspecified = saved_->unspecified;
    for (Sequence::Open& open : current().open) open = {};
  }

  void Read(const ScriptOp& op) {
    KvView view;
    Both(current(), [&](KvCache& cache) { return cache.View(op.layer, &view), Outcome::kDone; });
    Both(current(), [&](KvCache& cache) { return cache.length(op.layer), Outcome::kDone; });
    Both(current(), [&](KvCache& cache) {
      return cache.ViewForQuery(op.layer, op.target, &view), Outcome::kDone;
    });
  }

  void Compare(const Sequence& s) {
    if (run_.finding) return;
    bool specified = true;
    for (int32_t layer = 0; layer < geometry_.num_layers; ++layer) {
      const int32_t length = s.model->length(layer);
      if (s.subject->length(layer) != length) {
        return Find(LengthClause(kind()), "length of layer {}: subject {}, model {}", layer,
                    s.subject->length(layer), length);
      }
      s.subject->View(layer, &subject_view_);
      s.model->View(layer, &model_view_);
      CompareRows(s, layer, length, -1);
      for (int32_t i = 0; i < length && s.model->view_depends_on_query(); ++i) {
        s.subject->ViewForQuery(layer, i, &subject_view_);
        s.model->ViewForQuery(layer, i, &model_view_);
        CompareRows(s, layer, i + 1, i);
      }
      specified = specified && s.unspecified[static_cast<size_t>(layer)].empty();
    }
    if (s.subject->current_length() != s.model->current_length()) {
      Find(LengthClause(kind()), "current length: subject {}, model {}",
           s.subject->current_length(), s.model->current_length());
    }
    CompareBlocks(s);
    if (!specified || run_.finding) return;
    if (DigestOfCache(*s.subject) != DigestOfCache(*s.model)) Find("X1", "the hashes differ");
    if (subject_.compares_storage && s.subject->StorageDigest() != s.model->StorageDigest()) {
      Find("X2", "the stored bytes differ");
    }
  }

  // Of one sequence alone, which no block is shared with [B3].
  void CompareBlocks(const Sequence& s) {
    const auto blocks = BlockCountsOf(*s.subject);
    const auto is_open = [](const Sequence::Open& open) { return !open.positions.empty(); };
    if (!blocks || sequences_.size() > 1 || std::ranges::any_of(s.open, is_open)) return;
    const int32_t needed = static_cast<const ModelCache&>(*s.model).blocks_used();
    if (blocks->used_blocks == needed) return;
    Find("B3", "{} blocks in use, rows need {}", blocks->used_blocks, needed);
  }

  // Rows [0, visible) of the two views; `query` is -1 for View.
  void CompareRows(const Sequence& s, int32_t layer, int32_t visible, int32_t query) {
    if (run_.finding) return;
    if (subject_view_.length != model_view_.length) {
      return Find("V1", "view of layer {}: subject {} rows, model {}", layer, subject_view_.length,
                  model_view_.length);
    }
    const int64_t stride = geometry_.kv_stride();
    const KvRows a = DecodeRows(subject_view_, stride);
    const KvRows b = DecodeRows(model_view_, stride);
    const std::set<int32_t>& skipped = s.unspecified[static_cast<size_t>(layer)];
    for (int32_t p = 0; p < visible; ++p) {
      if (skipped.count(p) != 0) continue;
      ++run_.counts.rows_compared;
      const auto first = static_cast<size_t>(p * stride);
      const auto model_row = std::span(b.keys).subspan(first, static_cast<size_t>(stride));
      const bool gap = std::ranges::all_of(model_row, [](float x) { return x == 0.0f; });
      for (int64_t e = 0; e < stride; ++e) {
        const size_t at = first + static_cast<size_t>(e);
        CompareElement(RowClause(kind(), gap, sequences_.size() > 1), 'K', layer, p, e, query,
                       a.keys[at], b.keys[at]);
        CompareElement(RowClause(kind(), gap, sequences_.size() > 1), 'V', layer, p, e, query,
                       a.values[at], b.values[at]);
      }
    }
  }

  void CompareElement(std::string_view clause, char name, int32_t layer, int32_t position,
                      int64_t element, int32_t query, float subject, float model) {
    if (CanonicalBits(subject) == CanonicalBits(model)) return;
    const std::string reader = query < 0 ? "" : fmt::format(" read by query {}", query);
    Find(clause, "{} row {} of layer {}, element {}{}: subject 0x{:08x}, model 0x{:08x}", name,
         position, layer, element, reader, CanonicalBits(subject), CanonicalBits(model));
  }

  const CacheScript& script_;
  KvGeometry geometry_;
  const ScriptSubject& subject_;
  std::vector<Sequence> sequences_;
  size_t current_ = 0;
  std::optional<Saved> saved_;
  KvView subject_view_, model_view_;
  int32_t op_ = 0;
  ScriptRun run_;
};

}  // namespace

ScriptRun RunScript(const CacheScript& script, const ScriptSubject& subject) {
  return Runner(script, subject).Run();
}

}  // namespace lockstep
