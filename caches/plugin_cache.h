// A cache of another engine, loaded from a shared library that implements caches/plugin.h, as a
// KvCache. It only translates: what the plug-in does wrong is the harness's to find.
#ifndef LOCKSTEP_CACHES_PLUGIN_CACHE_H_
#define LOCKSTEP_CACHES_PLUGIN_CACHE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "caches/kv_cache.h"
#include "caches/plugin.h"

namespace lockstep {

class PluginLibrary {
 public:
  // Throws Error when the library cannot be loaded, lacks the symbol, is of another ABI version or
  // has a function missing; the message says which.
  static std::shared_ptr<const PluginLibrary> Load(const std::string& path);
  // A table that is linked in, for tests. The same checks.
  static std::shared_ptr<const PluginLibrary> FromTable(const lockstep_kv_plugin* table);
  ~PluginLibrary();
  PluginLibrary(const PluginLibrary&) = delete;
  PluginLibrary& operator=(const PluginLibrary&) = delete;

  const lockstep_kv_plugin& table() const { return *table_; }
  bool grants_slots() const { return (table_->features & LOCKSTEP_KV_GRANTS_SLOTS) != 0; }
  bool forks() const { return (table_->features & LOCKSTEP_KV_FORKS) != 0; }

 private:
  PluginLibrary() = default;
  void Check(const std::string& where) const;

  void* handle_ = nullptr;
  const lockstep_kv_plugin* table_ = nullptr;
};

// Reading copies rows out of the plug-in into memory of this object, so unlike other caches it
// must not be read from two threads at once. A plug-in has no storage digest and no state to save:
// StorageDigest is DigestOfCache, SaveState and LoadState throw std::logic_error.
class PluginCache final : public KvCache {
 public:
  // std::invalid_argument when the plug-in does not make a cache of this geometry.
  PluginCache(std::shared_ptr<const PluginLibrary> library, const KvGeometry& geometry);
  ~PluginCache() override;

  const KvGeometry& geometry() const override { return geometry_; }
  std::string name() const override;  // "plugin(NAME)"
  RowType key_type() const override { return RowType::kF32; }
  RowType value_type() const override { return RowType::kF32; }

  int32_t length(int32_t layer) const override;
  int32_t current_length() const override;
  void View(int32_t layer, KvView* view) const override;

  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override;
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override;
  void CommitSlot(int32_t layer, std::span<const int32_t> positions) override;
  void Rollback(int32_t length) override;
  void Clear() override;
  std::unique_ptr<KvCache> Fork() override;

  Digest StorageDigest() const override;
  void SaveState(StateWriter* writer) const override;
  void LoadState(StateReader* reader) override;

 private:
  PluginCache(std::shared_ptr<const PluginLibrary> library, const KvGeometry& geometry,
              void* cache);
  const lockstep_kv_plugin& table() const { return library_->table(); }

  struct Rows {
    std::vector<float> keys;    // [length, kv_stride]
    std::vector<float> values;  // [length, kv_stride]
  };

  std::shared_ptr<const PluginLibrary> library_;
  KvGeometry geometry_;
  void* cache_ = nullptr;
  mutable std::vector<Rows> rows_;  // [num_layers], what the last View of each layer showed
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_PLUGIN_CACHE_H_
