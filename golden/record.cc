#include "golden/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>

#include "caches/cache_file.h"
#include "caches/error.h"
#include "engine/math.h"
#include "golden/record/trace.h"
#include "golden/record/writer.h"
#include "properties/engine_step.h"

namespace lockstep {
namespace {

struct Sequence {
  std::unique_ptr<KvCache> cache;
  int32_t length = 0;  // as it has to be, whatever the cache says
  int32_t path = 0;
  int32_t next = -1;  // the greedy token, -1 where nobody knows it
  int32_t adapters = 0;
};

struct Saved {
  std::vector<std::byte> file;
  int32_t length = 0;
};

struct StepWay {
  int32_t accepted = -1;
  int32_t cancel_at = -1;
};

// The operations of properties/engine_script_runner.cc, without anything to compare with.
class Recorder {
 public:
  Recorder(const Scenario& scenario, const RecordOptions& options, const ScenarioModel& model)
      : scenario_(scenario),
        options_(options),
        model_(model),
        spec_(ParseCacheSpec(options.cache.empty() ? scenario.caches.at(0) : options.cache)),
        engine_(model.model, {.kernels = options.kernels,
                              .max_step_tokens = scenario.step,
                              .threads = options.threads,
                              .device = options.device}),
        adapters_(AdaptersOf(scenario, *model.model)),
        driver_(options.subject.make_driver ? options.subject.make_driver(engine_)
                                            : std::make_unique<EngineDriver>(engine_)),
        root_(MakeRoot()) {}

  Recording Record() {
    for (size_t i = 0; i < scenario_.ops.size(); ++i) {
      op_ = static_cast<int32_t>(i);
      writer_.Begin(op_, EngineOpText(scenario_.ops[i]));
      std::string thrown;
      StepOutcome outcome = StepOutcome::kDone;
      // A wrong engine may fail anywhere.
      const StepOutcome whole =
          StepOutcomeOf([&] { outcome = Operate(scenario_.ops[i]); }, &thrown);
      writer_.Outcome(std::string(StepOutcomeName(whole == StepOutcome::kDone ? outcome : whole)));
      WriteState();
    }
    recording_.golden.header = {.scenario = ScenarioDigest(scenario_),
                                .model = model_.digest,
                                .rows = RowsName(spec_),
                                .arithmetic = kArithmeticVersion,
                                .recorded_by = "lockstep " LOCKSTEP_VERSION};
    recording_.golden.facts = writer_.Finish();
    recording_.device_layer_steps = engine_.device_use().layer_steps;
    return std::move(recording_);
  }

 private:
  // Made only for a scenario that adapts.
  static AdapterSets AdaptersOf(const Scenario& scenario, const Model& model) {
    const auto adapts = [](const EngineOp& op) { return op.kind == EngineOpKind::kAdapt; };
    return std::ranges::any_of(scenario.ops, adapts) ? MakeAdapterSets(model.config())
                                                     : AdapterSets{};
  }

  std::unique_ptr<KvCache> MakeRoot() const {
    const KvGeometry geometry = model_.model->config().geometry(scenario_.max_length);
    const auto refuse = [&](const std::string& why) {
      return Error({fmt::format("case {}", scenario_.name),
                    fmt::format("no cache {} can be made of it: {}", spec_.name, why),
                    "correct case.toml"});
    };
    try {
      if (options_.subject.make_cache) {
        return options_.subject.make_cache(spec_, geometry, scenario_.blocks);
      }
      if (options_.device == nullptr) return MakeScriptCache(spec_, geometry, scenario_.blocks);
      return spec_.make({.geometry = geometry, .device = options_.device});
    } catch (const std::invalid_argument& error) {
      throw refuse(error.what());
    } catch (const std::bad_alloc&) {
      throw refuse("it does not fit memory");
    }
  }

  std::optional<Sequence>& Slot(int32_t s) { return sequences_[static_cast<size_t>(s)]; }

  Sequence& At(int32_t s) {
    std::optional<Sequence>& slot = Slot(s);
    if (slot) return *slot;
    slot.emplace();
    slot->cache = root_->Fork();
    slot->path = options_.legacy ? 1 : 0;
    return *slot;
  }

