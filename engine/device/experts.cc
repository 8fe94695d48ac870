#include "caches/device_host_block.h"
#include "engine/device/expert_kernels.h"
#include "engine/device/kernels.h"
#include "engine/device/launch.h"

namespace lockstep {

LOCKSTEP_DEVICE_KERNEL(device::RouteKernel)
LOCKSTEP_DEVICE_KERNEL(device::AddExpertsKernel)

namespace device {

void Route(DeviceStream& stream, const RouteArgs& args) {
  LS_CHECK(args.used > 0 && args.used <= args.experts && args.experts <= kExpertsMax,
           "{} of {} experts", args.used, args.experts);
  const int64_t count = int64_t{args.rows} * args.used;
  Launch<RouteKernel>(
      stream, {.x = args.rows},
      {.experts = args.experts,
       .used = args.used,
       .normalize = args.normalize ? 1 : 0,
       .logits = First("router's logits", args.logits, int64_t{args.rows} * args.experts),
       .chosen = First("chosen experts", args.chosen, count),
       .weights = First("their weights", args.weights, count)});
}

void AddExperts(DeviceStream& stream, const AddExpertsArgs& args) {
  using Kernel = AddExpertsKernel;
  const int64_t values = int64_t{args.rows} * args.dim;
  const bool shared = args.shared.size > 0;
  Launch<Kernel>(
      stream, {.x = BlocksFor(args.dim, Kernel::kThreads), .y = args.rows},
      {.dim = args.dim,
       .used = args.used,
       .weights = First("weights of experts", args.weights, int64_t{args.rows} * args.used),
       .outputs = First("outputs of experts", args.outputs, values * args.used),
       .shared_logit = shared ? First("logits of the shared expert", args.shared_logit, args.rows)
                              : Global<const float>{},
       .shared = shared ? First("the shared expert", args.shared, values) : Global<const float>{},
       .residual = First("residual", args.residual, values)});
}

}  // namespace device
}  // namespace lockstep
