// The lockstep driver: two engines, two caches, one input; after every step everything is compared
// bit for bit, and the first difference is located.
//
// Subject and oracle run each step at the same time on a thread each, and share nothing but the
// model, which is const.
#ifndef LOCKSTEP_ORACLE_DRIVER_H_
#define LOCKSTEP_ORACLE_DRIVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "caches/kv_cache.h"
#include "engine/transformer.h"
#include "oracle/decorators.h"
#include "oracle/difference.h"

namespace lockstep {

// Which write path a cache has to take, computed from the gating rules R2 and R3 and from nothing
// that the cache reports: this is what keeps a parity from comparing a path with itself.
struct PathRule {
  bool grants_host_slots = false;
  int32_t block_size = 0;  // 0: rows are contiguous; else a run has to stay inside one block
  // Layers [0, device_layers) run on a device, where every run is granted that the cache is asked
  // for, unless it refuses them all.
  int32_t device_layers = 0;
  bool grants_device_slots = false;
  // Of layers whose memory is a ring: its rows; a run has to stay inside one round of it [W5]. By
  // layer; 0, or none: no ring.
  std::vector<int32_t> ring_rows = {};

  // True when a contiguous run [first, first + count) of the layer has to be written in place.
  bool Direct(int32_t layer, int32_t first, int32_t count) const;
};

// What PathRule::ring_rows is for such a cache.
struct CacheSpec;
std::vector<int32_t> RingRowsOf(const CacheSpec& spec, const KvGeometry& geometry);

// Calls one layer has to see in one step.
struct PathCounts {
  int64_t granted = 0;  // TryReserveSlot that handed out a slot
  int64_t refused = 0;  // TryReserveSlot that returned nullopt
  int64_t commits = 0;
  int64_t updates = 0;
  int64_t on_device = 0;  // calls of an engine on a device: these, and its views

  PathCounts& operator+=(const PathCounts& other);
  friend bool operator==(const PathCounts&, const PathCounts&) = default;
};

struct Side {
  KvCache* cache = nullptr;  // not owned
  PathRule rule;
  std::shared_ptr<Device> device = nullptr;  // of the engine; nullptr: the host alone
};

struct DriverOptions {
  std::shared_ptr<const Model> model;
  const KernelTable* kernels = nullptr;  // nullptr: SelectKernels()
  std::vector<int32_t> prompt;           // token ids of the prefill, not empty
  int32_t decode_steps = 0;
  int32_t redo_steps = 0;  // of them, rolled back at the end and decoded anew with other tokens
  int32_t max_step_tokens = 512;              // TransformerOptions
  std::vector<AppliedAdapter> adapters = {};  // of both sides
  bool compare_storage = false;               // both caches are of one kind: stored bytes too [X2]
  std::function<void(int32_t step)> on_step;  // progress, may be empty
};

struct SideResult {
  Digest logits;                // over the logits of all steps, in order
  Digest cache;                 // the cache hash at the end [X1]
  std::vector<int32_t> tokens;  // argmax of each step
  PathCounts counts;            // over all layers and steps, as observed
  double seconds = 0;           // inside Forward
};

struct DriverResult {
  SideResult subject;
  SideResult oracle;
  int32_t steps = 0;                     // compared, the prefill included
  std::optional<Difference> difference;  // the first; nothing after it was run
};

// REQUIRES: both caches empty and of the model's geometry (LS_CHECK).
// `subject` and `oracle` are wrapped in counting decorators here.
DriverResult RunLockstep(const DriverOptions& options, const Side& subject, const Side& oracle);

}  // namespace lockstep

#endif  // LOCKSTEP_ORACLE_DRIVER_H_
