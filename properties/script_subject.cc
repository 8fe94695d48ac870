#include <memory>

#include "caches/block_pool.h"
#include "caches/paged_kv_cache.h"
#include "caches/registry.h"
#include "properties/hostile_checks.h"
#include "properties/script_runner.h"

namespace lockstep {
namespace {

std::unique_ptr<KvCache> MakeOnSmallPool(const CacheScript& script, int32_t block_size) {
  auto pool = std::make_shared<BlockPool>(BlockPoolOptions{.geometry = script.geometry,
                                                           .block_size = block_size,
                                                           .num_blocks = script.blocks,
                                                           .shuffle_seed = 0x5eed});
  return std::make_unique<PagedKvCache>(PagedKvCacheOptions{
      .geometry = script.geometry, .block_size = block_size, .pool = std::move(pool)});
}

}  // namespace

ScriptSubject RegisteredSubject(std::string_view cache) {
  const CacheSpec spec = ParseCacheSpec(cache);
  if (spec.plugin != nullptr) return PluginSubject(spec.plugin);
  ScriptSubject subject;
  subject.make = [spec](const CacheScript& script) {
    if (script.blocks > 0 && spec.block_size > 0) return MakeOnSmallPool(script, spec.block_size);
    // Twice: an open reservation in a shared block holds its copy beside the block in its old
    // place.
    return spec.make({.geometry = script.geometry, .sequences = 2 * kMaxSequences});
  };
  subject.model.key_type = spec.key_type;
  subject.model.value_type = spec.value_type;
  subject.model.window = spec.window;
  subject.model.window_type = spec.window_type;
  subject.model.block_size = spec.block_size;
  subject.model.refuses_host_slots = !spec.grants_host_slots;
  subject.model.windows = spec.windows;
  if (spec.undo_rows > 0 && spec.windows.empty()) {
    subject.windows_of = [spec](const KvGeometry& geometry) { return WindowsOf(spec, geometry); };
  }
  return subject;
}

}  // namespace lockstep
