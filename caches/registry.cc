#include "caches/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "caches/cuda_kv_cache.h"
#include "caches/cuda_quantized_kv_cache.h"
#include "caches/error.h"
#include "caches/hybrid_kv_cache.h"
#include "caches/kv_checks.h"
#include "caches/paged_kv_cache.h"
#include "caches/plugin_cache.h"
#include "caches/quantized_kv_cache.h"
#include "caches/ring_kv_cache.h"
#include "caches/simple_kv_cache.h"

namespace lockstep {
namespace {

constexpr std::string_view kKnownForms =
    "simple, paged/BLOCK_SIZE, quantized/KEYS+VALUES/wWINDOW with KEYS and VALUES one of f32, f16, "
    "bf16, q8_0 and q4_0 and, where the window's rows are rounded to F16, -f16 "
    "behind it (paged/16, "
    "quantized/q8_0+q4_0/w4, quantized/q8_0+q4_0/w4-f16), ring/model+ROWS and "
    "ring/wWINDOWS+ROWS with the windows of the model or of the layers in turn and so many rows "
    "that can be undone (ring/model+8, ring/w4096-0+8) and, behind ring/, KEYS+VALUES/ of f32, f16 "
    "and bf16 (ring/f16+f16/model+8), on a device cuda, "
    "cuda-quantized/KEYS+VALUES/wWINDOW and hybrid/DEVICE_LAYERS, plugin:LIBRARY with a shared "
    "library "
    "that "
    "implements caches/plugin.h (plugin:./libcache.so)";

CacheSpec Simple() {
  return {.name = "simple",
          .make = [](const CacheOptions& options) -> std::unique_ptr<KvCache> {
            return std::make_unique<SimpleKvCache>(options.geometry);
          },
          .grants_host_slots = true};
}

std::unique_ptr<KvCache> MakePaged(const CacheOptions& options, int32_t block_size) {
  const int64_t blocks =
      int64_t{BlocksForRows(options.geometry.max_length, block_size)} * options.sequences;
  if (blocks <= 0 || blocks > std::numeric_limits<int32_t>::max()) {
    throw std::invalid_argument(fmt::format("paged/{}: {} sequences of {} positions need {} blocks",
                                            block_size, options.sequences,
                                            options.geometry.max_length, blocks));
  }
  auto pool =
      std::make_shared<BlockPool>(BlockPoolOptions{.geometry = options.geometry,
                                                   .block_size = block_size,
                                                   .num_blocks = static_cast<int32_t>(blocks),
                                                   .shuffle_seed = options.shuffle_seed});
  return std::make_unique<PagedKvCache>(PagedKvCacheOptions{
      .geometry = options.geometry, .block_size = block_size, .pool = std::move(pool)});
}

CacheSpec Paged(int32_t block_size) {
  return {
      .name = fmt::format("paged/{}", block_size),
      .make = [block_size](const CacheOptions& options) { return MakePaged(options, block_size); },
      .grants_host_slots = true,
      .block_size = block_size};
}

struct QuantizedKind {
  RowType keys = RowType::kF32;
  RowType values = RowType::kF32;
  int32_t window = 0;  // positions
  RowType window_type = RowType::kF32;

