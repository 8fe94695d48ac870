// Known mistakes, made on purpose: one stage as it should be, and as each mistake of an engine
// would have left it, in double precision by the reference transformer.
#ifndef LOCKSTEP_GOLDEN_MISTAKES_H_
#define LOCKSTEP_GOLDEN_MISTAKES_H_

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "caches/kv_cache.h"
#include "engine/model.h"
#include "golden/cause.h"
#include "oracle/reference_transformer.h"

namespace lockstep {

// What a stage was computed from. Of attention, `visible` and `views` take the place of the spans
// of the same meaning: what each query read, or one view for all of them.
struct MistakeInputs {
  StageInputs stage;
  std::vector<int32_t> visible = {};
  std::vector<KvRows> views = {};
  // Rows of earlier steps, at positions past 0, were rotated as they should be: a lone query at
  // position 0's angle has then lost its position, not its rotation.
  bool rotated_before = false;
  int32_t adapters = 0;  // the set of properties/engine_step.h that the step ran with
};

// Inputs of one stage of a traced step, without views. Spans point into the arguments; `visible` is
// position + 1. Nothing when the trace lacks the stage or what it is computed from.
std::optional<MistakeInputs> InputsOf(std::span<const RecordingTrace::Entry> trace,
                                      std::span<const int32_t> tokens,
                                      std::span<const int32_t> positions, int32_t layer,
                                      Stage stage);

class MistakeMaker {
 public:
  // Throws Error for a file that is no llama model.
  explicit MistakeMaker(std::shared_ptr<const Model> model);
  ~MistakeMaker();

  // The stage without a mistake, with the rounding bounds of its canonical arithmetic.
  ReferenceRows Expected(const MistakeInputs& inputs) const;

  // With each mistake that the stage allows. Empty for stages that take rows as they are.
  std::vector<CauseCandidate> Mistakes(const MistakeInputs& inputs) const;

 private:
  class Maker;

  const ReferenceTransformer& With(ReferenceOptions options, int32_t adapters) const;
  ReferenceRows Compute(const MistakeInputs& inputs, ReferenceOptions options) const;

  std::shared_ptr<const Model> model_;
  mutable std::map<std::tuple<int32_t, bool, ReferenceFault>, std::unique_ptr<ReferenceTransformer>>
      references_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_MISTAKES_H_
