#include "caches/plugin_cache.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "caches/cache_file.h"
#include "caches/check.h"

namespace lockstep {
namespace {

// An answer that no cache may give. `what` begins with the function's name.
[[noreturn]] void Misbehaves(const std::string& what) {
  throw PluginError({"plug-in", what, "see caches/plugin.h"});
}

// What a status means to a caller of KvCache. `call` is the function's name.
void ThrowUnlessOk(lockstep_kv_status status, const char* call) {
  switch (status) {
    case LOCKSTEP_KV_OK:
      return;
    case LOCKSTEP_KV_OUT_OF_RANGE:
      throw std::out_of_range(fmt::format("{}: out of range", call));
    case LOCKSTEP_KV_INVALID_ARGUMENT:
      throw std::invalid_argument(fmt::format("{}: invalid argument", call));
    case LOCKSTEP_KV_LOGIC_ERROR:
      throw std::logic_error(fmt::format("{}: no such reservation", call));
    case LOCKSTEP_KV_EXHAUSTED:
      throw PoolExhausted(fmt::format("{}: no free block", call));
    case LOCKSTEP_KV_REFUSED:
    case LOCKSTEP_KV_UNSUPPORTED:
    case LOCKSTEP_KV_STATUS_IS_INT:
      break;
  }
  Misbehaves(fmt::format("{}: status {} has no meaning here", call, static_cast<int>(status)));
}

constexpr uint32_t kFeaturesOfVersion1 = LOCKSTEP_KV_GRANTS_SLOTS | LOCKSTEP_KV_FORKS;
constexpr uint32_t kFeatures = kFeaturesOfVersion1 | LOCKSTEP_KV_SAVES | LOCKSTEP_KV_COUNTS_BLOCKS |
                               LOCKSTEP_KV_CONCURRENT_FORKS;

// Calls across the border. An exception must not pass for an answer of the contract.
template <typename Result, typename... Parameters, typename... Arguments>
Result Call(const char* name, Result (*function)(Parameters...), Arguments... arguments) {
  try {
    return function(arguments...);
  } catch (...) {
    Misbehaves(fmt::format("{}: an exception left it", name));
  }
}

// Heads of any model are far smaller; what is made from the multiple stays small with it.
constexpr int32_t kHeadDimMultipleMax = 1024;

int32_t Count(std::span<const int32_t> positions) {
  LS_CHECK(positions.size() <= INT32_MAX, "{} positions", positions.size());
  return static_cast<int32_t>(positions.size());
}

}  // namespace

std::shared_ptr<const PluginLibrary> PluginLibrary::Load(const std::string& path) {
  std::shared_ptr<PluginLibrary> library(new PluginLibrary);
  library->handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library->handle_ == nullptr) {
    throw Error({path, fmt::format("cannot be loaded: {}", dlerror()),
                 "give the path of a shared library, with a slash in it"});
  }
  const auto function = reinterpret_cast<lockstep_kv_plugin_function>(
      dlsym(library->handle_, LOCKSTEP_KV_PLUGIN_SYMBOL));
  if (function == nullptr) {
    throw Error({path, fmt::format("exports no function {}", LOCKSTEP_KV_PLUGIN_SYMBOL),
                 "implement caches/plugin.h"});
  }
  library->Take(function(), path);
  return library;
}

std::shared_ptr<const PluginLibrary> PluginLibrary::FromTable(
    const lockstep_kv_plugin* table, std::shared_ptr<const PluginLibrary> of) {
  std::shared_ptr<PluginLibrary> library(new PluginLibrary);
  library->of_ = std::move(of);
  library->Take(table, "plug-in");
  return library;
}

PluginLibrary::~PluginLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
}

void* PluginLibrary::handle() const { return of_ ? of_->handle() : handle_; }