  QuantizedKvOptions Options(const KvGeometry& geometry) const {
    return {.geometry = geometry,
            .key_type = keys,
            .value_type = values,
            .window = window,
            .window_type = window_type};
  }
};

CacheSpec Quantized(const QuantizedKind& kind) {
  return {.name = "quantized/" + RowsName(kind.Options({})),
          .make = [kind](const CacheOptions& options) -> std::unique_ptr<KvCache> {
            return std::make_unique<QuantizedKvCache>(kind.Options(options.geometry));
          },
          .window = kind.window,
          .window_type = kind.window_type,
          .key_type = kind.keys,
          .value_type = kind.values,
          .head_dim_multiple = HeadDimMultiple(kind.keys, kind.values)};
}

// What a plug-in cannot hold is no mistake in how lockstep calls it.
std::unique_ptr<KvCache> MakePlugin(const std::shared_ptr<const PluginLibrary>& plugin,
                                    const KvGeometry& geometry) {
  try {
    return std::make_unique<PluginCache>(plugin, geometry);
  } catch (const std::invalid_argument& e) {
    throw Error({"cache", e.what(), "choose another model or another cache"});
  }
}

CacheSpec Plugin(const std::string& path) {
  const std::shared_ptr<const PluginLibrary> plugin = PluginLibrary::Load(path);
  const lockstep_kv_plugin& table = plugin->table();
  return {.name = "plugin:" + path,
          .make = [plugin](const CacheOptions& options) -> std::unique_ptr<KvCache> {
            return MakePlugin(plugin, options.geometry);
          },
          .grants_host_slots = plugin->grants_slots(),
          .block_size = table.block_size,
          .head_dim_multiple = table.head_dim_multiple,
          .plugin = plugin};
}

constexpr int32_t kEveryLayer = std::numeric_limits<int32_t>::max();

CacheSpec Cuda() {
  return {.name = "cuda",
          .make = [](const CacheOptions& options) -> std::unique_ptr<KvCache> {
            return std::make_unique<CudaKvCache>(options.geometry, options.device);
          },
          .key_type = RowType::kF16,
          .value_type = RowType::kF16,
          .device_layers = kEveryLayer};
}

// The window's rows are F16, and so is no part of the name.
CacheSpec CudaQuantized(QuantizedKind kind) {
  kind.window_type = RowType::kF32;
  return {.name = "cuda-quantized/" + RowsName(kind.Options({})),
          .make = [kind](const CacheOptions& options) -> std::unique_ptr<KvCache> {
            return std::make_unique<CudaQuantizedKvCache>(kind.Options(options.geometry),
                                                          options.device);
          },
          .window = kind.window,
          .window_type = kind.window > 0 ? RowType::kF16 : RowType::kF32,
          .key_type = kind.keys,
          .value_type = kind.values,
          .head_dim_multiple = HeadDimMultiple(kind.keys, kind.values),
          .device_layers = kEveryLayer};
}

CacheSpec Hybrid(int32_t device_layers) {
  return {.name = fmt::format("hybrid/{}", device_layers),
          .make = [device_layers](const CacheOptions& options) -> std::unique_ptr<KvCache> {
            return std::make_unique<HybridKvCache>(HybridKvOptions{.geometry = options.geometry,
                                                                   .device_layers = device_layers,
                                                                   .device = options.device});
          },
          .key_type = RowType::kF16,
          .value_type = RowType::kF16,
          .device_layers = device_layers};
}

// No windows: those of the geometry.
CacheSpec Ring(const std::vector<int32_t>& windows, int32_t undo_rows, RowType keys = RowType::kF32,
               RowType values = RowType::kF32) {
  const std::string label = windows.empty() ? "model" : fmt::format("w{}", fmt::join(windows, "-"));
  const bool exact = keys == RowType::kF32 && values == RowType::kF32;
  CacheSpec spec = {
      .name = fmt::format("ring/{}{}+{}", RingRowsName(keys, values), label, undo_rows),
      .make = {},
      .grants_host_slots = exact,
      .key_type = keys,
      .value_type = values,
      .windows = windows,
      .undo_rows = undo_rows};
  spec.make = [spec, label](const CacheOptions& options) -> std::unique_ptr<KvCache> {
    CheckGeometry(options.geometry);
    std::vector<int32_t> of_layers = WindowsOf(spec, options.geometry);
    of_layers.resize(static_cast<size_t>(options.geometry.num_layers));
    return std::make_unique<RingKvCache>(RingKvOptions{.geometry = options.geometry,
                                                       .windows = std::move(of_layers),
                                                       .undo_rows = spec.undo_rows,
                                                       .key_type = spec.key_type,
                                                       .value_type = spec.value_type,
                                                       .label = label});
  };
  return spec;
}

// A decimal number without sign or leading zero, so that every kind has one name.
std::optional<int32_t> ParseNumber(std::string_view text) {
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < 0 || fmt::format("{}", value) != text) return std::nullopt;
  return value;
}

std::optional<RowType> ParseRowType(std::string_view text) {
  for (RowType type :
       {RowType::kF32, RowType::kF16, RowType::kBf16, RowType::kQ8_0, RowType::kQ4_0}) {
    if (RowTypeName(type) == text) return type;
  }
  return std::nullopt;
}

// "q8_0+q4_0/w4", "q8_0+q4_0/w4-f16"
std::optional<QuantizedKind> ParseQuantized(std::string_view text) {
  const size_t plus = text.find('+');
  const size_t window = text.find("/w");
  if (plus == text.npos || window == text.npos || window < plus) return std::nullopt;
  const auto keys = ParseRowType(text.substr(0, plus));
  const auto values = ParseRowType(text.substr(plus + 1, window - plus - 1));
  constexpr std::string_view kHalf = "-f16";
  const bool half = text.ends_with(kHalf);
  if (half) text.remove_suffix(kHalf.size());
  const auto positions = ParseNumber(text.substr(std::min(window + 2, text.size())));
  if (!keys || !values || !positions || (half && *positions == 0)) return std::nullopt;
  return QuantizedKind{.keys = *keys,
                       .values = *values,
                       .window = *positions,
                       .window_type = half ? RowType::kF16 : RowType::kF32};
}

// "f16+bf16/" before what ParseRing reads, where rows are not F32: one form for each kind.
struct RingRows {
  RowType keys = RowType::kF32;
  RowType values = RowType::kF32;
};
std::optional<RingRows> TakeRingRows(std::string_view* text) {
  const size_t slash = text->find('/');
  if (slash == text->npos) return RingRows();
  const std::string_view types = text->substr(0, slash);
  const size_t plus = types.find('+');
  if (plus == types.npos) return std::nullopt;
  const auto keys = ParseRowType(types.substr(0, plus)),
             values = ParseRowType(types.substr(plus + 1));
  if (!keys || !values || (*keys == RowType::kF32 && *values == RowType::kF32)) return std::nullopt;
  for (const RowType type : {*keys, *values}) {
    if (type == RowType::kQ8_0 || type == RowType::kQ4_0) return std::nullopt;
  }
  text->remove_prefix(slash + 1);
  return RingRows{*keys, *values};
}

// "model+8", "w4096+8", "w4096-0+8", "f16+f16/model+8"
std::optional<CacheSpec> ParseRing(std::string_view text) {
  const std::optional<RingRows> row_types = TakeRingRows(&text);
  if (!row_types) return std::nullopt;
  const size_t plus = text.find('+');
  if (plus == text.npos) return std::nullopt;
  const auto undo_rows = ParseNumber(text.substr(plus + 1));
  std::string_view list = text.substr(0, plus);
  std::vector<int32_t> windows;
  if (list != "model") {
    if (!list.starts_with('w')) return std::nullopt;
    for (bool more = true; more;) {
      list.remove_prefix(1);  // 'w', '-'
      const auto window = ParseNumber(list.substr(0, list.find('-')));
      if (!window) return std::nullopt;
      windows.push_back(*window);
      more = list.find('-') != list.npos;
      if (more) list.remove_prefix(list.find('-'));
    }
  }
  if (!undo_rows || *undo_rows < 1) return std::nullopt;
  return Ring(windows, *undo_rows, row_types->keys, row_types->values);
}

std::optional<std::string_view> After(std::string_view prefix, std::string_view text) {
  if (!text.starts_with(prefix)) return std::nullopt;
  return text.substr(prefix.size());
}

}  // namespace