  StepOutcome Operate(const EngineOp& op) {
    const int32_t s = op.sequences.empty() ? 0 : op.sequences[0];
    switch (op.kind) {
      case EngineOpKind::kPrefill:
        return Prefill(op, s);
      case EngineOpKind::kDecode:
        return Decode(op, s);
      case EngineOpKind::kSpeculate: {
        const int32_t drafts = UndoableDrafts(*At(s).cache, op.count);
        return Step({PartOf(op, s, drafts + 1, true)}, {.accepted = std::min(op.accept, drafts)});
      }
      case EngineOpKind::kBatch:
        return Batch(op, {});
      case EngineOpKind::kCancel:
        return Batch(op, {.cancel_at = op.count});
      case EngineOpKind::kRollback:
        return Change(s, op.count, [&](KvCache& c) { driver_->Rollback(c, op.count); });
      case EngineOpKind::kFork:
        Fork(s, op.count);
        return StepOutcome::kDone;
      case EngineOpKind::kEnd:
        Slot(s).reset();
        return StepOutcome::kDone;
      case EngineOpKind::kClear:
        return Change(s, 0, [](KvCache& c) { c.Clear(); });
      case EngineOpKind::kSave:
        Save(s);
        return StepOutcome::kDone;
      case EngineOpKind::kRestore:
        return Restore(s);
      case EngineOpKind::kPath:
        // The legacy path, where it is asked for, is that of the whole recording.
        At(s).path = options_.legacy ? 1 : PathOn(model_.model->config().num_layers, op.count);
        return StepOutcome::kDone;
      case EngineOpKind::kAdapt:
        At(s).adapters = op.count;
        return StepOutcome::kDone;
      case EngineOpKind::kShift:
        return Change(s, At(s).length + op.accept - op.count, [&](KvCache& c) {
          driver_->Shift(c, {op.accept, op.count});
        });
    }
    return StepOutcome::kOther;
  }

  // ---- Steps ------------------------------------------------------------------------------

  StepPart PartOf(const EngineOp& op, int32_t s, int32_t count, bool greedy, uint64_t salt = 0) {
    const Sequence& sequence = At(s);
    return SeededPart({.sequence = s,
                       .seed = op.tokens,
                       .salt = salt,
                       .count = count,
                       .greedy = greedy ? sequence.next : -1},
                      sequence.length, model_.model->config().vocab_size);
  }

  // The prompt's tokens instead of seeded ones, in the first prefill.
  void TakePrompt(StepPart* part) {
    for (size_t i = 0; i < part->tokens.size() && prompt_used_ < model_.prompt.size(); ++i) {
      part->tokens[i] = model_.prompt[prompt_used_++];
    }
  }

  // Tokens [done, done + size) of the operation, behind the gaps that it has.
  void PassOver(int32_t done, StepPart* part) const {
    for (size_t i = 0; i < part->positions.size(); ++i) {
      for (const ScenarioGap& gap : scenario_.gaps) {
        // Gaps before this part are in the sequence's length.
        const bool inside = gap.after >= done && gap.after <= done + static_cast<int32_t>(i);
        if (gap.op == op_ && inside && gap.after > 0) part->positions[i] += gap.rows;
      }
    }
  }

  StepOutcome Prefill(const EngineOp& op, int32_t s) {
    int32_t done = 0;
    for (size_t i = 0; i < op.cuts.size(); ++i) {
      StepPart part = PartOf(op, s, op.cuts[i], false, i);
      TakePrompt(&part);
      PassOver(done, &part);
      done += op.cuts[i];
      const StepOutcome outcome = Step({part}, {});
      if (outcome != StepOutcome::kDone) return outcome;
    }
    return StepOutcome::kDone;
  }

  StepOutcome Decode(const EngineOp& op, int32_t s) {
    for (int32_t i = 0; i < op.count; ++i) {
      const StepPart part = PartOf(op, s, 1, op.tokens == 0, static_cast<uint64_t>(i));
      const StepOutcome outcome = Step({part}, {});
      if (outcome != StepOutcome::kDone) return outcome;
    }
    return StepOutcome::kDone;
  }

  StepOutcome Batch(const EngineOp& op, const StepWay& way) {
    std::vector<StepPart> parts;
    for (size_t i = 0; i < op.sequences.size(); ++i) {
      parts.push_back(PartOf(op, op.sequences[i], op.cuts[i], false));
    }
    return Step(parts, way);
  }

  StepOutcome Step(const std::vector<StepPart>& parts, const StepWay& way) {
    CancelPoint point(way.cancel_at);
    CallTrace trace;
    std::map<int32_t, std::unique_ptr<DressedCache>> dresses;
    std::vector<BatchSequence> batch;
    for (const StepPart& part : parts) {
      Sequence& sequence = At(part.sequence);
      std::unique_ptr<DressedCache>& dress = dresses[part.sequence];
      // A repeated sequence is one cache.
      if (!dress) {
        dress = std::make_unique<DressedCache>(*sequence.cache, sequence.path,
                                               way.cancel_at >= 0 ? &point : nullptr);
      }
      batch.push_back({part.tokens, part.positions, &dress->cache(),
                       trace.SinkOf(part, dress->trace()),
                       adapters_[static_cast<size_t>(sequence.adapters)]});
    }
    std::string thrown;
    std::span<const float> logits;
    const StepOutcome outcome = StepOutcomeOf(
        [&] {
          logits =
              way.accepted >= 0 ? driver_->Speculate(batch[0], way.accepted) : driver_->Step(batch);
        },
        &thrown);
    for (const auto& [s, dress] : dresses) CountCalls(s, dress->cache());
    if (outcome != StepOutcome::kDone) {
      for (const StepPart& part : parts) {  // that could not be undone leaves nothing [F1]
        Sequence& sequence = At(part.sequence);
        sequence.length = std::min(sequence.length, sequence.cache->current_length());
      }
      return outcome;
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      const size_t width = logits.size() / parts.size();
      Accept(parts[i], logits.subspan(i * width, width), way, &trace);
    }
    for (RecordedStep& step : trace.steps()) {
      step.op = op_;
      step.adapters = At(step.sequence).adapters;
      writer_.Step(step, steps_++);
      if (options_.keep_values) recording_.steps.push_back(std::move(step));
    }
    return outcome;
  }

