#include "properties/engine_script_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include "caches/block_pool.h"
#include "caches/cache_file.h"
#include "caches/paged_kv_cache.h"
#include "engine/kernels.h"
#include "oracle/faulty_cache.h"
#include "properties/engine_state.h"
#include "properties/engine_stepper.h"

namespace lockstep {
namespace {

struct Saved {
  size_t kind = 0;
  std::vector<std::byte> file;
  std::unique_ptr<EngineReference> reference;
};

class Runner {
 public:
  Runner(const EngineScript& script, const EngineSubject& subject)
      : script_(script),
        subject_(subject),
        state_(script, subject),
        engine_(state_.shared_model(), {.kernels = &SelectKernels(script.isa),
                                        .max_step_tokens = script.step,
                                        .threads = script.threads,
                                        .device = state_.device()}),
        driver_(subject.make_driver ? subject.make_driver(engine_)
                                    : std::make_unique<EngineDriver>(engine_)),
        stepper_(script, state_, *driver_) {}

  EngineRun Run() {
    for (size_t i = 0; i < script_.ops.size() && !state_.found(); ++i) {
      state_.Begin(static_cast<int32_t>(i));
      const int64_t graph_steps = engine_.device_use().graph_steps;
      Operate(script_.ops[i]);
      if (engine_.device_use().graph_steps > graph_steps) Count(EngineClass::kGraphStep);
      state_.Compare();
    }
    state_.CompareEnd();
    state_.run.digest = state_.digest.Finish();
    return std::move(state_.run);
  }

 private:
  void Count(EngineClass c) { ++state_.run.counts[c]; }

  void Operate(const EngineOp& op) {
    const int32_t s = op.sequences.empty() ? 0 : op.sequences[0];
    state_.Blame("B2", "B4", op.sequences);
    switch (op.kind) {
      case EngineOpKind::kPrefill:
        return Prefill(op, s);
      case EngineOpKind::kDecode:
        return Decode(op, s);
      case EngineOpKind::kSpeculate:
        return Speculate(op, s);
      case EngineOpKind::kBatch:
        return Batch(op, {});
      case EngineOpKind::kCancel:
        return Batch(op, {.cancel_at = op.count});
      case EngineOpKind::kRollback:
        return Rollback(s, op.count);
      case EngineOpKind::kFork:
        return Fork(s, op.count);
      case EngineOpKind::kEnd:
        return End(s);
      case EngineOpKind::kClear:
        return Clear(s);
      case EngineOpKind::kSave:
        return Save(s);
      case EngineOpKind::kRestore:
        return Restore(s);
      case EngineOpKind::kPath:
        state_.At(s).path = PathOn(state_.model().config().num_layers, op.count);
        return;
      case EngineOpKind::kAdapt:
        state_.At(s).adapters = op.count;
        return;
      case EngineOpKind::kShift:
        return Shift(s, {op.accept, op.count});
    }
  }

  // ---- Steps ------------------------------------------------------------------------------

  // `count` tokens behind what the sequence holds, by seed, sequence and `salt`; the first is the
  // greedy one where that is known and wanted.
  StepPart PartOf(int32_t s, int32_t count, int32_t seed, bool greedy, uint64_t salt = 0) {
    const EngineSequence& sequence = state_.At(s);
    return SeededPart({.sequence = s,
                       .seed = seed,
                       .salt = salt,
                       .count = count,
                       .greedy = greedy ? sequence.next : -1},
                      sequence.reference->length(), state_.model().config().vocab_size);
  }

  void Prefill(const EngineOp& op, int32_t s) {
    state_.Blame("Q3", "F3", op.sequences);
    for (size_t i = 0; i < op.cuts.size(); ++i) {
      const StepPart part = PartOf(s, op.cuts[i], op.tokens, false, i);
      if (!stepper_.Step({&part, 1}, {})) return;
      Count(EngineClass::kPrefillStep);
    }
  }

