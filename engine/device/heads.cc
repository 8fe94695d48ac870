#include "caches/device_host_block.h"
#include "engine/device/head_kernels.h"
#include "engine/device/kernels.h"
#include "engine/device/launch.h"

namespace lockstep {

LOCKSTEP_DEVICE_KERNEL(device::FinishQueryKernel)
LOCKSTEP_DEVICE_KERNEL(device::StoreHeadsKernel)

namespace device {
namespace {

HeadArgs HeadArgsOf(const HeadFinish& finish, int32_t heads, Global<const int32_t> positions,
                    int64_t rows, Global<const float> x) {
  LS_CHECK(finish.head_dim > 0 && finish.head_dim <= kHeadDimMax, "heads of {} elements",
           finish.head_dim);
  LS_CHECK(finish.rope_dim % 2 == 0 && finish.rope_dim <= finish.head_dim,
           "RoPE of {} of {} elements", finish.rope_dim, finish.head_dim);
  if (finish.norm.size > 0) CheckSize("QK-norm", finish.norm, finish.head_dim);
  return {.heads = heads,
          .head_dim = finish.head_dim,
          .rope_dim = finish.rope_dim,
          .halves = finish.halves ? 1 : 0,
          .eps = finish.eps,
          .norm = finish.norm,
          .cos = finish.cos,
          .sin = finish.sin,
          .positions = First("positions", positions, rows),
          .x = First("rows", x, rows * heads * finish.head_dim)};
}

// One half of a slot.
struct SlotRows {
  RowType type;
  Global<uint8_t> stored;
  Global<uint16_t> exact;
};

void StoreRows(DeviceStream& stream, const HeadFinish& finish, const StoreArgs& args,
               const SlotRows& slot, Global<float> rows) {
  const int64_t count = args.slot.count;
  const bool block_format = slot.type == RowType::kQ8_0 || slot.type == RowType::kQ4_0;
  LS_CHECK(!block_format || finish.head_dim % 32 == 0, "head_dim {} in a block format",
           finish.head_dim);
  LS_CHECK(slot.exact.size == 0 || args.exact_first.size > 0, "a window without exact_first");
  if (rows.size > 0) rows = First("rows", rows, count * args.heads * finish.head_dim);
  Launch<StoreHeadsKernel>(stream, {.x = args.heads, .y = args.slot.count},
                           {.head = HeadArgsOf(finish, args.heads, args.positions, count, args.x),
                            .type = slot.type,
                            .stored = slot.stored,
                            .exact_first = args.exact_first,
                            .exact = slot.exact,
                            .rows = rows});
}

}  // namespace

void FinishQuery(DeviceStream& stream, const HeadFinish& finish, Global<const int32_t> positions,
                 int32_t rows, int32_t heads, Global<float> x) {
  const HeadArgs head = HeadArgsOf(finish, heads, positions, rows, x);
  if (finish.norm.size == 0 && finish.rope_dim == 0) return;
  Launch<FinishQueryKernel>(stream, {.x = heads, .y = rows}, {.head = head, .out = x});
}

void StoreKeys(DeviceStream& stream, const HeadFinish& finish, const StoreArgs& args) {
  StoreRows(stream, finish, args, {args.slot.key_type, args.slot.keys, args.slot.exact_keys},
            args.rows);
}

void StoreValues(DeviceStream& stream, int32_t head_dim, const StoreArgs& args) {
  StoreRows(stream, {.head_dim = head_dim, .norm = {}, .cos = {}, .sin = {}}, args,
            {args.slot.value_type, args.slot.values, args.slot.exact_values}, {});
}

}  // namespace device
}  // namespace lockstep
