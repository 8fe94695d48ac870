// What a stage of a traced step was computed from.
#include "golden/mistakes.h"

namespace lockstep {
namespace {

const RecordingTrace::Entry* Find(std::span<const RecordingTrace::Entry> trace, int32_t layer,
                                  Stage stage) {
  for (const RecordingTrace::Entry& entry : trace) {
    if (entry.layer == layer && entry.stage == stage) return &entry;
  }
  return nullptr;
}

// The residual stream that a layer's stages begin with.
const RecordingTrace::Entry* StreamBefore(std::span<const RecordingTrace::Entry> trace,
                                          int32_t layer) {
  return layer == 0 ? Find(trace, -1, Stage::kEmbedding) : Find(trace, layer - 1, Stage::kFfnOut);
}

// The stage whose rows a stage takes; kEmbedding takes tokens.
Stage InputStage(Stage stage) {
  switch (stage) {
    case Stage::kQuery:
    case Stage::kKey:
    case Stage::kValue:
      return Stage::kAttnNorm;
    case Stage::kQueryRope:
      return Stage::kQuery;
    case Stage::kKeyRope:
      return Stage::kKey;
    case Stage::kCacheKey:
      return Stage::kKeyRope;
    case Stage::kCacheValue:
      return Stage::kValue;
    case Stage::kAttention:
      return Stage::kQueryRope;
    case Stage::kAttnOut:
      return Stage::kAttention;
    case Stage::kFfnNorm:
      return Stage::kAttnOut;
    case Stage::kFfnRouter:
    case Stage::kFfnHidden:
      return Stage::kFfnNorm;
    case Stage::kFfnOut:
      return Stage::kFfnHidden;
    case Stage::kLogits:
      return Stage::kFinalNorm;
    default:
      return Stage::kEmbedding;
  }
}

}  // namespace

std::optional<MistakeInputs> InputsOf(std::span<const RecordingTrace::Entry> trace,
                                      std::span<const int32_t> tokens,
                                      std::span<const int32_t> positions, int32_t layer,
                                      Stage stage) {
  const RecordingTrace::Entry* const entry = Find(trace, layer, stage);
  if (entry == nullptr) return std::nullopt;
  MistakeInputs inputs;
  inputs.stage = {.layer = layer, .stage = stage, .tokens = tokens, .positions = positions};
  if (stage == Stage::kEmbedding) return inputs;
  const bool from_stream = stage == Stage::kAttnNorm || stage == Stage::kFinalNorm;
  const RecordingTrace::Entry* const input =
      from_stream ? StreamBefore(trace, layer) : Find(trace, layer, InputStage(stage));
  if (input == nullptr) return std::nullopt;
  inputs.stage.input = input->rows;
  if (stage == Stage::kFinalNorm) {
    inputs.stage.input = std::span(input->rows).last(static_cast<size_t>(input->width));
  }
  if (stage == Stage::kFfnHidden || stage == Stage::kFfnOut) {
    const RecordingTrace::Entry* const router = Find(trace, layer, Stage::kFfnRouter);
    if (router != nullptr) inputs.stage.router = router->rows;
  }
  if (stage == Stage::kAttnOut || stage == Stage::kFfnOut) {
    const RecordingTrace::Entry* const stream =
        stage == Stage::kAttnOut ? StreamBefore(trace, layer) : Find(trace, layer, Stage::kAttnOut);
    if (stream == nullptr) return std::nullopt;
    inputs.stage.stream = stream->rows;
  }
  for (int32_t position : positions) inputs.visible.push_back(position + 1);
  return inputs;
}

}  // namespace lockstep
