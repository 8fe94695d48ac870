#include "oracle/matrix_controls.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "caches/check.h"
#include "caches/error.h"
#include "oracle/decorators.h"
#include "oracle/faulty_cache.h"

namespace lockstep {
namespace {

// A cache that is right until one thing happens to it; from then on the newest row of layer 0 has
// one other bit in the first element of its key, the lowest that this storage does not round away.
class NudgedCache final : public ForwardingCache {
 public:
  enum class When : uint8_t { kCommit, kFork, kLoad, kDeviceCommit };

  NudgedCache(std::unique_ptr<KvCache> inner, When when)
      : ForwardingCache(std::move(inner)), when_(when), on_device_(this) {}

  DeviceKv* device_kv(int32_t layer) override {
    return inner().device_kv(layer) == nullptr ? nullptr : &on_device_;
  }

  void CommitSlot(int32_t layer, std::span<const int32_t> positions) override {
    inner().CommitSlot(layer, positions);
    if (when_ == When::kCommit && layer == 0) Nudge();
  }

  std::unique_ptr<KvCache> Fork() override {
    auto fork = std::make_unique<NudgedCache>(inner().Fork(), when_);
    if (when_ == When::kFork) fork->Nudge();
    return fork;
  }

  void LoadState(StateReader* reader) override {
    inner().LoadState(reader);
    if (when_ == When::kLoad) Nudge();
  }

 private:
  void Nudge() {
    const int32_t position = inner().length(0) - 1;
    if (position < 0) return;
    const auto stride = static_cast<size_t>(geometry().kv_stride());
    KvView view;
    inner().View(0, &view);
    KvRows rows = DecodeRows(view, geometry().kv_stride());
    const auto at = static_cast<size_t>(position - rows.first) * stride;
    LS_CHECK(at + stride <= rows.keys.size(), "position {} of rows {} to {}", position, rows.first,
             view.length);
    const auto keys = std::span(rows.keys).subspan(at, stride);
    keys[0] = std::bit_cast<float>(std::bit_cast<uint32_t>(keys[0]) ^ LowestBit());
    inner().Update(0, {&position, 1}, keys, std::span(rows.values).subspan(at, stride));
  }

  // Block formats keep 8 or 4 bits of a row: there the sign changes.
  uint32_t LowestBit() const { return key_type() == RowType::kF32 ? 1u : 0x80000000u; }

  // Rows that an engine on a device computes in place.
  class OnDevice final : public ForwardingDeviceKv {
   public:
    explicit OnDevice(NudgedCache* cache) : ForwardingDeviceKv(cache->inner()), nudged_(*cache) {}

    void CommitDeviceSlot(int32_t layer, std::span<const int32_t> positions,
                          DeviceStream& stream) override {
      ForwardingDeviceKv::CommitDeviceSlot(layer, positions, stream);
      if (nudged_.when_ != When::kDeviceCommit || layer != 0) return;
      stream.Synchronize();
      nudged_.Nudge();
    }

   private:
    NudgedCache& nudged_;
  };

  When when_;
  OnDevice on_device_;
};

std::unique_ptr<KvCache> NudgeCommit(std::unique_ptr<KvCache> inner) {
  return std::make_unique<NudgedCache>(std::move(inner), NudgedCache::When::kCommit);
}
std::unique_ptr<KvCache> NudgeFork(std::unique_ptr<KvCache> inner) {
  return std::make_unique<NudgedCache>(std::move(inner), NudgedCache::When::kFork);
}
std::unique_ptr<KvCache> NudgeLoad(std::unique_ptr<KvCache> inner) {
  return std::make_unique<NudgedCache>(std::move(inner), NudgedCache::When::kLoad);
}
std::unique_ptr<KvCache> NudgeDeviceCommit(std::unique_ptr<KvCache> inner) {
  return std::make_unique<NudgedCache>(std::move(inner), NudgedCache::When::kDeviceCommit);
}
std::unique_ptr<KvCache> KeepRejectedRow(std::unique_ptr<KvCache> inner) {
  return std::make_unique<FaultyCache>(std::move(inner), ParsePlant("stale-row:layer=0"));
}

}  // namespace

std::span<const MatrixControl> MatrixControls() {
  static const std::vector<MatrixControl> controls = {
      {.axis = MatrixAxis::kWritePath,
       .name = "nudged-commit",
       .what = "a commit changes one bit of the row that it publishes",
       .wrap = NudgeCommit},
      {.axis = MatrixAxis::kCache,
       .name = "segment-softmax",
       .what = "softmax runs over each segment of a view by itself, and the parts are joined",
       .kernels = SegmentKernels},
      {.axis = MatrixAxis::kChunking,
       .name = "token-count",
       .what = "a reduction is cut in two at a place that the number of tokens in the step decides",
       .kernels = TokenCountKernels},
      {.axis = MatrixAxis::kBatch,
       .name = "token-order",
       .what = "a reduction is cut in two at a place that the token's rank in the step decides",
       .kernels = TokenOrderKernels},
      {.axis = MatrixAxis::kThreads,
       .name = "thread-range",
       .what = "a reduction is cut in two at a place that the thread's share of outputs decides",
       .kernels = ThreadRangeKernels},
      {.axis = MatrixAxis::kIsa,
       .name = "unfused-rope",
       .what = "RoPE rounds twice where the definition has one fused operation",
       .odd_kernels = UnfusedKernels},
      {.axis = MatrixAxis::kCompiler,
       .name = "reordered-additions",
       .what = "a build that may reorder additions (the last row of ci/compilers)"},
      {.axis = MatrixAxis::kProcess,
       .name = "process-id",
       .what = "the last bits of one output of each matmul are those of the process id",
       .kernels = ProcessKernels},
      {.axis = MatrixAxis::kRollback,
       .name = "stale-row",
       .what = "a rejected row comes back when its position is written again",
       .wrap = KeepRejectedRow},
      {.axis = MatrixAxis::kSave,
       .name = "nudged-restore",
       .what = "restoring changes one bit of the newest row",
       .wrap = NudgeLoad},
      {.axis = MatrixAxis::kFork,
       .name = "nudged-fork",
       .what = "a fork has one other bit in its newest row",
       .wrap = NudgeFork},
      {.axis = MatrixAxis::kDevice,
       .name = "nudged-device-commit",
       .what = "a commit on a device changes one bit of the row that it publishes",
       .wrap = NudgeDeviceCommit},
  };
  return controls;
}

const MatrixControl& ParseMatrixControl(std::string_view name) {
  for (const MatrixControl& control : MatrixControls()) {
    if (control.name == name) return control;
  }
  std::vector<std::string_view> names;
  for (const MatrixControl& control : MatrixControls()) names.push_back(control.name);
  throw Error({fmt::format("control '{}'", name), "there is none of that name",
               fmt::format("known controls: {}", fmt::join(names, ", "))});
}

}  // namespace lockstep