  void Decode(const EngineOp& op, int32_t s) {
    state_.Blame("Q3", "F3", op.sequences);
    for (int32_t i = 0; i < op.count; ++i) {
      const StepPart part = PartOf(s, 1, op.tokens, op.tokens == 0, static_cast<uint64_t>(i));
      if (!stepper_.Step({&part, 1}, {})) return;
      Count(EngineClass::kDecodeStep);
    }
  }

  void Speculate(const EngineOp& op, int32_t s) {
    state_.Blame("B2", "F3", op.sequences);
    // No more drafts than the cache can undo [W2], as Generate does.
    const int32_t drafts = UndoableDrafts(*state_.At(s).cache, op.count);
    const int32_t accept = std::min(op.accept, drafts);
    const StepPart part = PartOf(s, drafts + 1, op.tokens, true);
    if (!stepper_.Step({&part, 1}, {.accepted = accept})) return;
    Count(accept == drafts ? EngineClass::kAcceptAll
          : accept == 0    ? EngineClass::kAcceptNone
                           : EngineClass::kAcceptSome);
  }

  void Batch(const EngineOp& op, const StepWay& way) {
    state_.Blame("F3", "F3", op.sequences);
    std::vector<StepPart> parts;
    for (size_t i = 0; i < op.sequences.size(); ++i) {
      parts.push_back(PartOf(op.sequences[i], op.cuts[i], op.tokens, false));
    }
    if (stepper_.Step(parts, way)) CountShapes(parts);
  }

  void CountShapes(std::span<const StepPart> parts) {
    constexpr std::array kSizes = {EngineClass::kBatchOfOne, EngineClass::kBatchOfTwo,
                                   EngineClass::kBatchOfThree};
    Count(kSizes[std::min(parts.size(), kSizes.size()) - 1]);
    size_t rows = 0;
    size_t most = 0;
    std::set<size_t> kinds;
    std::set<int32_t> adapters;
    for (const StepPart& part : parts) {
      rows += part.tokens.size();
      most = std::max(most, part.tokens.size());
      kinds.insert(state_.At(part.sequence).kind);
      adapters.insert(state_.At(part.sequence).adapters);
    }
    if (parts.size() == 1) return;
    if (most * parts.size() > rows) {
      if (parts.front().tokens.size() == most) Count(EngineClass::kLongestFirst);
      if (parts.back().tokens.size() == most) Count(EngineClass::kLongestLast);
    }
    if (rows > static_cast<size_t>(script_.step)) Count(EngineClass::kCutInsideBatch);
    if (kinds.size() > 1) Count(EngineClass::kBatchOfKinds);
    if (adapters.size() > 1) Count(EngineClass::kBatchOfAdapters);
    if (kinds.size() == 1 && state_.kind(*kinds.begin()).spec.block_size > 0) {
      Count(EngineClass::kBatchOnOnePool);
    }
  }

  // ---- Everything else --------------------------------------------------------------------

  void Rollback(int32_t s, int32_t length) {
    EngineSequence& sequence = state_.At(s);
    const int32_t held = sequence.reference->length();
    std::string thrown;
    const StepOutcome outcome =
        StepOutcomeOf([&] { driver_->Rollback(*sequence.cache, length); }, &thrown);
    const bool possible = length <= held && CanRollback(sequence.reference->cache(), length);
    const StepOutcome expected = possible ? StepOutcome::kDone : StepOutcome::kOutOfRange;
    if (outcome != expected) {
      return state_.Find(length <= held ? "W2" : "B1", s,
                         fmt::format("sequence {}: a rollback from {} to {} ended with {}", s, held,
                                     length, StepOutcomeName(outcome)));
    }
    if (outcome != StepOutcome::kDone) return Count(EngineClass::kRollbackRefused);
    const CacheSpec& spec = state_.kind(sequence.kind).spec;
    const int32_t block = spec.block_size;
    if (block > 0 && (held + block - 1) / block > (length + block - 1) / block) {
      Count(EngineClass::kRollbackOverBlock);
    }
    if (spec.window > 0 && held - length > spec.window) Count(EngineClass::kRollbackOverWindow);
    sequence.reference->Rollback(length);
    if (length < held) sequence.next = -1;
  }