// Nothing behind the plug-in's own version may be read: its table ends there.
void PluginLibrary::Take(const lockstep_kv_plugin* table, const std::string& where) {
  const auto fail = [&](const std::string& what) {
    throw Error({where, what, "see caches/plugin.h"});
  };
  if (table == nullptr) fail("returns no table");
  const uint32_t version = table->abi_version;
  if (version < 1 || version > LOCKSTEP_KV_ABI_VERSION) {
    fail(fmt::format("is of ABI version {}, this is {}", version, LOCKSTEP_KV_ABI_VERSION));
  }
  const bool first = version == 1;
  std::memcpy(&table_, table, first ? offsetof(lockstep_kv_plugin, save) : sizeof table_);
  table_.features &= first ? kFeaturesOfVersion1 : kFeatures;
  const std::pair<const char*, bool> needed[] = {
      {"name", table_.name != nullptr},
      {"create", table_.create != nullptr},
      {"destroy", table_.destroy != nullptr},
      {"length", table_.length != nullptr},
      {"read_row", table_.read_row != nullptr},
      {"update", table_.update != nullptr},
      {"try_reserve_slot", table_.try_reserve_slot != nullptr},
      {"commit_slot", table_.commit_slot != nullptr},
      {"rollback", table_.rollback != nullptr},
      {"clear", table_.clear != nullptr},
      {"fork, which its features declare", table_.fork != nullptr || !forks()},
      {"save, which its features declare", table_.save != nullptr || !saves()},
      {"restore, which its features declare", table_.restore != nullptr || !saves()},
      {"used_blocks, which its features declare",
       table_.used_blocks != nullptr || !counts_blocks()},
  };
  for (const auto& [field, present] : needed) {
    if (!present) fail(fmt::format("has no {}", field));
  }
  if (table_.head_dim_multiple < 1) fail("has a head_dim_multiple below 1");
  if (table_.head_dim_multiple > kHeadDimMultipleMax) {
    fail(fmt::format("has a head_dim_multiple above {}", kHeadDimMultipleMax));
  }
  if (table_.block_size < 0) fail("has a negative block_size");
}

PluginCache::PluginCache(std::shared_ptr<const PluginLibrary> library, const KvGeometry& geometry)
    : PluginCache(std::move(library), geometry, nullptr) {
  const lockstep_kv_geometry wanted = {geometry.num_layers, geometry.num_kv_heads,
                                       geometry.head_dim, geometry.max_length};
  cache_ = Call("create", table().create, &wanted);
  if (cache_ == nullptr) {
    throw std::invalid_argument(
        fmt::format("plug-in {} makes no cache of {} layers, {} KV heads of {} elements and {} "
                    "positions",
                    table().name, geometry.num_layers, geometry.num_kv_heads, geometry.head_dim,
                    geometry.max_length));
  }
}

PluginCache::PluginCache(std::shared_ptr<const PluginLibrary> library, const KvGeometry& geometry,
                         void* cache)
    : library_(std::move(library)),
      geometry_(geometry),
      cache_(cache),
      rows_(static_cast<size_t>(std::max(geometry.num_layers, 0))) {}

PluginCache::~PluginCache() {
  if (cache_ != nullptr) table().destroy(cache_);
}

std::string PluginCache::name() const { return fmt::format("plugin({})", table().name); }

int32_t PluginCache::length(int32_t layer) const {
  const int32_t length = Call("length", table().length, cache_, layer);
  if (length < 0) throw std::out_of_range(fmt::format("length: no layer {}", layer));
  if (length > geometry_.max_length) {
    Misbehaves(fmt::format("length: {} of at most {} positions", length, geometry_.max_length));
  }
  return length;
}

int32_t PluginCache::current_length() const {
  int32_t longest = 0;
  for (int32_t layer = 0; layer < geometry_.num_layers; ++layer) {
    longest = std::max(longest, length(layer));
  }
  return longest;
}

void PluginCache::View(int32_t layer, KvView* view) const {
  const int32_t rows = length(layer);
  if (layer < 0 || layer >= geometry_.num_layers) {
    Misbehaves(fmt::format("length: answers for layer {} of {}", layer, geometry_.num_layers));
  }
  const auto stride = static_cast<size_t>(geometry_.kv_stride());
  Rows& copy = rows_[static_cast<size_t>(layer)];
  copy.keys.assign(static_cast<size_t>(rows) * stride, 0.0f);
  copy.values.assign(static_cast<size_t>(rows) * stride, 0.0f);
  for (int32_t p = 0; p < rows; ++p) {
    const size_t at = static_cast<size_t>(p) * stride;
    ThrowUnlessOk(
        Call("read_row", table().read_row, cache_, layer, p, &copy.keys[at], &copy.values[at]),
        "read_row");
  }
  view->length = rows;
  view->segments.clear();
  if (rows == 0) return;
  view->segments.push_back({.first = 0,
                            .count = rows,
                            .keys = std::as_bytes(std::span(copy.keys)).data(),
                            .values = std::as_bytes(std::span(copy.values)).data()});
}

