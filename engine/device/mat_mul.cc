#include "caches/device_host_block.h"
#include "engine/device/kernels.h"
#include "engine/device/launch.h"
#include "engine/device/mat_mul_kernel.h"
#include "engine/device/mat_vec_kernel.h"

namespace lockstep {

#define LOCKSTEP_FLOAT_PRODUCTS(type)                                    \
  LOCKSTEP_DEVICE_KERNEL(device::MatVecKernel<device::WeightType::type>) \
  LOCKSTEP_DEVICE_KERNEL(device::MatMulFloatKernel<device::WeightType::type>)
#define LOCKSTEP_QUANT_PRODUCTS(type)                                    \
  LOCKSTEP_DEVICE_KERNEL(device::MatVecKernel<device::WeightType::type>) \
  LOCKSTEP_DEVICE_KERNEL(device::MatMulQuantKernel<device::WeightType::type>)
LOCKSTEP_FLOAT_WEIGHTS(LOCKSTEP_FLOAT_PRODUCTS)
LOCKSTEP_QUANT_WEIGHTS(LOCKSTEP_QUANT_PRODUCTS)
#undef LOCKSTEP_FLOAT_PRODUCTS
#undef LOCKSTEP_QUANT_PRODUCTS

namespace device {
namespace {

// Up to this many tokens each reads the weights by itself: they come from the cache after the
// first, and there are more threads to read them.
constexpr int32_t kVectorTokens = 8;

Epilogue EpilogueOf(const MatMulArgs& args) {
  const int64_t count = int64_t{args.tokens} * args.w.rows;
  LS_CHECK(args.y.size > 0 || args.residual.size > 0, "a product that goes nowhere");
  Epilogue out = {.rows = args.w.rows,
                  .scale = args.scale,
                  .cap = args.cap,
                  .y = {},
                  .bias = {},
                  .residual = {}};
  if (args.y.size > 0) out.y = First("y", args.y, count);
  if (args.bias.size > 0) out.bias = First("bias", args.bias, args.w.rows);
  if (args.residual.size > 0) out.residual = First("residual", args.residual, count);
  return out;
}

template <WeightType kType>
void Vector(DeviceStream& stream, const MatMulArgs& args) {
  using Kernel = MatVecKernel<kType>;
  const int32_t segments = (args.w.cols + kSegment - 1) / kSegment;
  int32_t slots = 1;
  while (slots < segments && slots < Kernel::kUnits) slots *= 2;
  const int32_t strips = BlocksFor(args.w.rows, kStripRows<kType>);
  Launch<Kernel>(stream, {.x = args.tokens, .y = BlocksFor(strips, Kernel::kUnits / slots)},
                 {.cols = args.w.cols,
                  .slots = slots,
                  .x_share = args.x_share,
                  .matrix_bytes = args.w.bytes.size / args.w.count,
                  .chosen = args.chosen,
                  .weights = args.w.bytes,
                  .x = args.x,
                  .blocks = args.blocks,
                  .out = EpilogueOf(args)});
}

template <typename Kernel>
void Tiles(DeviceStream& stream, const MatMulArgs& args) {
  Launch<Kernel>(stream,
                 {.x = BlocksFor(args.tokens, kTileTokens), .y = BlocksFor(args.w.rows, kTileRows)},
                 {.cols = args.w.cols,
                  .tokens = args.tokens,
                  .weights = args.w.bytes,
                  .x = args.x,
                  .blocks = args.blocks,
                  .out = EpilogueOf(args)});
}

template <WeightType kType>
void MatMulOf(DeviceStream& stream, const MatMulArgs& args) {
  // Tokens with matrices of their own share no reading of them.
  if (args.tokens <= kVectorTokens || args.w.count > 1) {
    Vector<kType>(stream, args);
  } else if constexpr (kIsQuantized<kType>) {
    Tiles<MatMulQuantKernel<kType>>(stream, args);
  } else {
    Tiles<MatMulFloatKernel<kType>>(stream, args);
  }
}

}  // namespace

void MatMul(DeviceStream& stream, const MatMulArgs& args) {
  const DeviceMatrix& w = args.w;
  LS_CHECK(w.bytes.size == w.count * PackedMatrix::PackedBytes(w.type, w.rows, w.cols),
           "{} bytes for {} matrices of {} x {}", w.bytes.size, w.count, w.rows, w.cols);
  LS_CHECK(args.x_share == 1 || w.count > 1, "one matrix, {} tokens a row", args.x_share);
  if (w.count > 1) CheckSize("chosen matrices", args.chosen, args.tokens);
  const int32_t rows = BlocksFor(args.tokens, args.x_share);
  if (w.quantized()) {
    CheckSize("quantized activations", args.blocks, QuantizedBytes(rows, w.cols));
  } else {
    CheckSize("activations", args.x, int64_t{rows} * w.cols);
  }
  switch (WeightTypeOf(w.type)) {
#define LOCKSTEP_PRODUCT(type) \
  case WeightType::type:       \
    return MatMulOf<WeightType::type>(stream, args);
    LOCKSTEP_FLOAT_WEIGHTS(LOCKSTEP_PRODUCT)
    LOCKSTEP_QUANT_WEIGHTS(LOCKSTEP_PRODUCT)
#undef LOCKSTEP_PRODUCT
  }
}

}  // namespace device
}  // namespace lockstep
