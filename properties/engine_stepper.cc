#include "properties/engine_stepper.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/kernels.h"
#include "oracle/difference.h"

namespace lockstep {

// How a step has to end before anything was written [F2].
StepOutcome EngineStepper::Expected(std::span<const StepPart> parts) const {
  if (parts.empty()) return StepOutcome::kInvalid;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto before = parts.first(i);
    if (std::ranges::find(before, parts[i].sequence, &StepPart::sequence) != before.end()) {
      return StepOutcome::kInvalid;
    }
    if (parts[i].positions.back() >= script_.max_length) return StepOutcome::kOutOfRange;
  }
  return StepOutcome::kDone;
}

// One step on both sides, compared. False when it failed, as it had to, or something was found.
bool EngineStepper::Step(std::span<const StepPart> parts, const StepWay& way) {
  const StepOutcome expected = Expected(parts);
  const BlockNeed need = expected == StepOutcome::kDone ? state_.BlocksNeeded(parts) : BlockNeed{};
  CancelPoint point(way.cancel_at);
  Dresses dresses;
  std::vector<BatchSequence> batch;
  for (const StepPart& part : parts) {
    EngineSequence& sequence = state_.At(part.sequence);
    std::optional<DressedCache>& dress = dresses[static_cast<size_t>(part.sequence)];
    // A repeated sequence is one cache.
    if (!dress) {
      dress.emplace(*sequence.cache, sequence.path, way.cancel_at >= 0 ? &point : nullptr);
    }
    batch.push_back({part.tokens, part.positions, &dress->cache(), dress->trace(),
                     state_.AdaptersOf(sequence)});
  }
  std::span<const float> logits;
  std::string thrown;
  const StepOutcome outcome = StepOutcomeOf(
      [&] {
        logits =
            way.accepted >= 0 ? driver_.Speculate(batch[0], way.accepted) : driver_.Step(batch);
      },
      &thrown);
  Judge(outcome, point.fired() ? StepOutcome::kCancelled : expected, need, thrown);
  if (state_.found()) return false;
  if (outcome != StepOutcome::kDone) {
    Fail(outcome, parts, dresses);
    return false;
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t width = logits.size() / parts.size();
    Accept(parts[i], logits.subspan(i * width, width), way);
  }
  ComparePaths(parts, dresses, way.cancel_at >= 0);
  return !state_.found();
}

// Whether a step ended as it had to.
void EngineStepper::Judge(StepOutcome outcome, StepOutcome expected, const BlockNeed& need,
                          const std::string& thrown) {
  if (outcome == StepOutcome::kExhausted && need.may_fail) return;
  if (outcome == expected && !(outcome == StepOutcome::kDone && need.must_fail)) return;
  const std::string_view clause = outcome == StepOutcome::kExhausted || need.must_fail ? "U4"
                                  : expected == StepOutcome::kCancelled                ? "F1"
                                  : expected == StepOutcome::kDone                     ? "F3"
                                                                                       : "F2";
  state_.Find(clause, -1,
              fmt::format("a step ended with {}{}{} where it had to end with {}",
                          StepOutcomeName(outcome), thrown.empty() ? "" : ": ", thrown,
                          StepOutcomeName(need.must_fail ? StepOutcome::kExhausted : expected)));
}

void EngineStepper::Fail(StepOutcome outcome, std::span<const StepPart> parts,
                         const Dresses& dresses) {
  Count(outcome == StepOutcome::kOutOfRange  ? EngineClass::kOverflowRefused
        : outcome == StepOutcome::kInvalid   ? EngineClass::kRepeatedRefused
        : outcome == StepOutcome::kExhausted ? EngineClass::kExhausted
                                             : EngineClass::kCancelled);
  const bool refused = outcome == StepOutcome::kOutOfRange || outcome == StepOutcome::kInvalid;
  for (const StepPart& part : parts) {
    EngineSequence& sequence = state_.At(part.sequence);
    sequence.failed = true;
    const auto& dress = dresses[static_cast<size_t>(part.sequence)];
    sequence.reference->Lose(dress->writes());
  }
  state_.BlameAll(refused ? "F2" : "F1");
}

void EngineStepper::Accept(const StepPart& part, std::span<const float> logits,
                           const StepWay& way) {
  EngineSequence& sequence = state_.At(part.sequence);
  const int32_t length = sequence.reference->length();
  sequence.reference->Append(part.tokens, state_.AdaptersOf(sequence));
  CompareLogits(part.sequence, logits, sequence.reference->logits());
  state_.digest.AddFloats(logits);
  sequence.next = ArgMax(logits);
  if (way.accepted >= 0) {
    sequence.reference->Rollback(length + way.accepted + 1);
    sequence.next = -1;
  }
  CountStep(part);
}

