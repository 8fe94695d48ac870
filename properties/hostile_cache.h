// Decorators that make life hard for a plug-in cache. What goes wrong is a PluginError, which the
// script runner reports with the operation at which it came.
#ifndef LOCKSTEP_PROPERTIES_HOSTILE_CACHE_H_
#define LOCKSTEP_PROPERTIES_HOSTILE_CACHE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "caches/random.h"
#include "oracle/decorators.h"

namespace lockstep {

// Every changing call is made with its first allocation failing, then with its second, and so on
// until it needs no more: each failure has to be reported as caches/plugin.h says and to leave the
// cache as it was [M2], and the call has to succeed in the end.
// REQUIRES: PluginHeap watches the plug-in.
class StarvedCache final : public ForwardingCache {
 public:
  using ForwardingCache::ForwardingCache;

  // Makes a cache in the same way.
  static std::unique_ptr<KvCache> Make(const std::function<std::unique_ptr<KvCache>()>& make);

  void View(int32_t layer, KvView* view) const override;
  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override;
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override;
  void CommitSlot(int32_t layer, std::span<const int32_t> positions) override;
  void Rollback(int32_t length) override;
  void Clear() override;
  std::unique_ptr<KvCache> Fork() override;
};

// Before every changing call, another cache that is no relative is written, rolled back or cleared.
class DisturbedCache final : public ForwardingCache {
 public:
  DisturbedCache(std::unique_ptr<KvCache> inner, std::shared_ptr<KvCache> neighbour, uint64_t seed)
      : ForwardingCache(std::move(inner)), neighbour_(std::move(neighbour)), random_(seed) {}

  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override;
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override;
  void CommitSlot(int32_t layer, std::span<const int32_t> positions) override;
  void Rollback(int32_t length) override;
  void Clear() override;
  std::unique_ptr<KvCache> Fork() override;

 private:
  void Disturb();

  std::shared_ptr<KvCache> neighbour_;
  Random random_;
};

// One call of any kind on `cache`, at random, that no cache with room for max_length positions may
// refuse; a slot that is granted is filled and committed. Equal caches stay equal by equal calls.
void CallAtRandom(KvCache& cache, Random& random);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_HOSTILE_CACHE_H_