// The numbers of elements are not the plug-in's to check: they do not cross the border.
void PluginCache::Update(int32_t layer, std::span<const int32_t> positions,
                         std::span<const float> keys, std::span<const float> values) {
  const size_t expected = positions.size() * static_cast<size_t>(geometry_.kv_stride());
  const bool known = layer >= 0 && layer < geometry_.num_layers;
  if (known && (keys.size() != expected || values.size() != expected)) {
    throw std::invalid_argument("update: wrong number of elements");
  }
  ThrowUnlessOk(Call("update", table().update, cache_, layer, positions.data(), Count(positions),
                     keys.data(), values.data()),
                "update");
}

std::optional<KvSlot> PluginCache::TryReserveSlot(int32_t layer,
                                                  std::span<const int32_t> positions) {
  float* keys = nullptr;
  float* values = nullptr;
  const lockstep_kv_status status = Call("try_reserve_slot", table().try_reserve_slot, cache_,
                                         layer, positions.data(), Count(positions), &keys, &values);
  if (status == LOCKSTEP_KV_REFUSED) return std::nullopt;
  ThrowUnlessOk(status, "try_reserve_slot");
  if (keys == nullptr || values == nullptr) {
    Misbehaves("try_reserve_slot: granted, and handed out no memory");
  }
  const size_t elements = positions.size() * static_cast<size_t>(geometry_.kv_stride());
  return KvSlot{{keys, elements}, {values, elements}};
}

void PluginCache::CommitSlot(int32_t layer, std::span<const int32_t> positions) {
  ThrowUnlessOk(
      Call("commit_slot", table().commit_slot, cache_, layer, positions.data(), Count(positions)),
      "commit_slot");
}

void PluginCache::Rollback(int32_t length) {
  ThrowUnlessOk(Call("rollback", table().rollback, cache_, length), "rollback");
}

void PluginCache::Clear() { Call("clear", table().clear, cache_); }

std::unique_ptr<KvCache> PluginCache::Fork() {
  if (!library_->forks()) throw std::logic_error("fork: not declared by the plug-in");
  void* fork = Call("fork", table().fork, cache_);
  if (fork == nullptr) throw std::bad_alloc();
  return std::unique_ptr<KvCache>(new PluginCache(library_, geometry_, fork));
}

Digest PluginCache::StorageDigest() const { return DigestOfCache(*this); }

std::optional<int32_t> PluginCache::used_blocks() const {
  if (!library_->counts_blocks()) return std::nullopt;
  return Call("used_blocks", table().used_blocks, cache_);
}

void PluginCache::SaveState(StateWriter* writer) const {
  if (!library_->saves()) throw std::logic_error("save: not declared by the plug-in");
  const int64_t size = Call("save", table().save, cache_, static_cast<void*>(nullptr), int64_t{0});
  if (size < 0) throw std::bad_alloc();
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  const int64_t saved = Call("save", table().save, cache_, static_cast<void*>(bytes.data()), size);
  if (saved < 0) throw std::bad_alloc();
  if (saved != size) Misbehaves(fmt::format("save: {} bytes, then {}", size, saved));
  const std::string kind = name();
  writer->WriteHeader({.kind = kind, .geometry = geometry_});
  writer->WriteU32(static_cast<uint32_t>(size & 0xffffffff));
  writer->WriteU32(static_cast<uint32_t>(size >> 32));
  writer->WriteBytes(bytes);
}

void PluginCache::LoadState(StateReader* reader) {
  if (!library_->saves()) throw std::logic_error("restore: not declared by the plug-in");
  const std::string kind = name();
  reader->ExpectHeader({.kind = kind, .geometry = geometry_});
  const int64_t low = reader->ReadU32("size");
  const int64_t size = low | int64_t{reader->ReadU32("size")} << 32;
  reader->ExpectRemaining(size);
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  reader->ReadBytes(bytes);
  const lockstep_kv_status status =
      Call("restore", table().restore, cache_, static_cast<const void*>(bytes.data()), size);
  if (status == LOCKSTEP_KV_INVALID_ARGUMENT) {
    reader->Fail("content", "the plug-in refuses it", std::string(kDamagedRemedy));
  }
  ThrowUnlessOk(status, "restore");
}

}  // namespace lockstep
