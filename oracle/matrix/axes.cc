#include "oracle/matrix/axes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "caches/check.h"
#include "caches/error.h"

namespace lockstep {
namespace {

using Path = Variation::Path;
using Detour = Variation::Detour;
using Batch = Variation::Batch;

// Where every run is dear (threads, several sequences): one cache of each kind.
constexpr std::string_view kFewCaches[] = {"simple", "paged/4", "quantized/q8_0+q4_0/w4"};

constexpr int32_t kManyRejected = 3;  // tokens

class Planner {
 public:
  explicit Planner(const MatrixOptions& options) : options_(options) {
    all_ = options.caches;
    if (all_.empty()) all_.assign(AllCaches().begin(), AllCaches().end());
    kernels_ = options.kernels;
    if (kernels_.empty()) kernels_.assign(AvailableKernels().begin(), AvailableKernels().end());
  }

  std::vector<CellPlan> Plan(MatrixAxis axis) {
    switch (axis) {
      case MatrixAxis::kWritePath:
        WritePaths();
        break;
      case MatrixAxis::kCache:
        for (const CacheSpec& cache : all_) Add(cache.name, {}, {cache});
        break;
      case MatrixAxis::kChunking:
        for (const int32_t tokens : {1, 7, 16}) {
          Add(fmt::format("{}", tokens), {.chunk = tokens}, all_);
        }
        Add("whole", {.chunk = Variation::kWhole}, all_);
        Add("random", {.chunk = Variation::kRandom}, all_);
        break;
      case MatrixAxis::kBatch:
        Add("alone", {}, Few());
        Add("first of 3", {.batch = Batch::kFirst}, Few());
        Add("middle of 3", {.chunk = 7, .batch = Batch::kMiddle}, Few());
        Add("last of 3", {.batch = Batch::kLast}, Few());
        break;
      case MatrixAxis::kThreads:
        for (const int32_t threads : options_.threads) {
          Add(fmt::format("{}", threads), {.threads = threads}, Few());
        }
        break;
      case MatrixAxis::kIsa:
        for (const KernelTable* table : kernels_) {
          Add(std::string(table->name), {}, all_).kernels = {table};
        }
        break;
      case MatrixAxis::kRollback:
        Rollbacks();
        break;
      case MatrixAxis::kSave:
        Add("live", {}, all_);
        Add("restored", {.detour = Detour::kRestore}, all_);
        break;
      case MatrixAxis::kFork:
        Add("separate", {}, all_);
        Add("fork", {.detour = Detour::kFork}, all_);
        break;
      case MatrixAxis::kDevice:
        Devices();
        break;
      case MatrixAxis::kCompiler:
      case MatrixAxis::kProcess:
        break;
    }
    return std::move(plans_);
  }

 private:
  // The plan lives until the next one is added.
  CellPlan& Add(std::string value, const Variation& variation, std::vector<CacheSpec> caches) {
    plans_.push_back({.value = std::move(value),
                      .variation = variation,
                      .kernels = kernels_,
                      .caches = std::move(caches)});
    return plans_.back();
  }

  void WritePaths() {
    std::vector<CacheSpec> granting, refusing;
    for (const CacheSpec& cache : all_) {
      (cache.grants_host_slots ? granting : refusing).push_back(cache);
    }
    const std::string none_grants = "none of the caches grants slots";
    CellPlan& direct = Add("direct", {}, granting);
    direct.slots = SlotCheck::kSomeGranted;
    direct.reason = none_grants;
    CellPlan& refused = Add("direct, refused", {}, refusing);
    refused.slots = SlotCheck::kNoneGranted;
    refused.reason = "none of the caches refuses every slot";
    CellPlan& mixed = Add("one layer refused", {.path = Path::kOneLayerRefused}, granting);
    mixed.slots = SlotCheck::kBoth;
    mixed.reason = none_grants;
    Add("legacy", {.path = Path::kLegacy}, all_).slots = SlotCheck::kNoneGranted;
  }

  // A rejected row takes the place of the oldest one in an exact window, and what was pushed out
  // reads as stored from then on [Q2]. One row is what the next token would have pushed out anyway;
  // with more, caches with a window of more than one row have no never-written twin.
  void Rollbacks() {
    std::vector<CacheSpec> windowless = all_;
    std::erase_if(windowless, [](const CacheSpec& cache) {
      return cache.window > 1 || (cache.undo_rows > 0 && cache.undo_rows < kManyRejected);
    });
    Add("never written", {}, all_);
    Add("1 rejected", {.detour = Detour::kReject, .rejected = 1}, all_);
    Add(fmt::format("{} rejected", kManyRejected),
        {.detour = Detour::kReject, .rejected = kManyRejected}, windowless)
        .reason =
        "every cache has an exact window, from which rejected rows push others [Q2], or "
        "undoes fewer [W2]";
    Add("all again", {.detour = Detour::kRestart}, all_);
  }

