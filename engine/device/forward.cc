#include "engine/device/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "caches/check.h"
#include "caches/error.h"
#include "engine/device/limits.h"
#include "engine/transformer.h"

namespace lockstep::device {
namespace {

void CheckModel(const Model& model, int32_t layers) {
  const ModelConfig& config = model.config();
  LS_CHECK(layers > 0 && layers <= config.num_layers, "{} of {} layers on a device", layers,
           config.num_layers);
  const auto check = [&](std::string_view what, int32_t number, int32_t most) {
    if (number <= most) return;
    throw UnsupportedOnDevice(
        {.where = fmt::format("device: model '{}'", config.name),
         .what = fmt::format("{} {}; the kernels take up to {}", number, what, most),
         .remedy = "run the model on the host"});
  };
  check("elements of a head", config.head_dim, kHeadDimMax);
  check("experts", config.num_experts, kExpertsMax);
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
             .scale = config_.attention_scale,
             .cap = config_.attention_cap},
      adapters_(*device_, *stream_, layers),
      experts_(config_) {}

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

void DeviceForward::Run(std::span<const StepPiece> pieces, int32_t layers,
                        std::span<float> residual) {
  try {
    adapters_.Prepare(pieces);
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
    KeepWantedRows();
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
    for (int32_t i = 0; i < in.wanted; ++i) {
      const auto output = static_cast<size_t>(in.output + i);
      if (ends_.size() <= output) ends_.resize(output + 1);
      ends_[output] = {in.trace, in.positions[static_cast<size_t>(count - in.wanted + i)]};
    }
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
  AddToResidual(layer, AdapterTarget::kAttnOut, weights_of(layer).wo,
                weights_of(layer).post_attn_norm, attention_);
  Trace(layer, Stage::kAttnOut, residual_, config_.dim);
  config_.num_experts > 0 ? FeedExperts(layer) : FeedForward(layer);
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
  const DeviceLayer& w = weights_of(layer);
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
  AddAdapters(layer, AdapterTarget::kQuery, normed_, query_);
  AddAdapters(layer, AdapterTarget::kKey, normed_, key_);
  AddAdapters(layer, AdapterTarget::kValue, normed_, value_);
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
                                        : Global<uint8_t>{},
                     .residual = {}});
}

HeadFinish DeviceForward::FinishOf(int32_t layer, const DeviceFloats& norm) const {
  const Angles& angles = config_.local_rope && config_.is_local(layer) ? local_rope_ : rope_;
  return {.head_dim = config_.head_dim,
          .norm = norm.all(),
          .eps = config_.rms_eps,
          .rope_dim = config_.rotates(layer) ? config_.rope.dim : 0,
          .halves = config_.rope_pairing == RopePairing::kHalves,
          .cos = angles.cos.all(),
          .sin = angles.sin.all()};
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
