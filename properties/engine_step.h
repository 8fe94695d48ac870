// One step of an engine script: how it has to be cut, which write path each layer has to take, and
// the decorators that a sequence's cache wears during it.
#ifndef LOCKSTEP_PROPERTIES_ENGINE_STEP_H_
#define LOCKSTEP_PROPERTIES_ENGINE_STEP_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/adapter.h"
#include "engine/trace.h"
#include "oracle/decorators.h"
#include "oracle/device_decorators.h"
#include "oracle/driver.h"
#include "oracle/reference_transformer.h"
#include "properties/engine_reference.h"
#include "properties/engine_script.h"

namespace lockstep {

// What one sequence gets in a step.
struct StepPart {
  int32_t sequence = 0;
  std::vector<int32_t> tokens = {};
  std::vector<int32_t> positions = {};
};

// Which tokens a step of a script appends: by seed, sequence and salt.
struct TokenChoice {
  int32_t sequence = 0;
  int32_t seed = 0;
  uint64_t salt = 0;
  int32_t count = 0;
  int32_t greedy = -1;  // the first one, unless it is negative
};

// Behind `length` rows of its sequence.
StepPart SeededPart(const TokenChoice& choice, int32_t length, int32_t vocab_size);

// What an engine script's `adapt` names, with adapters made for the model: 0 none, 1 and 2 one
// each, 3 both.
using AdapterSets = std::array<std::vector<AppliedAdapter>, kAdapterSets>;
AdapterSets MakeAdapterSets(const ModelConfig& config);

// The files of a set, for a reference that reads them by itself.
std::vector<ReferenceAdapter> AdapterFiles(const ModelConfig& config, int32_t set);

// Rows [first, first + count) of one sequence in one internal step.
struct StepCut {
  int32_t first = 0;
  int32_t count = 0;
  bool alone = false;  // no other sequence has rows in it
};

// How the engine has to cut a step [F3]: in order, each as many rows as it and its cache still
// take, until an internal step has `room` of them. By part, in order.
std::vector<std::vector<StepCut>> CutStep(std::span<const StepPart> parts,
                                          std::span<const int32_t> max_step_rows, int32_t room);

// Of so many drafts of a step those that a cache can take back: all, but where layers forget [W2].
int32_t UndoableDrafts(const KvCache& cache, int32_t drafts);

// What each call of a step amounts to, or how it ended.
enum class StepOutcome : uint8_t { kDone, kOutOfRange, kInvalid, kExhausted, kCancelled, kOther };
std::string_view StepOutcomeName(StepOutcome outcome);

// How `call` ended. `what` is what was thrown.
StepOutcome StepOutcomeOf(const std::function<void()>& call, std::string* what);

// Throws at a chosen point of a step.
class CancelPoint {
 public:
  explicit CancelPoint(int64_t at) : left_(at) {}
  void Reach();
  bool fired() const { return fired_; }

 private:
  int64_t left_;
  bool fired_ = false;
};

// Keeps which updates and commits arrived; with a point, it is reached before and after each call
// that writes, those of an engine on a device included.
class WatchedCache final : public ForwardingCache {
 public:
  // `point` may be nullptr.
  WatchedCache(KvCache& inner, CancelPoint* point) : ForwardingCache(inner), point_(point) {}

  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override;
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override;
  void CommitSlot(int32_t layer, std::span<const int32_t> positions) override;
  DeviceKv* device_kv(int32_t layer) override;
  std::unique_ptr<KvCache> Fork() override { return inner().Fork(); }

  std::span<const LostRows> writes() const { return writes_; }

 private:
  class OnDevice final : public ForwardingDeviceKv {
   public:
    explicit OnDevice(WatchedCache* cache) : ForwardingDeviceKv(cache->inner()), watched_(*cache) {}

    std::optional<DeviceKvSlot> TryReserveDeviceSlot(int32_t layer,
                                                     std::span<const int32_t> positions,
                                                     DeviceStream& stream) override;
    void CommitDeviceSlot(int32_t layer, std::span<const int32_t> positions,
                          DeviceStream& stream) override;
    void UpdateOnDevice(int32_t layer, std::span<const int32_t> positions, Global<const float> keys,
                        Global<const float> values, DeviceStream& stream) override;

   private:
    WatchedCache& watched_;
  };

  void Reach() {
    if (point_ != nullptr) point_->Reach();
  }

  CancelPoint* point_;
  std::vector<LostRows> writes_;
  OnDevice on_device_{this};
};

class CancellingTrace final : public TraceSink {
 public:
  explicit CancellingTrace(CancelPoint* point) : point_(point) {}
  void OnStage(const StageRows&) override { point_->Reach(); }

 private:
  CancelPoint* point_;
};

// A sequence's cache as a step sees it: on its write path (EngineOpKind::kPath), abandoned at a
// point, counted. Borrows the cache and the point.
class DressedCache {
 public:
  // `point` may be nullptr.
  DressedCache(KvCache& cache, int32_t path, CancelPoint* point);

  CountingCache& cache() { return *counting_; }
  TraceSink* trace() { return trace_.get(); }
  std::span<const LostRows> writes() const { return watched_->writes(); }

 private:
  std::unique_ptr<KvCache> path_;
  std::unique_ptr<WatchedCache> watched_;
  std::unique_ptr<CancellingTrace> trace_;
  std::unique_ptr<CountingCache> counting_;
};

// The path that a script names (EngineOpKind::kPath) on a model of so many layers: scripts are cut
// down to models of fewer.
int32_t PathOn(int32_t layers, int32_t path);

// Calls that one layer has to have seen, by the gating rules alone [R2, R3]. `graphs`: a device
// runs the whole model, with nobody listening. It then tries for a step of one row to reserve every
// layer before anything is written, and starts anew where one refuses.
struct CallsRule {
  PathRule rule;
  int32_t path = 0;
  bool graphs = false;
};
PathCounts ExpectedCalls(std::span<const StepCut> pieces, const CallsRule& calls, int32_t layer);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_ENGINE_STEP_H_