  void Accept(const StepPart& part, std::span<const float> logits, const StepWay& way,
              CallTrace* trace) {
    Sequence& sequence = At(part.sequence);
    sequence.length =
        way.accepted >= 0 ? part.positions.front() + way.accepted + 1 : part.positions.back() + 1;
    sequence.next = way.accepted >= 0 ? -1 : ArgMax(logits);
    RecordedStep* last = trace->LastOf(part.sequence);
    if (last != nullptr) last->logits.assign(logits.begin(), logits.end());
  }

  void CountCalls(int32_t s, const CountingCache& cache) {
    for (int32_t layer = 0; layer < cache.geometry().num_layers; ++layer) {
      const Counters seen = cache.layer(layer);
      calls_[s] += {seen.reserve_granted, seen.reserve_refused, seen.commits, seen.updates};
    }
  }

  // ---- Everything else --------------------------------------------------------------------

  // Something that leaves `length` rows at most.
  StepOutcome Change(int32_t s, int32_t length, const std::function<void(KvCache&)>& call) {
    std::string thrown;
    const StepOutcome outcome = StepOutcomeOf([&] { call(*At(s).cache); }, &thrown);
    if (outcome == StepOutcome::kDone) Shorten(&At(s), length);
    return outcome;
  }

  static void Shorten(Sequence* sequence, int32_t length) {
    if (length >= sequence->length) return;
    sequence->next = -1;
    sequence->length = length;
  }

  void Fork(int32_t s, int32_t target) {
    if (target == s) return;
    Slot(target).reset();
    Sequence& source = At(s);
    Sequence fork{driver_->Fork(*source.cache), source.length, source.path, source.next,
                  source.adapters};
    Slot(target) = std::move(fork);
  }

  void Save(int32_t s) {
    const Sequence& sequence = At(s);
    StateWriter writer;
    sequence.cache->SaveState(&writer);
    saved_ = Saved{writer.Finish(), sequence.length};
  }

  StepOutcome Restore(int32_t s) {
    Sequence& sequence = At(s);
    if (!saved_) return StepOutcome::kDone;
    const StepOutcome outcome = Change(s, INT32_MAX, [&](KvCache& c) {
      StateReader reader(saved_->file, "the save");
      c.LoadState(&reader);
    });
    if (outcome != StepOutcome::kDone) return outcome;
    sequence.length = saved_->length;
    sequence.next = -1;
    return outcome;
  }

  void WriteState() {
    for (int32_t s = 0; s < kEngineSequences; ++s) {
      if (!Slot(s)) continue;
      writer_.State(s, *Slot(s)->cache);
      if (options_.on_state) options_.on_state(op_, s, *Slot(s)->cache);
    }
    if (!options_.legacy && options_.device == nullptr) {
      for (const auto& [s, counts] : calls_) writer_.Gate(s, spec_.name, counts);
    }
    calls_.clear();
  }

  const Scenario& scenario_;
  const RecordOptions& options_;
  const ScenarioModel& model_;
  CacheSpec spec_;
  Transformer engine_;
  AdapterSets adapters_;
  std::unique_ptr<EngineDriver> driver_;
  std::unique_ptr<KvCache> root_;
  std::array<std::optional<Sequence>, kEngineSequences> sequences_;
  std::optional<Saved> saved_;
  size_t prompt_used_ = 0;
  int32_t op_ = 0;
  int32_t steps_ = 0;
  std::map<int32_t, PathCounts> calls_;  // of this operation, by sequence
  FactWriter writer_;
  Recording recording_;
};

}  // namespace

Recording Record(const Scenario& scenario, const RecordOptions& options) {
  const ScenarioModel model = LoadScenarioModel(scenario, options.models);
  return Recorder(scenario, options, model).Record();
}

MergedGolden RecordGroup(const Scenario& scenario, const RowsGroup& group, RecordOptions options) {
  MergedGolden merged{.golden = {}, .disagreements = {}, .cache = {}, .on_device = true};
  options.keep_values = false;
  for (const std::string& cache : group.caches) {
    options.cache = cache;
    Recording recording = Record(scenario, options);
    merged.on_device = merged.on_device && recording.device_layer_steps > 0;
    GoldenFile golden = std::move(recording.golden);
    if (cache == group.caches.front()) {
      merged.golden = std::move(golden);
      continue;
    }
    auto changes = CompareGoldens(FactsOfCache(merged.golden, {}), FactsOfCache(golden, {}));
    if (!changes.empty()) {
      merged.disagreements = std::move(changes);
      merged.cache = cache;
      return merged;
    }
    for (Fact& fact : golden.facts) {
      if (fact.base_name() == "gate") merged.golden.facts.push_back(std::move(fact));
    }
  }
  std::ranges::stable_sort(merged.golden.facts, FactBefore);
  return merged;
}

}  // namespace lockstep