std::span<const CacheSpec> AllCaches() {
  static const std::vector<CacheSpec> kCaches = {
      Simple(),
      Paged(1),
      Paged(2),
      Paged(4),
      Paged(16),
      Quantized({RowType::kQ8_0, RowType::kQ8_0, 0}),
      Quantized({RowType::kQ4_0, RowType::kQ4_0, 0}),
      Quantized({RowType::kQ8_0, RowType::kQ4_0, 1}),
      Quantized({RowType::kQ8_0, RowType::kQ4_0, 4}),
      Quantized({RowType::kQ4_0, RowType::kQ8_0, 4}),
      Quantized({RowType::kQ8_0, RowType::kQ4_0, 4, RowType::kF16}),
      Quantized({RowType::kF32, RowType::kQ8_0, 0}),
      Quantized({RowType::kF32, RowType::kQ4_0, 4}),
      Quantized({RowType::kF16, RowType::kF16, 0}),
      Quantized({RowType::kF16, RowType::kF16, 4}),
      Quantized({RowType::kBf16, RowType::kBf16, 0}),
      Quantized({RowType::kQ8_0, RowType::kBf16, 4}),
      Ring({6, 0}, 3),
      Ring({}, 3),
      Ring({6, 0}, 3, RowType::kF16, RowType::kBf16),
      Ring({}, 3, RowType::kF16, RowType::kF16),
      Cuda(),
      CudaQuantized({RowType::kQ8_0, RowType::kQ8_0, 4}),
      CudaQuantized({RowType::kQ8_0, RowType::kQ4_0, 0}),
      Hybrid(1),
  };
  return kCaches;
}

