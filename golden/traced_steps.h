// What the tests of causes are made of: traced steps of a synthetic model.
#ifndef LOCKSTEP_GOLDEN_TRACED_STEPS_H_
#define LOCKSTEP_GOLDEN_TRACED_STEPS_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "caches/simple_kv_cache.h"
#include "engine/model.h"
#include "engine/synthetic.h"
#include "engine/transformer.h"
#include "golden/mistakes.h"

namespace lockstep {

struct TracedStep {
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<RecordingTrace::Entry> trace;
  std::vector<KvRows> views;  // by layer, after the step
};

// A prompt of 6 tokens and a second chunk of 4, on contiguous F32 rows.
struct TracedModel {
  explicit TracedModel(std::string_view preset)
      : model(Model::Load(MakeSyntheticModel(SyntheticPreset(preset), 11))) {
    Transformer engine(model);
    SimpleKvCache cache(model->config().geometry(16));
    for (const auto& [first, count] : {std::pair{0, 6}, std::pair{6, 4}}) {
      TracedStep step;
      for (int32_t p = first; p < first + count; ++p) {
        step.positions.push_back(p);
        step.tokens.push_back((p * 37 + 5) % 256);
      }
      RecordingTrace trace;
      engine.Forward(step.tokens, step.positions, cache, &trace);
      step.trace.assign(trace.entries().begin(), trace.entries().end());
      for (int32_t layer = 0; layer < model->config().num_layers; ++layer) {
        KvView view;
        cache.View(layer, &view);
        step.views.push_back(DecodeRows(view, model->config().kv_dim()));
      }
      steps.push_back(std::move(step));
    }
  }

  std::shared_ptr<const Model> model;
  std::vector<TracedStep> steps;
};

inline const RecordingTrace::Entry& EntryOf(const TracedStep& step, int32_t layer, Stage stage) {
  for (const RecordingTrace::Entry& entry : step.trace) {
    if (entry.layer == layer && entry.stage == stage) return entry;
  }
  std::abort();
}

// Inputs with the layer's view. REQUIRES: a stage of the trace.
inline MistakeInputs TracedInputs(const TracedStep& step, int32_t layer, Stage stage) {
  MistakeInputs inputs = InputsOf(step.trace, step.tokens, step.positions, layer, stage).value();
  if (stage == Stage::kAttention) inputs.views = {step.views[static_cast<size_t>(layer)]};
  return inputs;
}

inline bool HasHeads(Stage stage) { return stage >= Stage::kQuery && stage <= Stage::kAttention; }

// The place with `is` in it, and the traced rows as what should be. Spans point into both.
struct ClassifiedPlace {
  ClassifiedPlace(const TracedModel& traced, const RecordingTrace::Entry& entry,
                  std::vector<float> rows)
      : is(std::move(rows)), should(entry.rows.begin(), entry.rows.end()) {
    place.stage = entry.stage;
    place.width = entry.width;
    place.positions = entry.positions;
    place.head_dim = HasHeads(entry.stage) ? traced.model->config().head_dim : 0;
    place.is = is;
    place.should = should;
  }

  std::vector<float> is;
  std::vector<double> should;
  CausePlace place;
};

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_TRACED_STEPS_H_
