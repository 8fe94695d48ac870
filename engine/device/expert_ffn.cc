#include "engine/device/expert_ffn.h"

namespace lockstep::device {

void DeviceExpertFfn::Reserve(Device& device, int32_t rows) {
  const int64_t n = rows;
  const int64_t chosen = n * config_.experts_used;
  router_ = DeviceBuffer<float>(device, n * config_.num_experts);
  chosen_ = DeviceBuffer<int32_t>(device, chosen);
  weights_ = DeviceBuffer<float>(device, chosen);
  gate_ = DeviceBuffer<float>(device, chosen * config_.expert_dim);
  up_ = DeviceBuffer<float>(device, chosen * config_.expert_dim);
  out_ = DeviceBuffer<float>(device, chosen * config_.dim);
  blocks_ = DeviceBuffer<uint8_t>(device, QuantizedBytes(chosen, config_.expert_dim) + 1);
  if (!shared()) return;
  shared_logit_ = DeviceBuffer<float>(device, n);
  shared_gate_ = DeviceBuffer<float>(device, n * config_.shared_dim);
  shared_up_ = DeviceBuffer<float>(device, n * config_.shared_dim);
  shared_out_ = DeviceBuffer<float>(device, n * config_.dim);
  shared_blocks_ = DeviceBuffer<uint8_t>(device, QuantizedBytes(n, config_.shared_dim) + 1);
}

MatMulArgs DeviceExpertFfn::Product(const UploadedMatrix& w, const NormedRows& x,
                                    const DeviceBuffer<float>& y) const {
  MatMulArgs args;
  args.w = w.matrix();
  args.tokens = x.count;
  if (w.quantized()) {
    args.blocks = x.blocks;
  } else {
    args.x = x.values;
  }
  args.y = y.part(0, int64_t{x.count} * args.w.rows);
  return args;
}

MatMulArgs DeviceExpertFfn::ExpertProduct(const UploadedMatrix& w, const NormedRows& x,
                                          const DeviceBuffer<float>& y) const {
  MatMulArgs args = Product(w, x, y);
  args.tokens = x.count * config_.experts_used;
  args.y = y.part(0, int64_t{args.tokens} * args.w.rows);
  args.chosen = chosen_.part(0, args.tokens);
  args.x_share = config_.experts_used;
  return args;
}

void DeviceExpertFfn::Route(DeviceStream& stream, const DeviceMoe& w, const NormedRows& x) {
  MatMul(stream, Product(w.router, x, router_));
  if (shared()) MatMul(stream, Product(w.shared_router, x, shared_logit_));
  const int64_t chosen = int64_t{x.count} * config_.experts_used;
  device::Route(stream, {.rows = x.count,
                         .experts = config_.num_experts,
                         .used = config_.experts_used,
                         .normalize = config_.normalize_experts,
                         .logits = router_.part(0, int64_t{x.count} * config_.num_experts),
                         .chosen = chosen_.part(0, chosen),
                         .weights = weights_.part(0, chosen)});
}

void DeviceExpertFfn::Gate(DeviceStream& stream, const DeviceMoe& w, const NormedRows& x) {
  const auto bend = config_.activation == Activation::kGelu ? GeluGate : SiluGate;
  const auto run = [&](int32_t rows, int32_t width, const DeviceBuffer<float>& gate,
                       const DeviceBuffer<float>& up, const DeviceBuffer<uint8_t>& blocks,
                       bool quantize) {
    const int64_t values = int64_t{rows} * width;
    bend(stream, gate.part(0, values), up.part(0, values), rows, width, gate.part(0, values),
         quantize ? blocks.part(0, QuantizedBytes(rows, width)) : Global<uint8_t>{});
  };
  MatMul(stream, ExpertProduct(w.gate, x, gate_));
  MatMul(stream, ExpertProduct(w.up, x, up_));
  run(x.count * config_.experts_used, config_.expert_dim, gate_, up_, blocks_, w.down.quantized());
  if (!shared()) return;
  MatMul(stream, Product(w.shared_gate, x, shared_gate_));
  MatMul(stream, Product(w.shared_up, x, shared_up_));
  run(x.count, config_.shared_dim, shared_gate_, shared_up_, shared_blocks_,
      w.shared_down.quantized());
}

void DeviceExpertFfn::AddTo(DeviceStream& stream, const DeviceMoe& w, int32_t count,
                            Global<float> residual) {
  const int32_t chosen = count * config_.experts_used;
  // One row a token and expert: nothing is shared here.
  NormedRows hidden = {.count = chosen,
                       .values = gate_.part(0, int64_t{chosen} * config_.expert_dim),
                       .blocks = blocks_.part(0, QuantizedBytes(chosen, config_.expert_dim))};
  MatMulArgs down = Product(w.down, hidden, out_);
  down.chosen = chosen_.part(0, chosen);
  MatMul(stream, down);
  AddExpertsArgs sum = {.rows = count,
                        .dim = config_.dim,
                        .used = config_.experts_used,
                        .weights = weights_.part(0, chosen),
                        .outputs = out_.part(0, int64_t{chosen} * config_.dim),
                        .shared_logit = {},
                        .shared = {},
                        .residual = residual};
  if (shared()) {
    hidden = {.count = count,
              .values = shared_gate_.part(0, int64_t{count} * config_.shared_dim),
              .blocks = shared_blocks_.part(0, QuantizedBytes(count, config_.shared_dim))};
    MatMul(stream, Product(w.shared_down, hidden, shared_out_));
    sum.shared_logit = shared_logit_.part(0, count);
    sum.shared = shared_out_.part(0, int64_t{count} * config_.dim);
  }
  AddExperts(stream, sum);
}

}  // namespace lockstep::device