CacheSpec ParseCacheSpec(std::string_view name) {
  if (name == "simple") return Simple();
  if (const auto rest = After("paged/", name)) {
    const auto block_size = ParseNumber(*rest);
    if (block_size && *block_size > 0) return Paged(*block_size);
  }
  if (const auto rest = After("quantized/", name)) {
    if (const auto kind = ParseQuantized(*rest)) return Quantized(*kind);
  }
  if (const auto rest = After("ring/", name)) {
    if (auto ring = ParseRing(*rest)) return std::move(*ring);
  }
  if (name == "cuda") return Cuda();
  if (const auto rest = After("cuda-quantized/", name)) {
    const auto kind = ParseQuantized(*rest);
    if (kind && kind->window_type == RowType::kF32) return CudaQuantized(*kind);
  }
  if (const auto rest = After("hybrid/", name)) {
    if (const auto layers = ParseNumber(*rest)) return Hybrid(*layers);
  }
  if (const auto path = After("plugin:", name)) return Plugin(std::string(*path));
  throw Error({.where = fmt::format("cache '{}'", name),
               .what = "is of no known form",
               .remedy = fmt::format("use one of: {}", kKnownForms)});
}

std::optional<BlockCounts> BlockCountsOf(const KvCache& cache) {
  if (const auto* plugin = dynamic_cast<const PluginCache*>(&cache)) {
    const std::optional<int32_t> used = plugin->used_blocks();
    return used ? std::optional(BlockCounts{.used_blocks = *used}) : std::nullopt;
  }
  const auto* paged = dynamic_cast<const PagedKvCache*>(&cache);
  if (paged == nullptr) return std::nullopt;
  const BlockPool& pool = paged->pool();
  BlockCounts counts{.free_blocks = pool.free_blocks(), .used_blocks = pool.used_blocks()};
  for (int32_t block = 0; block < pool.num_blocks(); ++block) {
    counts.references.push_back(pool.references(block));
  }
  return counts;
}

std::vector<int32_t> WindowsOf(const CacheSpec& spec, const KvGeometry& geometry) {
  if (spec.undo_rows == 0) return {};
  std::vector<int32_t> windows;
  for (int32_t layer = 0; layer < geometry.num_layers; ++layer) {
    const auto turn = static_cast<size_t>(layer);
    windows.push_back(spec.windows.empty() ? geometry.window_of(layer)
                                           : spec.windows[turn % spec.windows.size()]);
  }
  const bool forgets = std::ranges::any_of(windows, [](int32_t window) { return window > 0; });
  return forgets ? windows : std::vector<int32_t>();
}

std::string Misfit(const CacheSpec& spec, const KvGeometry& geometry) {
  if (geometry.head_dim % spec.head_dim_multiple != 0) {
    return fmt::format("{} stores heads whose dimension is a multiple of {}, the model's is {}",
                       spec.name, spec.head_dim_multiple, geometry.head_dim);
  }
  const std::vector<int32_t> windows = WindowsOf(spec, geometry);
  for (size_t layer = 0; layer < windows.size(); ++layer) {
    const int32_t seen = geometry.window_of(static_cast<int32_t>(layer));
    if (windows[layer] == 0 || (seen > 0 && seen <= windows[layer])) continue;
    return fmt::format("{} keeps {} rows for a query, layer {} of the model sees {}", spec.name,
                       windows[layer], layer, seen == 0 ? "all" : std::to_string(seen));
  }
  return "";
}

void CheckFits(const CacheSpec& spec, const KvGeometry& geometry, std::string_view where) {
  std::string misfit = Misfit(spec, geometry);
  if (misfit.empty()) return;
  const bool forgets = geometry.head_dim % spec.head_dim_multiple == 0;
  throw Error(
      {std::string(where), std::move(misfit),
       forgets ? fmt::format("choose ring/model+{}, or a cache that keeps all rows", spec.undo_rows)
               : "choose a cache of another row type"});
}

}  // namespace lockstep