  // Every cache with rows on a device. The device has kernels of its own, so one of the host's
  // tables is enough for what stays there.
  void Devices() {
    std::vector<CacheSpec> there = all_;
    std::erase_if(there, [](const CacheSpec& cache) { return cache.device_layers == 0; });
    const auto add = [&](std::string value, Variation::On on, int32_t layers) -> CellPlan& {
      CellPlan& plan = Add(std::move(value), {.on = on, .device_layers = layers}, there);
      plan.kernels = {kernels_.back()};
      plan.slots = on == Variation::On::kHost ? SlotCheck::kNoneGranted : SlotCheck::kSomeGranted;
      plan.reason = "none of the caches has rows on a device";
      return plan;
    };
    add("host", Variation::On::kHost, 0);
    add("host-executor", Variation::On::kExecutor, INT32_MAX);
    add("any order", Variation::On::kAnyOrder, INT32_MAX);
    add("first layer", Variation::On::kExecutor, 1);
    CellPlan& cuda = add("cuda", Variation::On::kCuda, INT32_MAX);
    if (const std::string why = WhyNoCudaDevice(); !why.empty()) {
      cuda.caches.clear();
      cuda.reason = why;
    }
  }

  std::vector<CacheSpec> Few() const {
    std::vector<CacheSpec> few = all_;
    std::erase_if(few, [](const CacheSpec& cache) {
      return std::ranges::find(kFewCaches, cache.name) == std::end(kFewCaches);
    });
    if (few.empty()) few.assign(all_.begin(), all_.begin() + 1);
    return few;
  }

  const MatrixOptions& options_;
  std::vector<CacheSpec> all_;
  std::vector<const KernelTable*> kernels_;
  std::vector<CellPlan> plans_;
};

}  // namespace

std::span<const MatrixAxisInfo> MatrixAxes() {
  static const std::vector<MatrixAxisInfo> axes = {
      {MatrixAxis::kWritePath, "write-path", "rows computed in place or copied by Update",
       "oracle/parity_test.cc: ParityTest.DecodeOfSeveralStepsDirectEqualsLegacyBitForBit"},
      {MatrixAxis::kCache, "cache", "cache kind and block size",
       "oracle/verify_test.cc: VerifyTest.CachesOfOneRowTypeShareTheirDigests"},
      {MatrixAxis::kChunking, "chunking", "how the prefill is cut into steps, in tokens",
       "engine/model/transformer_test.cc: TransformerTest.CuttingThePrefillChangesNoBit"},
      {MatrixAxis::kBatch, "batch", "which sequences share a step, and their order",
       "oracle/matrix_test.cc: MatrixTest.EveryAxisIsEqualAndProved"},
      {MatrixAxis::kThreads, "threads", "how many threads share the outputs",
       "oracle/matrix_test.cc: MatrixTest.EveryAxisIsEqualAndProved"},
      {MatrixAxis::kIsa, "isa", "the kernels' instruction set",
       "engine/model/transformer_test.cc: TransformerTest.EveryKernelTableGivesTheSameBits"},
      {MatrixAxis::kCompiler, "compiler", "compiler and optimisation level",
       "engine/kernels/golden_test.cc: GoldenTest.MatmulQ8", true},
      {MatrixAxis::kProcess, "process", "the same in a second process",
       "ci/lockstep/matrix_command_test.cc: MatrixCommandTest.EveryAxisIsInTheJson", true},
      {MatrixAxis::kRollback, "rollback", "rejected tokens against none",
       "caches/contract/rollback_test.cc: RollbackTest.B2_RedoEqualsNeverHavingDoneIt"},
      {MatrixAxis::kSave, "save", "a restored cache against the live one",
       "caches/contract/save_test.cc: SaveTest.S1_RestoredEqualsSaved"},
      {MatrixAxis::kFork, "fork", "a fork against a sequence of its own",
       "caches/contract/rollback_test.cc: ForkTest.B4_WritesNeverShowInTheOther"},
      {MatrixAxis::kDevice, "device", "where the layers run, and in which order",
       "engine/device/forward_test.cc: DeviceForwardTest.GivesTheBitsOfTheHost"},
  };
  return axes;
}

const MatrixAxisInfo& ParseMatrixAxis(std::string_view name) {
  const auto found = std::ranges::find(MatrixAxes(), name, &MatrixAxisInfo::name);
  if (found != MatrixAxes().end()) return *found;
  std::vector<std::string_view> names;
  for (const MatrixAxisInfo& info : MatrixAxes()) names.push_back(info.name);
  throw Error({fmt::format("axis '{}'", name), "there is none of that name",
               fmt::format("known axes: {}", fmt::join(names, ", "))});
}

std::vector<CellPlan> PlanAxis(MatrixAxis axis, const MatrixOptions& options) {
  return Planner(options).Plan(axis);
}

}  // namespace lockstep
