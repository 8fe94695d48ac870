// A cache of another engine, loaded from a shared library that implements caches/plugin.h, as a
// KvCache. It only translates: what the plug-in does wrong is the harness's to find.
#ifndef LOCKSTEP_CACHES_PLUGIN_CACHE_H_
#define LOCKSTEP_CACHES_PLUGIN_CACHE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "caches/error.h"
#include "caches/kv_cache.h"
#include "caches/plugin.h"

namespace lockstep {

// A plug-in answered what no cache may answer: a fault found in it.
class PluginError : public Error {
 public:
  using Error::Error;
};

class PluginLibrary {
 public:
  // Throws Error when the library cannot be loaded, lacks the symbol, is of a later ABI version or
  // has a function missing; the message says which.
  static std::shared_ptr<const PluginLibrary> Load(const std::string& path);
  // A table that is linked in. The same checks. The library that `of` was loaded from, if any,
  // stays loaded and is what handle() gives.
  static std::shared_ptr<const PluginLibrary> FromTable(
      const lockstep_kv_plugin* table, std::shared_ptr<const PluginLibrary> of = nullptr);
  ~PluginLibrary();
  PluginLibrary(const PluginLibrary&) = delete;
  PluginLibrary& operator=(const PluginLibrary&) = delete;

  // As this version of the ABI has it: what the plug-in's own version lacks is NULL, and flags that
  // it did not have are unset.
  const lockstep_kv_plugin& table() const { return table_; }
  bool has(uint32_t feature) const { return (table_.features & feature) != 0; }
  bool grants_slots() const { return has(LOCKSTEP_KV_GRANTS_SLOTS); }
  bool forks() const { return has(LOCKSTEP_KV_FORKS); }
  bool saves() const { return has(LOCKSTEP_KV_SAVES); }
  bool counts_blocks() const { return has(LOCKSTEP_KV_COUNTS_BLOCKS); }

  void* handle() const;  // of dlopen; nullptr for a table that is linked in

 private:
  PluginLibrary() = default;
  void Take(const lockstep_kv_plugin* table, const std::string& where);

  void* handle_ = nullptr;
  std::shared_ptr<const PluginLibrary> of_;
  lockstep_kv_plugin table_ = {};
};

// Reading copies rows out of the plug-in into memory of this object, so unlike other caches it
// must not be read from two threads at once. A plug-in has no storage digest: StorageDigest is
// DigestOfCache. SaveState and LoadState throw std::logic_error when it declares no saves.
// What no cache may answer (an exception through the border, a status or length without meaning) is
// a PluginError that says so.
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

  // Nothing when the plug-in does not count them [B3].
  std::optional<int32_t> used_blocks() const;

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