  // Whether blocks that move may be shared, and there are too few to copy them to.
  bool ShiftMayExhaust(const EngineSequence& sequence, const DeletedSpan& deleted) {
    const EngineKind& kind = state_.KindOf(sequence);
    const int32_t size = kind.spec.block_size;
    if (size == 0 || script_.blocks == 0 || !kind.forked) return false;
    const std::optional<BlockCounts> blocks = BlockCountsOf(*kind.root);
    const int32_t length = sequence.reference->length() - deleted.count();
    return !blocks || blocks->free_blocks < (length - 1) / size - deleted.first / size + 1;
  }

  void Shift(int32_t s, const DeletedSpan& deleted) {
    state_.Blame("F4", "B4", {&s, 1});
    EngineSequence& sequence = state_.At(s);
    const int32_t held = sequence.reference->length();
    const bool moves = !sequence.reference->forgets();
    const bool there = moves && deleted.first < deleted.end && deleted.end <= held;
    const bool may_exhaust = there && ShiftMayExhaust(sequence, deleted);
    std::string thrown;
    const StepOutcome outcome =
        StepOutcomeOf([&] { driver_->Shift(*sequence.cache, deleted); }, &thrown);
    if (outcome == StepOutcome::kExhausted && may_exhaust) return;
    const StepOutcome refusal = moves ? StepOutcome::kOutOfRange : StepOutcome::kInvalid;
    if (outcome != (there ? StepOutcome::kDone : refusal)) {
      return state_.Find(
          "F4", s,
          fmt::format("sequence {}: positions [{}, {}) of {} deleted ended with {}", s,
                      deleted.first, deleted.end, held, StepOutcomeName(outcome)));
    }
    if (!there) return Count(EngineClass::kShiftRefused);
    sequence.reference->Shift(deleted);
    sequence.next = -1;
    if (deleted.end == held) return;
    Count(EngineClass::kShifted);
    if (++sequence.shifts > 1) Count(EngineClass::kShiftedTwice);
    if (state_.KindOf(sequence).forked) Count(EngineClass::kShiftBesideFork);
    sequence.shifted = true;
  }

  void Fork(int32_t s, int32_t target) {
    if (target == s || !subject_.forks) return;
    state_.Slot(target).reset();
    EngineSequence& source = state_.At(s);
    EngineSequence fork;
    fork.kind = source.kind;
    fork.cache = driver_->Fork(*source.cache);
    fork.reference = std::make_unique<EngineReference>(*source.reference);
    fork.path = source.path;
    fork.adapters = source.adapters;
    fork.next = source.next;
    EngineKind& kind = state_.KindOf(source);
    kind.forked = true;
    const int32_t length = source.reference->length();
    if (length > 0) {
      source.fork = fork.fork = forks_++;
      source.fork_length = fork.fork_length = length;
      const int32_t size = kind.spec.block_size;
      source.fork_inside = fork.fork_inside = size > 0 && length % size != 0;
      if (source.fork_inside) Count(EngineClass::kForkInsideBlock);
    }
    state_.Slot(target) = std::move(fork);
  }

  void End(int32_t s) {
    const std::optional<EngineSequence>& ended = state_.Slot(s);
    for (int32_t other = 0; ended && other < kEngineSequences; ++other) {
      const auto& slot = state_.Slot(other);
      if (other != s && slot && slot->fork >= 0 && slot->fork == ended->fork) {
        Count(EngineClass::kEndBesideFork);
      }
    }
    state_.Slot(s).reset();
  }

  void Clear(int32_t s) {
    EngineSequence& sequence = state_.At(s);
    sequence.cache->Clear();
    sequence.cleared = sequence.reference->length() > 0;
    sequence.reference->Rollback(0);
    sequence.next = -1;
  }

