// A plug-in in C++ with everything that the ABI has: lockstep's own paged cache behind it. With
// LOCKSTEP_PAGED_PLUGIN in the environment when its table is asked for it has one fault: "lenient"
// restores whatever it is given, "leak" counts a block too many when rows are in two blocks,
// "stale" saves without the last row.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caches/block_pool.h"
#include "caches/cache_file.h"
#include "caches/paged_kv_cache.h"
#include "caches/plugin.h"
#include "properties/test_plugin.h"

namespace lockstep {
namespace {

constexpr int32_t kBlock = 4;
constexpr int32_t kSequences = 8;  // with copies for their reservations

std::string fault;

// With room to read in, because reading may not allocate.
struct Sequence {
  explicit Sequence(std::unique_ptr<KvCache> of) : cache(std::move(of)) {
    view.segments.reserve(static_cast<size_t>(cache->max_length() / kBlock + 1));
  }

  std::unique_ptr<KvCache> cache;
  mutable KvView view;
};

KvCache& CacheOf(void* self) { return *static_cast<Sequence*>(self)->cache; }
const KvCache& CacheOf(const void* self) { return *static_cast<const Sequence*>(self)->cache; }

std::span<const int32_t> Positions(const int32_t* positions, int32_t n) {
  return {positions, static_cast<size_t>(n)};
}

// With the fault "lenient" an Error is taken for success.
template <typename Call>
lockstep_kv_status Ended(Call&& call) {
  return StatusOf([&]() -> lockstep_kv_status {
    try {
      return call();
    } catch (const Error&) {
      if (fault != "lenient") throw;
      return LOCKSTEP_KV_OK;
    }
  });
}

void* Create(const lockstep_kv_geometry* g) {
  return PointerOf([&]() -> void* {
    const KvGeometry geometry = {g->num_layers, g->num_kv_heads, g->head_dim, g->max_length};
    const int64_t blocks = (int64_t{g->max_length} + kBlock - 1) / kBlock * kSequences;
    if (blocks > INT32_MAX) return nullptr;
    auto pool =
        std::make_shared<BlockPool>(BlockPoolOptions{.geometry = geometry,
                                                     .block_size = kBlock,
                                                     .num_blocks = static_cast<int32_t>(blocks),
                                                     .shuffle_seed = 7});
    return new Sequence(std::make_unique<PagedKvCache>(
        PagedKvCacheOptions{.geometry = geometry, .block_size = kBlock, .pool = std::move(pool)}));
  });
}

void Destroy(void* self) { delete static_cast<Sequence*>(self); }

int32_t Length(const void* self, int32_t layer) {
  const KvCache& cache = CacheOf(self);
  return layer >= 0 && layer < cache.geometry().num_layers ? cache.length(layer) : -1;
}

lockstep_kv_status ReadRow(const void* self, int32_t layer, int32_t position, float* keys,
                           float* values) {
  KvView& view = static_cast<const Sequence*>(self)->view;
  return Ended([&] {
    const KvCache& cache = CacheOf(self);
    cache.ViewForQuery(layer, position, &view);
    const size_t bytes = static_cast<size_t>(cache.geometry().kv_stride()) * sizeof(float);
    for (const auto& segment : view.segments) {
      if (position >= segment.first + segment.count) continue;
      const auto at = static_cast<size_t>(position - segment.first) * bytes;
      std::memcpy(keys, segment.keys + at, bytes);
      std::memcpy(values, segment.values + at, bytes);
      break;
    }
    return LOCKSTEP_KV_OK;
  });
}

lockstep_kv_status Update(void* self, int32_t layer, const int32_t* positions, int32_t n,
                          const float* keys, const float* values) {
  return Ended([&] {
    KvCache& cache = CacheOf(self);
    const auto elements =
        static_cast<size_t>(n) * static_cast<size_t>(cache.geometry().kv_stride());
    cache.Update(layer, Positions(positions, n), {keys, elements}, {values, elements});
    return LOCKSTEP_KV_OK;
  });
}

lockstep_kv_status TryReserveSlot(void* self, int32_t layer, const int32_t* positions, int32_t n,
                                  float** keys, float** values) {
  return Ended([&] {
    const auto slot = CacheOf(self).TryReserveSlot(layer, Positions(positions, n));
    if (!slot) return LOCKSTEP_KV_REFUSED;
    *keys = slot->keys.data();
    *values = slot->values.data();
    return LOCKSTEP_KV_OK;
  });
}

lockstep_kv_status CommitSlot(void* self, int32_t layer, const int32_t* positions, int32_t n) {
  return Ended(
      [&] { return CacheOf(self).CommitSlot(layer, Positions(positions, n)), LOCKSTEP_KV_OK; });
}

lockstep_kv_status Rollback(void* self, int32_t length) {
  return Ended([&] { return CacheOf(self).Rollback(length), LOCKSTEP_KV_OK; });
}

void Clear(void* self) { CacheOf(self).Clear(); }

void* Fork(void* self) {
  return PointerOf([&] { return new Sequence(CacheOf(self).Fork()); });
}

int64_t Save(const void* self, void* bytes, int64_t capacity) {
  try {
    StateWriter writer;
    if (fault == "stale") {
      const std::unique_ptr<KvCache> fork = const_cast<KvCache&>(CacheOf(self)).Fork();
      fork->Rollback(std::max(0, fork->current_length() - 1));
      fork->SaveState(&writer);
    } else {
      CacheOf(self).SaveState(&writer);
    }
    const std::vector<std::byte> file = writer.Finish();
    const auto size = static_cast<int64_t>(file.size());
    if (capacity >= size) std::memcpy(bytes, file.data(), file.size());
    return size;
  } catch (const std::exception&) {
    return -1;
  }
}

lockstep_kv_status Restore(void* self, const void* bytes, int64_t size) {
  return Ended([&] {
    StateReader reader({static_cast<const std::byte*>(bytes), static_cast<size_t>(size)}, "save");
    CacheOf(self).LoadState(&reader);
    return LOCKSTEP_KV_OK;
  });
}

int32_t UsedBlocks(const void* self) {
  const auto& cache = static_cast<const PagedKvCache&>(CacheOf(self));
  return cache.pool().used_blocks() + (fault == "leak" && cache.current_length() > kBlock ? 1 : 0);
}

}  // namespace
}  // namespace lockstep

extern "C" const lockstep_kv_plugin* lockstep_kv_plugin_v1() {
  using namespace lockstep;
  static lockstep_kv_plugin table;
  const char* wanted = std::getenv("LOCKSTEP_PAGED_PLUGIN");
  fault = wanted == nullptr ? "" : wanted;
  uint32_t features =
      LOCKSTEP_KV_GRANTS_SLOTS | LOCKSTEP_KV_FORKS | LOCKSTEP_KV_SAVES | LOCKSTEP_KV_COUNTS_BLOCKS;
  table = {.abi_version = LOCKSTEP_KV_ABI_VERSION,
           .features = features,
           .name = "paged",
           .block_size = kBlock,
           .head_dim_multiple = 1,
           .create = Create,
           .destroy = Destroy,
           .length = Length,
           .read_row = ReadRow,
           .update = Update,
           .try_reserve_slot = TryReserveSlot,
           .commit_slot = CommitSlot,
           .rollback = Rollback,
           .clear = Clear,
           .fork = Fork,
           .save = Save,
           .restore = Restore,
           .used_blocks = UsedBlocks};
  return &table;
}