void EngineStepper::CompareLogits(int32_t sequence, std::span<const float> logits,
                                  std::span<const float> expected) {
  const int64_t at = FirstFloatDifference(logits, expected);
  if (at < 0) return;
  Difference difference;
  difference.kind = Difference::Kind::kLogits;
  difference.place = "logits";
  difference.element = at;
  difference.subject = logits[static_cast<size_t>(at)];
  difference.oracle = expected[static_cast<size_t>(at)];
  state_.FindDifference(sequence, std::move(difference));
}

void EngineStepper::CountStep(const StepPart& part) {
  EngineSequence& sequence = state_.At(part.sequence);
  EngineCounts& counts = state_.run.counts;
  ++counts.steps;
  counts.tokens += static_cast<int64_t>(part.tokens.size());
  Count(sequence.path == 0   ? EngineClass::kDirect
        : sequence.path == 1 ? EngineClass::kLegacy
                             : EngineClass::kRefused);
  Count(script_.threads == 1   ? EngineClass::kThreads1
        : script_.threads == 2 ? EngineClass::kThreads2
        : script_.threads == 3 ? EngineClass::kThreads3
                               : EngineClass::kThreads7);
  if (sequence.adapters != 0) Count(EngineClass::kAdapted);
  if (std::exchange(sequence.adapted, sequence.adapters) != sequence.adapters &&
      sequence.reference->tokens().size() > part.tokens.size()) {
    Count(EngineClass::kAdaptersSwitched);
  }
  if (std::exchange(sequence.failed, false)) Count(EngineClass::kAfterFailure);
  if (std::exchange(sequence.cleared, false)) Count(EngineClass::kClearedReused);
  if (std::exchange(sequence.shifted, false)) Count(EngineClass::kStepAfterShift);
  CountDivergence(part.sequence);
}

// Both sides of a fork inside a block have written other tokens behind it.
void EngineStepper::CountDivergence(int32_t s) {
  EngineSequence& own = state_.At(s);
  for (int32_t other = 0; other < kEngineSequences && own.fork_inside; ++other) {
    const auto& slot = state_.Slot(other);
    if (other == s || !slot || slot->fork != own.fork) continue;
    const auto at = static_cast<size_t>(own.fork_length);
    const auto a = own.reference->tokens();
    const auto b = slot->reference->tokens();
    if (a.size() <= at || b.size() <= at || a[at] == b[at]) continue;
    Count(EngineClass::kForksDiverge);
    own.fork_inside = false;
  }
}

// Which path ran, by layer [R2, R3]: bits that agree prove nothing about a path that did not run.
void EngineStepper::ComparePaths(std::span<const StepPart> parts, Dresses& dresses, bool traced) {
  std::vector<int32_t> max_rows;
  for (const StepPart& part : parts) {
    max_rows.push_back(state_.At(part.sequence).cache->max_step_rows());
  }
  const auto cuts = CutStep(parts, max_rows, script_.step);
  const int32_t on_device = state_.DeviceLayersOf(parts);
  const bool whole = on_device == state_.model().config().num_layers;
  if (on_device > 0) Count(whole ? EngineClass::kOnDevice : EngineClass::kPartOnDevice);
  for (size_t i = 0; i < parts.size(); ++i) {
    const int32_t s = parts[i].sequence;
    const EngineSequence& sequence = state_.At(s);
    const CacheSpec& spec = state_.kind(sequence.kind).spec;
    CountingCache& cache = dresses[static_cast<size_t>(s)]->cache();
    for (int32_t layer = 0; layer < cache.geometry().num_layers; ++layer) {
      const Counters seen = cache.layer(layer);
      const PathCounts calls = {seen.reserve_granted, seen.reserve_refused, seen.commits,
                                seen.updates, seen.on_device};
      const CallsRule rule = {.rule = {.grants_host_slots = spec.grants_host_slots,
                                       .block_size = spec.block_size,
                                       .device_layers = on_device,
                                       .grants_device_slots = true,
                                       .ring_rows = RingRowsOf(spec, cache.geometry())},
                              .path = sequence.path,
                              .graphs = whole && !traced};
      const PathCounts expected = ExpectedCalls(cuts[i], rule, layer);
      state_.run.counts.granted += calls.granted;
      state_.run.counts.refused += calls.refused;
      state_.run.counts.updated += calls.updates;
      if (calls == expected) continue;
      const auto text = [](const PathCounts& c) {
        return fmt::format("{} slots granted, {} refused, {} commits, {} updates, {} on a device",
                           c.granted, c.refused, c.commits, c.updates, c.on_device);
      };
      state_.Find("R2", s,
                  fmt::format("sequence {}, layer {}: {}; by the rule {}", s, layer, text(calls),
                              text(expected)));
    }
  }
}

}  // namespace lockstep
