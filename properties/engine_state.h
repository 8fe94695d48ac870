// The sequences of an engine script on both sides, and everything that is compared of them after an
// operation.
#ifndef LOCKSTEP_PROPERTIES_ENGINE_STATE_H_
#define LOCKSTEP_PROPERTIES_ENGINE_STATE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caches/device.h"
#include "caches/registry.h"
#include "oracle/difference.h"
#include "properties/engine_reference.h"
#include "properties/engine_script_runner.h"
#include "properties/engine_step.h"

namespace lockstep {

// A preset's model, and the plain engine of the references.
struct EngineModel {
  std::shared_ptr<const Model> model;
  AdapterSets adapters;
  std::unique_ptr<Transformer> plain;
};

// Kept between calls. Throws Error for an unknown preset.
std::shared_ptr<const EngineModel> EngineModelOf(const std::string& preset, int32_t seed);

// One kind of cache of the script: sequences are forks of the root, which stays empty, so that they
// share its pool.
struct EngineKind {
  CacheSpec spec;
  std::unique_ptr<KvCache> root;
  bool forked = false;  // blocks may be shared
};

struct EngineSequence {
  size_t kind = 0;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<EngineReference> reference;
  int32_t path = 0;
  int32_t adapters = 0;  // a set, EngineOpKind::kAdapt
  int32_t adapted = -1;  // that of its last step
  int32_t next = -1;     // the greedy token, -1 where nobody knows it
  bool failed = false;   // its last step
  bool cleared = false;  // since its last step
  int32_t shifts = 0;    // that moved rows
  bool shifted = false;  // since its last step
  int64_t fork = -1;     // what it has in common with the other side of its last fork
  int32_t fork_length = 0;
  bool fork_inside = false;  // a block was partly filled then
};

// Whether the blocks of a pool suffice for a step: certainly not, or not certainly.
struct BlockNeed {
  bool must_fail = false;
  bool may_fail = false;
};

class EngineState {
 public:
  // Both are borrowed.
  EngineState(const EngineScript& script, const EngineSubject& subject);

  const Model& model() const { return *model_->model; }
  std::shared_ptr<const Model> shared_model() const { return model_->model; }
  std::span<const AppliedAdapter> AdaptersOf(const EngineSequence& sequence) const {
    return model_->adapters[static_cast<size_t>(sequence.adapters)];
  }
  const EngineKind& kind(size_t kind) const { return kinds_[kind]; }
  // Of the engine and the caches; null where the engine runs on the host.
  const std::shared_ptr<Device>& device() const { return device_; }
  // How many layers a step of these sequences has on it, from the first on.
  int32_t DeviceLayersOf(std::span<const StepPart> parts);

  // Comes to life where it is not alive.
  EngineSequence& At(int32_t sequence);
  std::optional<EngineSequence>& Slot(int32_t sequence) {
    return sequences_[static_cast<size_t>(sequence)];
  }
  EngineKind& KindOf(const EngineSequence& sequence) { return kinds_[sequence.kind]; }

  BlockNeed BlocksNeeded(std::span<const StepPart> parts);

  // What a difference after this operation breaks: in the sequences that it is about, in others.
  void Blame(std::string_view own, std::string_view others, std::span<const int32_t> sequences);
  std::string_view ClauseOf(int32_t sequence) const;

  // The same for both.
  void BlameAll(std::string_view clause) { own_clause_ = others_clause_ = clause; }

  bool found() const { return run.finding.has_value(); }

  // The first one counts.
  void FindDifference(int32_t sequence, Difference difference);
  void Find(std::string_view clause, int32_t sequence, std::string what);

  // Operation `op` begins.
  void Begin(int32_t op) { op_ = op; }

  // After the operation, and after the last one.
  void Compare();
  void CompareEnd();

  EngineRun run;
  DigestBuilder digest;

 private:
  std::unique_ptr<KvCache> MakeCache(const CacheSpec& spec) const;
  void CompareSequence(int32_t s);
  void CompareBlocks(const EngineKind& kind, size_t index);

  const EngineScript& script_;
  const EngineSubject& subject_;
  std::shared_ptr<const EngineModel> model_;
  KvGeometry geometry_;
  std::shared_ptr<Device> device_;
  std::vector<EngineKind> kinds_;
  std::array<std::optional<EngineSequence>, kEngineSequences> sequences_;
  std::string_view own_clause_ = "B2";
  std::string_view others_clause_ = "B4";
  std::vector<int32_t> own_;
  int32_t op_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_ENGINE_STATE_H_
