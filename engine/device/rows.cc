#include "caches/device_host_block.h"
#include "engine/device/kernels.h"
#include "engine/device/launch.h"
#include "engine/device/row_kernels.h"

namespace lockstep {

LOCKSTEP_DEVICE_KERNEL(device::EmbedKernel)
LOCKSTEP_DEVICE_KERNEL(device::RmsNormKernel)
LOCKSTEP_DEVICE_KERNEL(device::QuantizeActivationsKernel)
LOCKSTEP_DEVICE_KERNEL(device::GateKernel<false>)
LOCKSTEP_DEVICE_KERNEL(device::GateKernel<true>)
LOCKSTEP_DEVICE_KERNEL(device::ScaleAndAddKernel)

namespace device {

static_assert(kBlockBytes == kActivationBytes);
static_assert(kBlockScaleAt == offsetof(ActivationBlock, scale));
static_assert(kBlockOffsetAt == offsetof(ActivationBlock, offset));

void Embed(DeviceStream& stream, const DeviceMatrix& table, Global<const int32_t> tokens, int32_t n,
           float scale, Global<float> out) {
  Launch<EmbedKernel>(stream, {.x = BlocksFor(table.cols, EmbedKernel::kThreads), .y = n},
                      {.type = WeightTypeOf(table.type),
                       .cols = table.cols,
                       .scale = scale,
                       .table = table.bytes,
                       .tokens = First("tokens", tokens, n),
                       .out = First("embedded rows", out, int64_t{n} * table.cols)});
}

void RmsNorm(DeviceStream& stream, const RmsNormArgs& args) {
  const int64_t count = int64_t{args.rows} * args.n;
  Launch<RmsNormKernel>(
      stream, {.x = args.rows},
      {.n = args.n,
       .eps = args.eps,
       .x = First("x", args.x, count),
       .weight = First("norm weights", args.weight, args.n),
       .y = First("y", args.y, count),
       .blocks = BlocksOf(args.blocks, args.rows, args.n),
       .residual =
           args.residual.size > 0 ? First("residual", args.residual, count) : Global<float>{}});
}

void QuantizeActivations(DeviceStream& stream, Global<const float> x, int32_t rows, int32_t cols,
                         Global<uint8_t> blocks) {
  using Kernel = QuantizeActivationsKernel;
  const int64_t count = int64_t{rows} * cols;
  LS_CHECK(blocks.size > 0 || count == 0, "no blocks to quantize {} elements into", count);
  Launch<Kernel>(stream, {.x = BlocksFor(count, 4 * Kernel::kThreads)},
                 {.x = First("x", x, count), .blocks = BlocksOf(blocks, rows, cols)});
}

namespace {

template <bool kGelu>
void Gate(DeviceStream& stream, Global<const float> gate, Global<const float> up, int32_t rows,
          int32_t n, Global<float> out, Global<uint8_t> blocks) {
  using Kernel = GateKernel<kGelu>;
  const int64_t count = int64_t{rows} * n;
  Launch<Kernel>(stream, {.x = BlocksFor(count, 4 * Kernel::kThreads)},
                 {.gate = First("gate", gate, count),
                  .up = First("up", up, count),
                  .out = First("gated rows", out, count),
                  .blocks = BlocksOf(blocks, rows, n)});
}

}  // namespace

void SiluGate(DeviceStream& stream, Global<const float> gate, Global<const float> up, int32_t rows,
              int32_t n, Global<float> out, Global<uint8_t> blocks) {
  Gate<false>(stream, gate, up, rows, n, out, blocks);
}

void GeluGate(DeviceStream& stream, Global<const float> gate, Global<const float> up, int32_t rows,
              int32_t n, Global<float> out, Global<uint8_t> blocks) {
  Gate<true>(stream, gate, up, rows, n, out, blocks);
}

void ScaleAndAdd(DeviceStream& stream, Global<float> x, int64_t count, float scale,
                 Global<float> residual) {
  if (residual.size > 0) residual = First("residual", residual, count);
  Launch<ScaleAndAddKernel>(stream, {.x = BlocksFor(count, ScaleAndAddKernel::kThreads)},
                            {.scale = scale, .x = First("x", x, count), .residual = residual});
}

}  // namespace device
}  // namespace lockstep
