// The one list of cache kinds: what tests, commands and benchmarks go through. A new cache is one
// line in registry.cc; whatever runs over all caches then runs over it without new code.
#ifndef LOCKSTEP_CACHES_REGISTRY_H_
#define LOCKSTEP_CACHES_REGISTRY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caches/kv_cache.h"

namespace lockstep {

class Device;
class PluginLibrary;

struct CacheOptions {
  KvGeometry geometry;
  // Paged caches: their pool holds enough blocks for so many sequences of max_length positions,
  // counted before sharing; the cache itself is one of them and its forks are the others.
  int32_t sequences = 2;
  // Paged caches: the order in which blocks are taken. Shuffled unless the caller wants 0, 1, 2...
  std::optional<uint64_t> shuffle_seed = 0x5eed;
  // Caches with rows on a device: where; null: DefaultDevice().
  std::shared_ptr<Device> device = nullptr;
};

// One cache kind with its parameters, and the facts that a test needs to know what to expect.
struct CacheSpec {
  std::string
      name;  // as ParseCacheSpec reads it, and, plug-ins apart, as KvCache::name() prints it
  std::function<std::unique_ptr<KvCache>(const CacheOptions&)> make;
  bool grants_host_slots = false;       // false: TryReserveSlot always refuses [R3]
  int32_t block_size = 0;               // positions; 0: runs of any length are in one piece
  int32_t window = 0;                   // positions kept exactly beside the stored rows [Q1]
  RowType window_type = RowType::kF32;  // of these
  RowType key_type = RowType::kF32;
  RowType value_type = RowType::kF32;
  int32_t head_dim_multiple = 1;  // head_dim must be a multiple of this [Q4]
  // Ring caches: the windows of the layers in turn, 0 for all rows, or none: the geometry's; and
  // the rows that can be undone, which is what a step may have. 0: nothing is forgotten.
  std::vector<int32_t> windows = {};
  int32_t undo_rows = 0;
  int32_t device_layers = 0;  // the first ones, whose rows lie on a device; INT32_MAX: all
  std::shared_ptr<const PluginLibrary> plugin = nullptr;  // of "plugin:LIBRARY" alone
};

// Every kind that the contract's tests run over, in a fixed order.
std::span<const CacheSpec> AllCaches();

// The kind with that name, with any parameters, not only those that AllCaches lists.
// "plugin:LIBRARY" loads a shared library that implements caches/plugin.h.
// Error for a name of no known form; the message lists the forms. Error of PluginLibrary::Load.
CacheSpec ParseCacheSpec(std::string_view name);

// What the pool behind a cache says; a plug-in tells its used blocks alone. Nothing for caches
// without blocks.
struct BlockCounts {
  int32_t free_blocks = 0;
  int32_t used_blocks = 0;
  std::vector<int32_t> references = {};  // by block; 0 is free
  friend bool operator==(const BlockCounts&, const BlockCounts&) = default;
};
std::optional<BlockCounts> BlockCountsOf(const KvCache& cache);

// Windows of the layers of such a cache, [num_layers]; empty when it forgets nothing.
std::vector<int32_t> WindowsOf(const CacheSpec& spec, const KvGeometry& geometry);

// Why caches of this kind cannot serve a model of that geometry, as one sentence; empty when they
// can. Their rows cannot hold its heads [Q4], or a layer looks back further than they keep [W1].
std::string Misfit(const CacheSpec& spec, const KvGeometry& geometry);

// Throws that as an Error, with `where`.
void CheckFits(const CacheSpec& spec, const KvGeometry& geometry, std::string_view where);

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_REGISTRY_H_
