// What comes behind the layers of a step on a device: wanted rows, logits, their argmax.
#include "engine/device/forward.h"

namespace lockstep::device {

void DeviceForward::KeepWantedRows() {
  const DeviceEnds& ends = *weights_.ends;
  const int64_t dim = config_.dim;
  for (const Piece& piece : pieces_) {
    const int32_t wanted = piece.in.wanted;
    if (wanted == 0) continue;
    RmsNorm(*stream_,
            {.x = residual_.part((piece.first + piece.count - wanted) * dim, wanted * dim),
             .weight = ends.output_norm.all(),
             .rows = wanted,
             .n = config_.dim,
             .eps = config_.rms_eps,
             .y = final_.part(piece.in.output * dim, wanted * dim),
             .blocks = ends.output.quantized()
                           ? final_blocks_.part(QuantizedBytes(piece.in.output, config_.dim),
                                                QuantizedBytes(wanted, config_.dim))
                           : Global<uint8_t>{},
             .residual = {}});
  }
}

void DeviceForward::EnqueueLogits(int32_t outputs) {
  const DeviceEnds& ends = *weights_.ends;
  MatMulArgs args;
  args.w = ends.output.matrix();
  args.tokens = outputs;
  if (ends.output.quantized()) {
    args.blocks = final_blocks_.part(0, QuantizedBytes(outputs, config_.dim));
  } else {
    args.x = final_.part(0, int64_t{outputs} * config_.dim);
  }
  args.y = logits_.part(0, int64_t{outputs} * config_.vocab_size);
  args.scale = config_.logit_scale;
  args.cap = config_.logit_cap;
  MatMul(*stream_, args);
}

void DeviceForward::EnqueueArgMax() {
  ArgMax(*stream_, logits_.part(0, config_.vocab_size), 1, config_.vocab_size, best_scratch_.all(),
         best_.all());
}

void DeviceForward::TraceEnds(int32_t outputs, Stage stage, const DeviceBuffer<float>& rows,
                              int64_t width) {
  for (int32_t i = 0; i < outputs; ++i) {
    const End& end = ends_[static_cast<size_t>(i)];
    if (end.trace == nullptr) continue;
    RowsOnHost(rows, i, 1, width);
    end.trace->OnStage({config_.num_layers, stage, {&end.position, 1}, trace_rows_, width});
  }
}

void DeviceForward::FinishLogits(int32_t outputs) {
  TraceEnds(outputs, Stage::kFinalNorm, final_, config_.dim);
  if (!ended_in_graph_ || outputs != 1) EnqueueLogits(outputs);
  TraceEnds(outputs, Stage::kLogits, logits_, config_.vocab_size);
}

void DeviceForward::Logits(int32_t outputs, std::span<float> logits) {
  FinishLogits(outputs);
  stream_->Download(logits_.address(), logits.data(), static_cast<int64_t>(logits.size_bytes()));
  stream_->Synchronize();
}

int32_t DeviceForward::Greedy() {
  FinishLogits(1);
  if (!ended_in_graph_) EnqueueArgMax();
  int32_t best = 0;
  stream_->Download(best_.address(), &best, sizeof(best));
  stream_->Synchronize();
  return best;
}

}  // namespace lockstep::device