  void Save(int32_t s) {
    if (!subject_.saves) return;
    const EngineSequence& sequence = state_.At(s);
    StateWriter writer;
    sequence.cache->SaveState(&writer);
    saved_ = Saved{sequence.kind, writer.Finish(),
                   std::make_unique<EngineReference>(*sequence.reference)};
  }

  void Restore(int32_t s) {
    EngineSequence& sequence = state_.At(s);
    if (!saved_ || saved_->kind != sequence.kind) return;
    state_.Blame("S1", "B4", {&s, 1});
    const int32_t held = sequence.reference->length();
    std::string thrown;
    const StepOutcome outcome = StepOutcomeOf(
        [&] {
          StateReader reader(saved_->file, "the save");
          sequence.cache->LoadState(&reader);
        },
        &thrown);
    if (outcome == StepOutcome::kExhausted && script_.blocks > 0) return;
    if (outcome != StepOutcome::kDone) {
      return state_.Find("S1", s,
                         fmt::format("sequence {}: its save over {} rows: {}", s, held, thrown));
    }
    Count(EngineClass::kRestored);
    sequence.reference = std::make_unique<EngineReference>(*saved_->reference);
    sequence.next = -1;
  }

  const EngineScript& script_;
  const EngineSubject& subject_;
  EngineState state_;
  Transformer engine_;
  std::unique_ptr<EngineDriver> driver_;
  EngineStepper stepper_;
  std::optional<Saved> saved_;
  int64_t forks_ = 0;
};

}  // namespace

std::unique_ptr<KvCache> MakeScriptCache(const CacheSpec& spec, const KvGeometry& geometry,
                                         int32_t blocks) {
  return MakeScriptCacheOn(nullptr, spec, geometry, blocks);
}

std::unique_ptr<KvCache> MakeScriptCacheOn(std::shared_ptr<Device> device, const CacheSpec& spec,
                                           const KvGeometry& geometry, int32_t blocks) {
  if (blocks == 0 || spec.block_size == 0) {
    // Twice: a step in a shared block holds its copy beside the block in its old place.
    return spec.make(
        {.geometry = geometry, .sequences = 2 * kEngineSequences, .device = std::move(device)});
  }
  auto pool = std::make_shared<BlockPool>(BlockPoolOptions{.geometry = geometry,
                                                           .block_size = spec.block_size,
                                                           .num_blocks = blocks,
                                                           .shuffle_seed = 0x5eed});
  return std::make_unique<PagedKvCache>(PagedKvCacheOptions{
      .geometry = geometry, .block_size = spec.block_size, .pool = std::move(pool)});
}

EngineSubject PlantedEngine(const std::string& plant) {
  return {.make_cache = [parsed = ParsePlant(plant)](const CacheSpec& spec,
                                                     const KvGeometry& geometry,
                                                     int32_t blocks) -> std::unique_ptr<KvCache> {
    return std::make_unique<FaultyCache>(MakeScriptCache(spec, geometry, blocks), parsed);
  }};
}

EngineSubject EngineOn(const ScriptSubject& subject) {
  return {.make_cache =
              [make = subject.make](const CacheSpec&, const KvGeometry& geometry, int32_t blocks) {
                CacheScript script;
                script.geometry = geometry;
                script.blocks = blocks;
                return make(script);
              },
          .spec = CacheSpec{.name = "subject",
                            .make = {},
                            .grants_host_slots = !subject.model.refuses_host_slots,
                            .block_size = subject.model.block_size,
                            .window = subject.model.window,
                            .window_type = subject.model.window_type,
                            .key_type = subject.model.key_type,
                            .value_type = subject.model.value_type,
                            .windows = subject.model.windows,
                            .undo_rows = subject.model.max_step_rows},
          .forks = subject.forks,
          .saves = subject.saves,
          .compares_storage = subject.compares_storage};
}

EngineRun RunEngineScript(const EngineScript& script, const EngineSubject& subject) {
  return Runner(script, subject).Run();
}

}  // namespace lockstep
