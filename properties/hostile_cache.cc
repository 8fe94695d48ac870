#include "properties/hostile_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "caches/plugin_cache.h"
#include "properties/plugin_heap.h"

namespace lockstep {
namespace {

// More allocations than any call of a small cache makes; a plug-in that tries again for ever ends.
constexpr int64_t kAllocationsMax = 1000;

[[noreturn]] void Find(const char* call, int64_t n, const char* what) {
  throw PluginError(
      {"plug-in", fmt::format("{}: when its allocation {} fails, {}", call, n, what), ""});
}

enum class Attempt : uint8_t { kDone, kFailed, kOther };

// kFailed: the call reported that there is no memory.
template <typename Call>
Attempt Try(Call&& call) {
  try {
    return call() ? Attempt::kDone : Attempt::kFailed;
  } catch (const PoolExhausted&) {
    return Attempt::kFailed;
  } catch (const std::bad_alloc&) {
    return Attempt::kFailed;
  } catch (const PluginError&) {
    throw;
  } catch (const std::exception&) {
    return Attempt::kOther;
  }
}

// `call` returns false to report that there is no memory. Its last attempt is made by the caller,
// so that it reports what it does with memory. `state` is empty where there is no cache yet.
template <typename Call>
void Starve(const char* name, bool may_fail, const std::function<Digest()>& state, Call&& call) {
  for (int64_t n = 1; n < kAllocationsMax; ++n) {
    const Digest before = state ? state() : Digest{};
    PluginHeap::FailAt(n);
    const Attempt attempt = Try(call);
    const bool failed = PluginHeap::failed();
    PluginHeap::FailAt(0);
    if (!failed || attempt == Attempt::kDone) return;
    if (attempt == Attempt::kOther) Find(name, n, "its status is not that of a failed allocation");
    if (!may_fail) Find(name, n, "it fails, though it may not");
    if (state && state() != before) Find(name, n, "the rows are not as before");
  }
}

}  // namespace

std::unique_ptr<KvCache> StarvedCache::Make(const std::function<std::unique_ptr<KvCache>()>& make) {
  std::unique_ptr<KvCache> made;
  Starve("create", true, {}, [&] {
    try {
      made = make();
    } catch (const std::invalid_argument&) {
    }
    return made != nullptr;
  });
  if (made == nullptr) made = make();
  return std::make_unique<StarvedCache>(std::move(made));
}

void StarvedCache::View(int32_t layer, KvView* view) const {
  PluginHeap::FailAt(1);
  const Attempt attempt = Try([&] { return inner().View(layer, view), true; });
  const bool failed = PluginHeap::failed();
  PluginHeap::FailAt(0);
  if (attempt == Attempt::kDone) return;
  if (failed) Find("read_row", 1, "it fails, though it may not");
  inner().View(layer, view);
}

// A call that needed no memory, or found another way, is done; what is done must not be done again.
void StarvedCache::Update(int32_t layer, std::span<const int32_t> positions,
                          std::span<const float> keys, std::span<const float> values) {
  bool done = false;
  const auto call = [&] { return inner().Update(layer, positions, keys, values), done = true; };
  Starve(
      "update", true, [this] { return DigestOfCache(inner()); }, call);
  if (!done) call();
}

std::optional<KvSlot> StarvedCache::TryReserveSlot(int32_t layer,
                                                   std::span<const int32_t> positions) {
  std::optional<KvSlot> slot;
  const auto call = [&] {
    slot = inner().TryReserveSlot(layer, positions);
    return slot.has_value();
  };
  Starve(
      "try_reserve_slot", true, [this] { return DigestOfCache(inner()); }, call);
  if (!slot) call();
  return slot;
}

void StarvedCache::CommitSlot(int32_t layer, std::span<const int32_t> positions) {
  bool done = false;
  const auto call = [&] { return inner().CommitSlot(layer, positions), done = true; };
  Starve("commit_slot", false, {}, call);
  if (!done) call();
}

void StarvedCache::Rollback(int32_t length) {
  bool done = false;
  const auto call = [&] { return inner().Rollback(length), done = true; };
  Starve("rollback", false, {}, call);
  if (!done) call();
}

void StarvedCache::Clear() {
  bool done = false;
  const auto call = [&] { return inner().Clear(), done = true; };
  Starve("clear", false, {}, call);
}

std::unique_ptr<KvCache> StarvedCache::Fork() {
  std::unique_ptr<KvCache> fork;
  const auto call = [&] { return (fork = inner().Fork()) != nullptr; };
  Starve(
      "fork", true, [this] { return DigestOfCache(inner()); }, call);
  if (fork == nullptr) call();
  return std::make_unique<StarvedCache>(std::move(fork));
}

void DisturbedCache::Disturb() { CallAtRandom(*neighbour_, random_); }

void DisturbedCache::Update(int32_t layer, std::span<const int32_t> positions,
                            std::span<const float> keys, std::span<const float> values) {
  Disturb();
  inner().Update(layer, positions, keys, values);
}

std::optional<KvSlot> DisturbedCache::TryReserveSlot(int32_t layer,
                                                     std::span<const int32_t> positions) {
  Disturb();
  return inner().TryReserveSlot(layer, positions);
}

void DisturbedCache::CommitSlot(int32_t layer, std::span<const int32_t> positions) {
  Disturb();
  inner().CommitSlot(layer, positions);
}

void DisturbedCache::Rollback(int32_t length) {
  Disturb();
  inner().Rollback(length);
}

void DisturbedCache::Clear() {
  Disturb();
  inner().Clear();
}

std::unique_ptr<KvCache> DisturbedCache::Fork() {
  Disturb();
  return std::make_unique<DisturbedCache>(inner().Fork(), neighbour_, random_.Next());
}

void CallAtRandom(KvCache& cache, Random& random) {
  const KvGeometry& g = cache.geometry();
  const int32_t layer = random.Between(0, g.num_layers - 1);
  const int32_t first = random.Between(0, g.max_length - 1);
  std::vector<int32_t> positions(
      static_cast<size_t>(std::min(random.Between(1, 3), g.max_length - first)));
  std::iota(positions.begin(), positions.end(), first);
  const auto elements = positions.size() * static_cast<size_t>(g.kv_stride());
  const std::vector<float> rows(elements, static_cast<float>(random.Between(-9, 9)));
  switch (random.Below(8)) {
    case 0:
      return cache.Clear();
    case 1:
      return cache.Rollback(random.Between(0, cache.current_length()));
    case 2:
    case 3:
      return cache.Update(layer, positions, rows, rows);
    default:
      break;
  }
  const std::optional<KvSlot> slot = cache.TryReserveSlot(layer, positions);
  if (!slot) return;
  std::ranges::copy(rows, slot->keys.begin());
  std::ranges::copy(rows, slot->values.begin());
  cache.CommitSlot(layer, positions);
}

}  // namespace lockstep
