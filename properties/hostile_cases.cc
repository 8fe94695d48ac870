// The cases of level 4 that no cache script can write down: geometries that cannot be, damaged
// saves, two threads.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>

#include "caches/random.h"
#include "oracle/model_cache.h"
#include "properties/hostile_cache.h"
#include "properties/hostile_checks.h"
#include "properties/plugin_border.h"

namespace lockstep {
namespace {

using Library = std::shared_ptr<const PluginLibrary>;

constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
constexpr int32_t kMin = std::numeric_limits<int32_t>::min();

KvGeometry SmallGeometry(const PluginLibrary& plugin) {
  return {.num_layers = 2,
          .num_kv_heads = 3,
          .head_dim = plugin.table().head_dim_multiple,
          .max_length = std::clamp(2 * plugin.table().block_size + 1, 9, 600)};
}

std::string GeometryText(const KvGeometry& g) {
  return fmt::format("{} layers, {} KV heads of {} elements, {} positions", g.num_layers,
                     g.num_kv_heads, g.head_dim, g.max_length);
}

// Straight at the table: PluginCache would have made an exception of what is to be seen here.
void* Create(const PluginLibrary& plugin, const KvGeometry& g) {
  const lockstep_kv_geometry wanted = {g.num_layers, g.num_kv_heads, g.head_dim, g.max_length};
  return plugin.table().create(&wanted);
}

std::string MustRefuse(const Library& plugin, const KvGeometry& geometry) {
  const Library behind = BehindBorder(plugin);
  void* cache = Create(*behind, geometry);
  if (cache == nullptr) return "";
  return fmt::format("create makes a cache of {}", GeometryText(geometry));
}

HostileCase RefusesGeometry(const Library& plugin, const KvGeometry& geometry) {
  return {"create of " + GeometryText(geometry),
          [plugin, geometry] { return MustRefuse(plugin, geometry); }};
}

// ---- Saves ---------------------------------------------------------------------------------

using Bytes = std::vector<std::byte>;

// Fills a cache so that layers differ, and one has a gap.
void Fill(KvCache& cache) {
  for (int32_t layer = 0; layer < cache.geometry().num_layers; ++layer) {
    const std::vector<int32_t> positions = {0, 1, 3 + layer};
    const ScriptRows rows =
        RowValues(cache.geometry(), 3 + static_cast<uint32_t>(layer), layer, positions);
    cache.Update(layer, positions, rows.keys, rows.values);
  }
}

// A cache under the test's own hand, which PluginCache only wraps.
class SavedCache {
 public:
  SavedCache(Library plugin, const KvGeometry& geometry)
      : plugin_(std::move(plugin)), raw_(Create(*plugin_, geometry)) {}
  ~SavedCache() {
    if (raw_ != nullptr) plugin_->table().destroy(raw_);
  }
  SavedCache(const SavedCache&) = delete;
  SavedCache& operator=(const SavedCache&) = delete;

  void Fill(uint32_t seed, const KvGeometry& g) {
    for (int32_t layer = 0; layer < g.num_layers; ++layer) {
      const std::vector<int32_t> positions = {0, 1, 3 + layer};
      const ScriptRows rows = RowValues(g, seed, layer, positions);
      plugin_->table().update(raw_, layer, positions.data(), 3, rows.keys.data(),
                              rows.values.data());
    }
  }

  Bytes Save() const {
    const int64_t size = plugin_->table().save(raw_, nullptr, 0);
    Bytes bytes(static_cast<size_t>(std::max<int64_t>(size, 0)));
    if (plugin_->table().save(raw_, bytes.data(), size) != size) bytes.clear();
    return bytes;
  }

  lockstep_kv_status Restore(const Bytes& bytes) {
    return plugin_->table().restore(raw_, bytes.data(), static_cast<int64_t>(bytes.size()));
  }

