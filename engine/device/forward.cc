#include "engine/device/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "caches/check.h"
#include "caches/error.h"
#include "engine/device/head_limit.h"

namespace lockstep::device {
namespace {

// Attention's grid and scratch are for so many positions: few different numbers, so that few graphs
// are recorded.
int32_t RoundedPositions(int32_t positions) {
  int32_t rounded = 256;
  while (rounded < positions) rounded *= 2;
  return rounded;
}

// What the host computes and no kernel here does.
void CheckFunction(const Model& model) {
  const ModelConfig& config = model.config();
  const char* lacks = nullptr;
  if (config.window != 0) lacks = "sliding windows";
  if (config.local_rope) lacks = "layers with a RoPE of their own";
  if (config.attention_cap != 0 || config.logit_cap != 0) lacks = "soft-caps";
  if (config.activation != Activation::kSilu) lacks = "GELU";
  if (!model.layers().front().post_attn_norm.empty()) lacks = "norms behind sublayers";
  if (config.num_experts > 0) lacks = "experts";
  if (lacks == nullptr) return;
  throw UnsupportedOnDevice({.where = fmt::format("device: model '{}'", config.name),
                             .what = fmt::format("there are no device kernels for {}", lacks),
                             .remedy = "run the model on the host"});
}

void CheckModel(const Model& model, int32_t layers) {
  const ModelConfig& config = model.config();
  LS_CHECK(layers > 0 && layers <= config.num_layers, "{} of {} layers on a device", layers,
           config.num_layers);
  if (config.head_dim > kHeadDimMax) {
    throw std::invalid_argument(
        fmt::format("device: heads of {} elements; the kernels take up to {}: run the model on "
                    "the host",
                    config.head_dim, kHeadDimMax));
  }
  CheckFunction(model);
}

}  // namespace

DeviceForward::DeviceForward(std::shared_ptr<const Model> model, std::shared_ptr<Device> device,
                             int32_t layers)
    : model_((CheckModel(*model, layers), std::move(model))),
      config_(model_->config()),
      device_(std::move(device)),
      stream_(device_->NewStream()),
      weights_(*device_, *stream_, *model_, layers),
      shape_{.num_heads = config_.num_heads,
             .num_kv_heads = config_.num_kv_heads,
             .head_dim = config_.head_dim,
             .scale = config_.attention_scale} {}

DeviceForward::~DeviceForward() = default;

int32_t DeviceForward::LayersFor(std::span<const BatchSequence> batch) const {
  const auto most = static_cast<int32_t>(weights_.layers.size());
  for (int32_t layer = 0; layer < most; ++layer) {
    for (const BatchSequence& sequence : batch) {
      DeviceKv* kv = sequence.cache->device_kv(layer);
      if (kv == nullptr || &kv->device() != device_.get()) return layer;
    }
  }
  return most;
}

void DeviceForward::Reserve(int32_t rows, int32_t sequences, int32_t positions) {
  // Each: no room as long as not all have grown.
  if (rows > rows_room_) {
    rows_room_ = 0;
    ReserveRows(rows);
    rows_room_ = rows;
  }
  if (sequences > sequences_room_) {
    sequences_room_ = 0;
    ReserveSequences(sequences);
    sequences_room_ = sequences;
  }
  if (positions > positions_room_) {
    positions_room_ = 0;
    ReservePositions(positions);
    positions_room_ = positions;
  }
}

void DeviceForward::ReserveRows(int32_t rows) {
  const int64_t n = rows;
  graphs_.clear();
  tokens_ = DeviceBuffer<int32_t>(*device_, n);
  positions_ = DeviceBuffer<int32_t>(*device_, n);
  exact_first_ = DeviceBuffer<int32_t>(*device_, n * config_.num_layers);
  host_exact_first_.assign(static_cast<size_t>(exact_first_.size()), 0);
  residual_ = DeviceBuffer<float>(*device_, n * config_.dim);
  normed_ = DeviceBuffer<float>(*device_, n * config_.dim);
  query_ = DeviceBuffer<float>(*device_, n * config_.q_dim());
  key_ = DeviceBuffer<float>(*device_, n * config_.kv_dim());
  key_rows_ = DeviceBuffer<float>(*device_, n * config_.kv_dim());
  value_ = DeviceBuffer<float>(*device_, n * config_.kv_dim());
  attention_ = DeviceBuffer<float>(*device_, n * config_.q_dim());
  gate_ = DeviceBuffer<float>(*device_, n * config_.ffn_dim);
  up_ = DeviceBuffer<float>(*device_, n * config_.ffn_dim);
  blocks_ = DeviceBuffer<uint8_t>(*device_,
                                  QuantizedBytes(n, std::max(config_.dim, config_.q_dim())) + 1);
  hidden_blocks_ = DeviceBuffer<uint8_t>(*device_, QuantizedBytes(n, config_.ffn_dim) + 1);
}

void DeviceForward::ReserveSequences(int32_t sequences) {
  graphs_.clear();
  final_ = DeviceBuffer<float>(*device_, int64_t{sequences} * config_.dim);
  final_blocks_ = DeviceBuffer<uint8_t>(*device_, QuantizedBytes(sequences, config_.dim) + 1);
  logits_ = DeviceBuffer<float>(*device_, int64_t{sequences} * config_.vocab_size);
  best_ = DeviceBuffer<int32_t>(*device_, 1);
  best_scratch_ = DeviceBuffer<int32_t>(*device_, ArgMaxScratch(1, config_.vocab_size));
}

void DeviceForward::ReservePositions(int32_t positions) {
  graphs_.clear();
  scratch_ =
      DeviceBuffer<float>(*device_, AttentionScratch(shape_, 16, RoundedPositions(positions)));
  const RopeTable rope(config_.rope, positions);
  std::vector<float> cos, sin;
  for (int32_t position = 0; position < positions; ++position) {
    cos.insert(cos.end(), rope.cos(position).begin(), rope.cos(position).end());
    sin.insert(sin.end(), rope.sin(position).begin(), rope.sin(position).end());
  }
  const auto entries = static_cast<int64_t>(cos.size());
  cos_ = DeviceBuffer<float>(*device_, entries);
  sin_ = DeviceBuffer<float>(*device_, entries);
  stream_->Upload(cos.data(), cos_.address(), entries * 4);
  stream_->Upload(sin.data(), sin_.address(), entries * 4);
  stream_->Synchronize();
}

void DeviceForward::Run(std::span<const StepPiece> pieces, int32_t layers,
                        std::span<float> residual) {
  try {
    if (!RunAsGraph(pieces, layers)) RunLayers(pieces, layers, residual);
    stream_->Synchronize();
  } catch (...) {
    // The caches are rolled back next: nothing may be on its way into their memory then.
    try {
      stream_->Synchronize();
    } catch (const DeviceError&) {
      // Said by what is thrown already.
    }
    throw;
  }
}

void DeviceForward::RunLayers(std::span<const StepPiece> pieces, int32_t layers,
                              std::span<float> residual) {
  const bool whole = layers == config_.num_layers;
  const int64_t bytes = static_cast<int64_t>(residual.size_bytes());
  Begin(pieces);
  if (whole) {
    EmbedRows();
  } else {
    stream_->Upload(residual.data(), residual_.address(), bytes);
  }
  for (int32_t layer = 0; layer < layers; ++layer) EnqueueLayer(layer, true);
  if (whole) {
    KeepLastRows();
  } else {
    stream_->Download(residual_.address(), residual.data(), bytes);
  }
}

void DeviceForward::Begin(std::span<const StepPiece> pieces) {
  pieces_.clear();
  ended_in_graph_ = false;
  host_tokens_.clear();
  host_positions_.clear();
  n_ = 0;
  int32_t last = 0;
  for (const StepPiece& in : pieces) {
    const auto count = static_cast<int32_t>(in.tokens.size());
    pieces_.push_back({.in = in, .first = n_, .count = count});
    n_ += count;
    host_tokens_.insert(host_tokens_.end(), in.tokens.begin(), in.tokens.end());
    host_positions_.insert(host_positions_.end(), in.positions.begin(), in.positions.end());
    last = std::max(last, in.positions.back());
    const auto output = static_cast<size_t>(in.output);
    if (ends_.size() <= output) ends_.resize(output + 1);
    ends_[output] = {in.trace, in.positions.back()};
  }
  positions_max_ = RoundedPositions(last + 1);
  stream_->Upload(host_tokens_.data(), tokens_.address(), int64_t{n_} * 4);
  stream_->Upload(host_positions_.data(), positions_.address(), int64_t{n_} * 4);
}

void DeviceForward::EmbedRows() {
  Embed(*stream_, weights_.ends->embedding(), tokens_.part(0, n_), n_, config_.embedding_scale,
        residual_.part(0, int64_t{n_} * config_.dim));
  Trace(-1, Stage::kEmbedding, residual_, config_.dim);
}

void DeviceForward::EnqueueLayer(int32_t layer, bool eager) {
  Project(layer);
  StoreRows(layer, eager);
  Attend(layer, eager);
  FeedForward(layer);
}

MatMulArgs DeviceForward::ProductOf(const UploadedMatrix& w, const DeviceBuffer<float>& x) const {
  MatMulArgs args;
  args.w = w.matrix();
  args.tokens = n_;
  if (w.quantized()) {
    args.blocks =
        (&x == &gate_ ? hidden_blocks_ : blocks_).part(0, QuantizedBytes(n_, w.matrix().cols));
  } else {
    args.x = x.part(0, int64_t{n_} * w.matrix().cols);
  }
  return args;
}

void DeviceForward::Project(int32_t layer) {
  const DeviceLayer& w = weights_.layers[static_cast<size_t>(layer)];
  NormRows(w.attn_norm, w.wq.quantized() || w.wk.quantized() || w.wv.quantized());
  Trace(layer, Stage::kAttnNorm, normed_, config_.dim);
  const auto project = [&](const UploadedMatrix& matrix, const DeviceFloats& bias,
                           const DeviceBuffer<float>& y) {
    MatMulArgs args = ProductOf(matrix, normed_);
    args.y = y.part(0, int64_t{n_} * matrix.matrix().rows);
    args.bias = bias.all();
    MatMul(*stream_, args);
  };
  project(w.wq, w.bq, query_);
  project(w.wk, w.bk, key_);
  project(w.wv, w.bv, value_);
  Trace(layer, Stage::kQuery, query_, config_.q_dim());
  Trace(layer, Stage::kKey, key_, config_.kv_dim());
  Trace(layer, Stage::kValue, value_, config_.kv_dim());
  FinishQuery(*stream_, FinishOf(layer, w.q_norm), positions_.part(0, n_), n_, config_.num_heads,
              query_.part(0, int64_t{n_} * config_.q_dim()));
  Trace(layer, Stage::kQueryRope, query_, config_.q_dim());
}

void DeviceForward::NormRows(const DeviceFloats& weight, bool quantize) {
  const int64_t values = int64_t{n_} * config_.dim;
  RmsNorm(*stream_, {.x = residual_.part(0, values),
                     .weight = weight.all(),
                     .rows = n_,
                     .n = config_.dim,
                     .eps = config_.rms_eps,
                     .y = normed_.part(0, values),
                     .blocks = quantize ? blocks_.part(0, QuantizedBytes(n_, config_.dim))
                                        : Global<uint8_t>{}});
}

HeadFinish DeviceForward::FinishOf(int32_t layer, const DeviceFloats& norm) const {
  return {.head_dim = config_.head_dim,
          .norm = norm.all(),
          .eps = config_.rms_eps,
          .rope_dim = config_.rotates(layer) ? config_.rope.dim : 0,
          .halves = config_.rope_pairing == RopePairing::kHalves,
          .cos = cos_.all(),
          .sin = sin_.all()};
}

void DeviceForward::FeedForward(int32_t layer) {
  const DeviceLayer& w = weights_.layers[static_cast<size_t>(layer)];
  const int64_t values = int64_t{n_} * config_.dim;
  const int64_t hidden = int64_t{n_} * config_.ffn_dim;
  MatMulArgs out = ProductOf(w.wo, attention_);
  out.scale = config_.residual_scale;
  out.residual = residual_.part(0, values);
  MatMul(*stream_, out);
  Trace(layer, Stage::kAttnOut, residual_, config_.dim);

  NormRows(w.ffn_norm, w.w_gate.quantized() || w.w_up.quantized());
  Trace(layer, Stage::kFfnNorm, normed_, config_.dim);
  MatMulArgs gate = ProductOf(w.w_gate, normed_);
  gate.y = gate_.part(0, hidden);
  MatMul(*stream_, gate);
  MatMulArgs up = ProductOf(w.w_up, normed_);
  up.y = up_.part(0, hidden);
  MatMul(*stream_, up);
  SiluGate(*stream_, gate_.part(0, hidden), up_.part(0, hidden), n_, config_.ffn_dim,
           gate_.part(0, hidden),
           w.w_down.quantized() ? hidden_blocks_.part(0, QuantizedBytes(n_, config_.ffn_dim))
                                : Global<uint8_t>{});
  Trace(layer, Stage::kFfnHidden, gate_, config_.ffn_dim);
  MatMulArgs down = ProductOf(w.w_down, gate_);
  down.scale = config_.residual_scale;
  down.residual = residual_.part(0, values);
  MatMul(*stream_, down);
  Trace(layer, Stage::kFfnOut, residual_, config_.dim);
}

void DeviceForward::Trace(int32_t layer, Stage stage, const DeviceBuffer<float>& rows,
                          int64_t width) {
  for (const Piece& piece : pieces_) TracePiece(layer, stage, piece, rows, width);
}

void DeviceForward::RowsOnHost(const DeviceBuffer<float>& rows, int64_t first, int64_t count,
                               int64_t width) {
  trace_rows_.resize(static_cast<size_t>(count * width));
  stream_->Download(rows.address(first * width), trace_rows_.data(), count * width * 4);
  stream_->Synchronize();
}

void DeviceForward::TracePiece(int32_t layer, Stage stage, const Piece& piece,
                               const DeviceBuffer<float>& rows, int64_t width) {
  if (piece.in.trace == nullptr) return;
  RowsOnHost(rows, piece.first, piece.count, width);
  piece.in.trace->OnStage({layer, stage, piece.in.positions, trace_rows_, width});
}

}  // namespace lockstep::device
