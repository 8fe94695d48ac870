// Runs one step of an engine script on the engine and on the references, and compares what it gave:
// how it ended, the logits, the write path of each layer.
#ifndef LOCKSTEP_PROPERTIES_ENGINE_STEPPER_H_
#define LOCKSTEP_PROPERTIES_ENGINE_STEPPER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "properties/engine_driver.h"
#include "properties/engine_script_runner.h"
#include "properties/engine_state.h"
#include "properties/engine_step.h"

namespace lockstep {

// How a step differs from a plain one.
struct StepWay {
  int32_t accepted = -1;   // of a speculation
  int32_t cancel_at = -1;  // a point
};

class EngineStepper {
 public:
  // Both are borrowed.
  EngineStepper(const EngineScript& script, EngineState& state, EngineDriver& driver)
      : script_(script), state_(state), driver_(driver) {}

  // False when the step failed, as it had to, or something was found.
  bool Step(std::span<const StepPart> parts, const StepWay& way);

 private:
  using Dresses = std::array<std::optional<DressedCache>, kEngineSequences>;

  StepOutcome Expected(std::span<const StepPart> parts) const;
  void Judge(StepOutcome outcome, StepOutcome expected, const BlockNeed& need,
             const std::string& thrown);
  void Fail(StepOutcome outcome, std::span<const StepPart> parts, const Dresses& dresses);
  void Accept(const StepPart& part, std::span<const float> logits, const StepWay& way);
  void CompareLogits(int32_t sequence, std::span<const float> logits,
                     std::span<const float> expected);
  void ComparePaths(std::span<const StepPart> parts, Dresses& dresses, bool traced);
  void CountStep(const StepPart& part);
  void CountDivergence(int32_t sequence);
  void Count(EngineClass c) { ++state_.run.counts[c]; }

  const EngineScript& script_;
  EngineState& state_;
  EngineDriver& driver_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_ENGINE_STEPPER_H_
