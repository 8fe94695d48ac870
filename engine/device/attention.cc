#include <algorithm>

#include "caches/device_host_block.h"
#include "engine/device/head_kernels.h"
#include "engine/device/kernels.h"
#include "engine/device/launch.h"
#include "engine/device/score_kernel.h"
#include "engine/device/softmax_kernel.h"
#include "engine/device/value_kernels.h"

namespace lockstep {

LOCKSTEP_DEVICE_KERNEL(device::ScoreKernel<64>)
LOCKSTEP_DEVICE_KERNEL(device::ScoreKernel<128>)
LOCKSTEP_DEVICE_KERNEL(device::ScoreKernel<256>)
LOCKSTEP_DEVICE_KERNEL(device::SoftmaxKernel)
LOCKSTEP_DEVICE_KERNEL(device::ValueKernel<64>)
LOCKSTEP_DEVICE_KERNEL(device::ValueKernel<128>)
LOCKSTEP_DEVICE_KERNEL(device::ValueKernel<256>)
LOCKSTEP_DEVICE_KERNEL(device::CombineKernel)

namespace device {
namespace {

constexpr int64_t kRoundQueries = 16384;  // a grid's z goes to 65535

int32_t SegmentsOf(int32_t positions) { return BlocksFor(positions, kAttentionSegment); }
int32_t ScoreStrideOf(int32_t positions) { return (positions + 15) / 16 * 16; }

// Where the parts of the scratch lie, for the queries of one round.
struct Scratch {
  Global<float> scores;    // [queries, heads, score_stride]
  Global<float> sums;      // [queries, heads]
  Global<float> partials;  // [queries, heads, segments, head_dim]
};

Scratch CutScratch(Global<float> memory, const AttentionPlan& plan) {
  const int64_t rows = int64_t{plan.queries} * plan.heads;
  const int64_t scores = rows * plan.score_stride;
  const int64_t partials = rows * plan.segments * plan.head_dim;
  return {.scores = {memory.data, scores},
          .sums = {memory.data + scores, rows},
          .partials = {memory.data + scores + rows, partials}};
}

// Queries [first, first + count) alone.
AttentionArgs RoundOf(const AttentionArgs& args, int32_t first, int32_t count) {
  AttentionArgs round = args;
  const int64_t width = int64_t{args.shape.num_heads} * args.shape.head_dim;
  const int64_t window = args.view.window;
  round.queries = count;
  round.positions = {args.positions.data + first, count};
  round.q = {args.q.data + first * width, count * width};
  round.out = {args.out.data + first * width, count * width};
  if (window > 0) {
    round.view.exact_rows = {args.view.exact_rows.data + first * window, count * window};
  }
  if (args.blocks.size > 0) {
    round.blocks = {args.blocks.data + QuantizedBytes(first, static_cast<int32_t>(width)),
                    QuantizedBytes(count, static_cast<int32_t>(width))};
  }
  return round;
}

template <int32_t kDim>
void Attend(DeviceStream& stream, const AttentionArgs& args, const AttentionPlan& plan) {
  const Scratch scratch = CutScratch(args.scratch, plan);
  const DeviceKvView& view = args.view;
  const int64_t stride = int64_t{plan.kv_heads} * plan.head_dim;
  const int32_t tiles = BlocksFor(plan.queries, plan.tile_queries);
  const float scale = args.shape.scale != 0
                          ? args.shape.scale
                          : 1.0f / __builtin_sqrtf(static_cast<float>(plan.head_dim));
  Launch<ScoreKernel<kDim>>(
      stream, {.x = BlocksFor(args.positions_max, kScorePositions), .y = plan.kv_heads, .z = tiles},
      {.plan = plan,
       .keys = {view.key_type, view.window, stride, view.keys, view.exact_keys, view.exact_rows},
       .scale = scale,
       .cap = args.shape.cap,
       .q = args.q,
       .scores = scratch.scores});
  Launch<SoftmaxKernel>(stream, {.x = plan.heads, .y = plan.queries},
                        {.plan = plan, .scores = scratch.scores, .sums = scratch.sums});
  Launch<ValueKernel<kDim>>(stream, {.x = plan.segments, .y = plan.kv_heads, .z = tiles},
                            {.plan = plan,
                             .values = {view.value_type, view.window, stride, view.values,
                                        view.exact_values, view.exact_rows},
                             .weights = scratch.scores,
                             .partials = scratch.partials});
  Launch<CombineKernel>(stream, {.x = BlocksFor(args.out.size, 4 * CombineKernel::kThreads)},
                        {.plan = plan,
                         .partials = scratch.partials,
                         .sums = scratch.sums,
                         .out = args.out,
                         .blocks = args.blocks});
}

void AttendRound(DeviceStream& stream, const AttentionArgs& args) {
  const int32_t group = args.shape.num_heads / args.shape.num_kv_heads;
  const AttentionPlan plan = {
      .heads = args.shape.num_heads,
      .kv_heads = args.shape.num_kv_heads,
      .head_dim = args.shape.head_dim,
      .queries = args.queries,
      .tile_queries = args.view.window > 0 ? 1 : std::max(1, kRowsAtOnce / group),
      .score_stride = ScoreStrideOf(args.positions_max),
      .segments = SegmentsOf(args.positions_max),
      .window = args.shape.window,
      .positions = args.positions};
  if (plan.head_dim <= 64) return Attend<64>(stream, args, plan);
  if (plan.head_dim <= 128) return Attend<128>(stream, args, plan);
  Attend<256>(stream, args, plan);
}

bool IsBlockFormat(RowType type) { return type == RowType::kQ8_0 || type == RowType::kQ4_0; }

void CheckAttention(const AttentionArgs& args) {
  const AttentionShape& shape = args.shape;
  LS_CHECK(shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0,
           "{} heads over {} KV heads", shape.num_heads, shape.num_kv_heads);
  LS_CHECK(shape.head_dim > 0 && shape.head_dim <= kHeadDimMax, "heads of {} elements",
           shape.head_dim);
  LS_CHECK(shape.head_dim % 32 == 0 ||
               !(IsBlockFormat(args.view.key_type) || IsBlockFormat(args.view.value_type)),
           "head_dim {} in a block format", shape.head_dim);
  LS_CHECK(args.positions_max > 0, "no position is visible");
  const int64_t width = int64_t{shape.num_heads} * shape.head_dim;
  CheckSize("positions", args.positions, args.queries);
  CheckSize("queries", args.q, args.queries * width);
  CheckSize("attention's output", args.out, args.queries * width);
  if (args.blocks.size > 0) BlocksOf(args.blocks, args.queries, width);
  CheckSize("attention's scratch", args.scratch, AttentionScratch(shape, 1, args.positions_max));
  if (args.view.window > 0) {
    CheckSize("exact rows", args.view.exact_rows, int64_t{args.queries} * args.view.window);
  }
}

}  // namespace

int64_t AttentionScratch(const AttentionShape& shape, int32_t queries, int32_t positions_max) {
  const int64_t row =
      ScoreStrideOf(positions_max) + 1 + int64_t{SegmentsOf(positions_max)} * shape.head_dim;
  return queries * shape.num_heads * row;
}

void Attention(DeviceStream& stream, const AttentionArgs& args) {
  if (args.queries == 0) return;
  CheckAttention(args);
  const int64_t each = AttentionScratch(args.shape, 1, args.positions_max);
  const auto most = static_cast<int32_t>(std::min(args.scratch.size / each, kRoundQueries));
  for (int32_t first = 0; first < args.queries; first += most) {
    AttendRound(stream, RoundOf(args, first, std::min(most, args.queries - first)));
  }
}

}  // namespace device
}  // namespace lockstep