 private:
  Library plugin_;
  void* raw_;
};

// Nothing for a damaged save that was refused without a trace.
std::string Refusal(SavedCache& into, const Bytes& before, const Bytes& damaged,
                    const std::string& how) {
  const lockstep_kv_status status = into.Restore(damaged);
  if (status == LOCKSTEP_KV_OK) return fmt::format("restore takes {}", how);
  if (status != LOCKSTEP_KV_INVALID_ARGUMENT) {
    return fmt::format("restore of {}: status {}", how, static_cast<int>(status));
  }
  return into.Save() == before ? "" : fmt::format("restore of {} changes the cache", how);
}

// Damages a save in every way that `damage` makes of numbers from 0 on, until it returns false.
template <typename Damage>
std::string RefusesAll(const Library& plugin, Damage&& damage) {
  const Library behind = BehindBorder(plugin);
  const KvGeometry geometry = SmallGeometry(*plugin);
  SavedCache source(behind, geometry);
  source.Fill(3, geometry);
  const Bytes saved = source.Save();
  SavedCache into(behind, geometry);
  into.Fill(5, geometry);
  const Bytes before = into.Save();
  if (saved.empty() || saved == before) return "save gives nothing, or the same for other rows";
  for (size_t i = 0;; ++i) {
    Bytes damaged = saved;
    const std::string how = damage(damaged, i);
    if (how.empty()) return "";
    std::string wrong = Refusal(into, before, damaged, how);
    if (!wrong.empty()) return wrong;
  }
}

// Large saves are damaged at so many places.
constexpr size_t kPlacesMax = 2000;

size_t Place(size_t i, size_t size) { return size <= kPlacesMax ? i : i * (size / kPlacesMax); }

std::string RestoresWhatWasSaved(const Library& plugin) {
  const Library behind = BehindBorder(plugin);
  const KvGeometry geometry = SmallGeometry(*plugin);
  SavedCache source(behind, geometry);
  source.Fill(3, geometry);
  const Bytes saved = source.Save();
  for (const bool used : {false, true}) {
    SavedCache into(behind, geometry);
    if (used) into.Fill(5, geometry);
    const lockstep_kv_status status = into.Restore(saved);
    if (status != LOCKSTEP_KV_OK) {
      return fmt::format("restore of its own save: status {}", static_cast<int>(status));
    }
    if (into.Save() != saved) return "restored, a cache is saved in other bytes";
  }
  return "";
}

std::string RefusesOtherGeometries(const Library& plugin) {
  const Library behind = BehindBorder(plugin);
  const KvGeometry geometry = SmallGeometry(*plugin);
  SavedCache into(behind, geometry);
  into.Fill(5, geometry);
  const Bytes before = into.Save();
  std::array<KvGeometry, 4> others = {geometry, geometry, geometry, geometry};
  ++others[0].num_layers;
  ++others[1].num_kv_heads;
  others[2].head_dim *= 2;
  ++others[3].max_length;
  for (const KvGeometry& other : others) {
    SavedCache source(behind, other);
    source.Fill(3, other);
    std::string wrong = Refusal(into, before, source.Save(), "a save of " + GeometryText(other));
    if (!wrong.empty()) return wrong;
  }
  return "";
}

// ---- Threads -------------------------------------------------------------------------------

// A cache and what it has to show.
struct Pair {
  std::unique_ptr<KvCache> subject;
  std::unique_ptr<KvCache> model;
};

// Changes both in the same way and compares: the sentence of the first difference.
std::string DriveBoth(Pair& pair, Random random, int32_t calls) {
  try {
    for (int32_t i = 0; i < calls; ++i) {
      const uint64_t call = random.Next();
      Random subject(call), model(call);
      CallAtRandom(*pair.subject, subject);
      CallAtRandom(*pair.model, model);
      if (DigestOfCache(*pair.subject) != DigestOfCache(*pair.model)) {
        return fmt::format("after {} calls a cache does not show its own rows", i + 1);
      }
    }
  } catch (const std::exception& e) {
    return fmt::format("a call fails: {}", e.what());
  }
  return "";
}

// What is wrong on one thread already is other clauses'.
std::string DriveOnTwoThreads(const std::function<std::array<Pair, 2>()>& make, uint64_t seed) {
  constexpr int32_t kCalls = 500;
  const Random random(seed);
  std::array<Pair, 2> pairs = make();
  if (!DriveBoth(pairs[0], random.Split(0), kCalls).empty()) return "";
  if (!DriveBoth(pairs[1], random.Split(1), kCalls).empty()) return "";
  pairs = make();
  std::array<std::string, 2> wrong;
  std::thread other([&] { wrong[1] = DriveBoth(pairs[1], random.Split(1), kCalls); });
  wrong[0] = DriveBoth(pairs[0], random.Split(0), kCalls);
  other.join();
  return wrong[0].empty() ? wrong[1] : wrong[0];
}

Pair MakePair(const Library& plugin, const KvGeometry& geometry) {
  return {std::make_unique<PluginCache>(plugin, geometry),
          std::make_unique<ModelCache>(
              ModelCacheOptions{.geometry = geometry,
                                .block_size = plugin->table().block_size,
                                .refuses_host_slots = !plugin->grants_slots()})};
}

}  // namespace

std::vector<HostileCase> GeometryCases(Library plugin) {
  const KvGeometry small = SmallGeometry(*plugin);
  std::vector<HostileCase> cases;
  for (const int32_t wrong : {0, -1, kMin}) {
    std::array<KvGeometry, 4> each = {small, small, small, small};
    each[0].num_layers = wrong;
    each[1].num_kv_heads = wrong;
    each[2].head_dim = wrong;
    each[3].max_length = wrong;
    for (const KvGeometry& geometry : each) cases.push_back(RefusesGeometry(plugin, geometry));
  }
  if (small.head_dim > 1) {
    KvGeometry odd = small;
    ++odd.head_dim;
    cases.push_back(RefusesGeometry(plugin, odd));
  }
#if !defined(__SANITIZE_ADDRESS__)  // which ends a process that asks for so much
  // Products of powers of two overflow to 0, not to something huge. Layers and positions stay few:
  // what a plug-in keeps for each of them it may fill before it sees that there is no room.
  const int32_t power = 1 << 30;
  const int32_t power_dim = power / small.head_dim * small.head_dim;
  const int32_t widest = kMax / small.head_dim * small.head_dim;
  cases.push_back(RefusesGeometry(plugin, {2, kMax, widest, 3}));
  cases.push_back(RefusesGeometry(plugin, {1, power, power_dim, 16}));
  cases.push_back(RefusesGeometry(plugin, {2, power, power_dim, 2}));
  cases.push_back(RefusesGeometry(plugin, {16, power, power_dim, 1}));
#endif
  return cases;
}

std::vector<HostileCase> SaveCases(Library plugin) {
  const auto flipped = [](Bytes& bytes, size_t i) -> std::string {
    const size_t at = Place(i, bytes.size());
    if (at >= bytes.size()) return "";
    bytes[at] ^= std::byte{1} << (i % 8);
    return fmt::format("a save with a bit of byte {} flipped", at);
  };
  const auto truncated = [](Bytes& bytes, size_t i) -> std::string {
    const size_t size = Place(i, bytes.size());
    if (size >= bytes.size()) return "";
    bytes.resize(size);
    return fmt::format("the first {} bytes of a save", size);
  };
  const auto foreign = [](Bytes& bytes, size_t i) -> std::string {
    if (i > 3) return "";
    if (i == 3) {
      bytes.push_back(std::byte{0});
      return "a save with a byte more";
    }
    const std::byte fill = i == 0 ? std::byte{0} : i == 1 ? std::byte{0xff} : std::byte{'x'};
    std::ranges::fill(bytes, fill);
    return fmt::format("bytes of 0x{:02x} alone", static_cast<int>(fill));
  };
  return {
      {"saving and restoring", [plugin] { return RestoresWhatWasSaved(plugin); }},
      {"flipped bits", [plugin, flipped] { return RefusesAll(plugin, flipped); }},
      {"truncated saves", [plugin, truncated] { return RefusesAll(plugin, truncated); }},
      {"foreign bytes", [plugin, foreign] { return RefusesAll(plugin, foreign); }},
      {"other geometries", [plugin] { return RefusesOtherGeometries(plugin); }},
  };
}

std::vector<HostileCase> ThreadCases(Library plugin, bool related, uint64_t seed) {
  const KvGeometry geometry = SmallGeometry(*plugin);
  const auto apart = [plugin, geometry]() -> std::array<Pair, 2> {
    KvGeometry other = geometry;
    ++other.num_kv_heads;
    return {MakePair(plugin, geometry), MakePair(plugin, other)};
  };
  const auto forked = [plugin, geometry]() -> std::array<Pair, 2> {
    Pair source = MakePair(plugin, geometry);
    Fill(*source.subject);
    Fill(*source.model);
    Pair fork = {source.subject->Fork(), source.model->Fork()};
    return {std::move(source), std::move(fork)};
  };
  if (related) {
    return {{"a cache and its fork on two threads",
             [forked, seed] { return DriveOnTwoThreads(forked, seed); }}};
  }
  return {{"two caches on two threads", [apart, seed] { return DriveOnTwoThreads(apart, seed); }}};
}

}  // namespace lockstep
