#include "properties/fuzz/hostile_plugin.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <vector>

#include "caches/check.h"
#include "caches/simple_kv_cache.h"

namespace lockstep::fuzz {
namespace {

constexpr std::array<std::string_view, kLieKinds> kNames = {"none",
                                                            "length-minus-one",
                                                            "length-plus-one",
                                                            "length-huge",
                                                            "length-zero",
                                                            "read-nothing",
                                                            "read-swapped",
                                                            "read-status",
                                                            "update-nothing",
                                                            "update-refused",
                                                            "update-greedy",
                                                            "reserve-null",
                                                            "reserve-null-values",
                                                            "reserve-aliased",
                                                            "reserve-greedy",
                                                            "reserve-never",
                                                            "reserve-status",
                                                            "commit-nothing",
                                                            "commit-greedy",
                                                            "commit-status",
                                                            "rollback-nothing",
                                                            "rollback-greedy",
                                                            "clear-nothing",
                                                            "fork-null",
                                                            "fork-itself",
                                                            "create-null",
                                                            "hides-slots",
                                                            "other-version",
                                                            "no-name",
                                                            "no-function",
                                                            "negative-block",
                                                            "no-multiple",
                                                            "huge-multiple"};

// What the function that answers it has no use for.
constexpr lockstep_kv_status kNonsense = LOCKSTEP_KV_UNSUPPORTED;

struct State {
  LieKind kind = LieKind::kNone;
  int32_t left = 0;  // honest answers of this kind before the first lie
  bool told = false;
};
State g_state;

// An honest cache and how many handles there are to it.
struct Cache {
  std::unique_ptr<KvCache> honest;
  int32_t handles = 1;
  std::vector<float> greedy;  // memory of grants that nothing is behind
};

// Whether this call lies, when it is one that the lie is about.
bool Lies(LieKind kind) { return g_state.kind == kind && g_state.left-- <= 0; }
// The same, for a lie that shows at once.
bool LiesOpenly(LieKind kind, bool shows) {
  if (g_state.kind != kind || !shows || g_state.left-- > 0) return false;
  g_state.left = 0;
  return g_state.told = true;
}

Cache& Of(void* cache) { return *static_cast<Cache*>(cache); }
const KvCache& HonestOf(const void* cache) { return *static_cast<const Cache*>(cache)->honest; }

template <typename Call>
lockstep_kv_status StatusOf(const Call& call) {
  try {
    call();
    return LOCKSTEP_KV_OK;
  } catch (const std::out_of_range&) {
    return LOCKSTEP_KV_OUT_OF_RANGE;
  } catch (const std::invalid_argument&) {
    return LOCKSTEP_KV_INVALID_ARGUMENT;
  } catch (const std::logic_error&) {
    return LOCKSTEP_KV_LOGIC_ERROR;
  }
}

bool HasLayer(const KvCache& cache, int32_t layer) {
  return layer >= 0 && layer < cache.geometry().num_layers;
}

// The length that the layer would have with these rows; -1 when they cannot be written.
int32_t LengthWith(const KvCache& cache, int32_t layer, std::span<const int32_t> positions) {
  if (!HasLayer(cache, layer)) return -1;
  int32_t length = cache.length(layer);
  for (const int32_t p : positions) {
    if (p < 0 || p >= cache.max_length()) return -1;
    length = std::max(length, p + 1);
  }
  return length;
}

void* Create(const lockstep_kv_geometry* g) {
  if (LiesOpenly(LieKind::kCreateNull, true)) return nullptr;
  auto cache = std::make_unique<Cache>();
  cache->honest = std::make_unique<SimpleKvCache>(
      KvGeometry{g->num_layers, g->num_kv_heads, g->head_dim, g->max_length});
  return cache.release();
}

void Destroy(void* cache) {
  if (--Of(cache).handles == 0) delete static_cast<Cache*>(cache);
}

int32_t Length(const void* cache, int32_t layer) {
  const KvCache& honest = HonestOf(cache);
  const int32_t length = HasLayer(honest, layer) ? honest.length(layer) : -1;
  if (LiesOpenly(LieKind::kLengthMinusOne, length >= 0)) return -1;
  if (LiesOpenly(LieKind::kLengthPlusOne, length >= 0)) return length + 1;
  if (LiesOpenly(LieKind::kLengthHuge, length >= 0)) return std::numeric_limits<int32_t>::max();
  if (LiesOpenly(LieKind::kLengthZero, length > 0)) return 0;
  return length;
}

lockstep_kv_status ReadRow(const void* cache, int32_t layer, int32_t position, float* keys,
                           float* values) {
  if (LiesOpenly(LieKind::kReadRowStatus, true)) return kNonsense;
  if (Lies(LieKind::kReadRowNothing)) return LOCKSTEP_KV_OK;
  if (Lies(LieKind::kReadRowSwapped)) std::swap(keys, values);
  const KvCache& honest = HonestOf(cache);
  if (!HasLayer(honest, layer) || position < 0 || position >= honest.length(layer)) {
    return LOCKSTEP_KV_OUT_OF_RANGE;
  }
  KvView view;
  honest.View(layer, &view);
  const KvRows rows = DecodeRows(view, honest.geometry().kv_stride());
  const auto stride = static_cast<size_t>(honest.geometry().kv_stride());
  const size_t at = static_cast<size_t>(position) * stride;
  std::copy_n(rows.keys.begin() + static_cast<std::ptrdiff_t>(at), stride, keys);
  std::copy_n(rows.values.begin() + static_cast<std::ptrdiff_t>(at), stride, values);
  return LOCKSTEP_KV_OK;
}

lockstep_kv_status Update(void* cache, int32_t layer, const int32_t* positions, int32_t n,
                          const float* keys, const float* values) {
  KvCache& honest = *Of(cache).honest;
  const std::span<const int32_t> at(positions, static_cast<size_t>(n));
  const int32_t after = LengthWith(honest, layer, at);
  if (LiesOpenly(LieKind::kUpdateNothing, after >= 0 && after > honest.length(layer))) {
    return LOCKSTEP_KV_OK;
  }
  if (LiesOpenly(LieKind::kUpdateGreedy, after < 0)) return LOCKSTEP_KV_OK;
  const size_t elements = at.size() * static_cast<size_t>(honest.geometry().kv_stride());
  const lockstep_kv_status status = StatusOf([&] {
    honest.Update(layer, at, {keys, elements}, {values, elements});
  });
  if (LiesOpenly(LieKind::kUpdateRefused, status == LOCKSTEP_KV_OK)) return LOCKSTEP_KV_EXHAUSTED;
  return status;
}

lockstep_kv_status TryReserveSlot(void* cache, int32_t layer, const int32_t* positions, int32_t n,
                                  float** keys, float** values) {
  KvCache& honest = *Of(cache).honest;
  const std::span<const int32_t> at(positions, static_cast<size_t>(n));
  KvSlot slot;
  bool granted = false;
  lockstep_kv_status status = StatusOf([&] {
    const std::optional<KvSlot> answer = honest.TryReserveSlot(layer, at);
    granted = answer.has_value();
    if (granted) slot = *answer;
  });
  if (status == LOCKSTEP_KV_OK && !granted) status = LOCKSTEP_KV_REFUSED;
  if (LiesOpenly(LieKind::kReserveNever, granted)) return LOCKSTEP_KV_REFUSED;
  if (LiesOpenly(LieKind::kReserveStatus, true)) return kNonsense;
  if (LiesOpenly(LieKind::kReserveGreedy, !granted)) {
    const size_t elements = at.size() * static_cast<size_t>(honest.geometry().kv_stride());
    Of(cache).greedy.resize(2 * elements + 1);
    *keys = Of(cache).greedy.data();
    *values = *keys + elements;
    return LOCKSTEP_KV_OK;
  }
  if (!granted) return status;
  *keys = slot.keys.data();
  *values = slot.values.data();
  if (LiesOpenly(LieKind::kReserveNull, true)) *keys = nullptr;
  if (LiesOpenly(LieKind::kReserveNullValues, true)) *values = nullptr;
  if (Lies(LieKind::kReserveAliased)) *values = *keys;
  if (g_state.kind == LieKind::kHidesSlots) g_state.told = true;
  return LOCKSTEP_KV_OK;
}

lockstep_kv_status CommitSlot(void* cache, int32_t layer, const int32_t* positions, int32_t n) {
  KvCache& honest = *Of(cache).honest;
  const std::span<const int32_t> at(positions, static_cast<size_t>(n));
  if (LiesOpenly(LieKind::kCommitStatus, true)) return kNonsense;
  if (Lies(LieKind::kCommitNothing)) return LOCKSTEP_KV_OK;
  const lockstep_kv_status status = StatusOf([&] { honest.CommitSlot(layer, at); });
  if (LiesOpenly(LieKind::kCommitGreedy, status != LOCKSTEP_KV_OK)) return LOCKSTEP_KV_OK;
  return status;
}

lockstep_kv_status Rollback(void* cache, int32_t length) {
  KvCache& honest = *Of(cache).honest;
  const bool shrinks = length >= 0 && length < honest.current_length();
  if (LiesOpenly(LieKind::kRollbackNothing, shrinks)) return LOCKSTEP_KV_OK;
  const lockstep_kv_status status = StatusOf([&] { honest.Rollback(length); });
  if (LiesOpenly(LieKind::kRollbackGreedy, status != LOCKSTEP_KV_OK)) return LOCKSTEP_KV_OK;
  return status;
}

void Clear(void* cache) {
  KvCache& honest = *Of(cache).honest;
  if (!LiesOpenly(LieKind::kClearNothing, honest.current_length() > 0)) honest.Clear();
}

void* Fork(void* cache) {
  if (LiesOpenly(LieKind::kForkNull, true)) return nullptr;
  if (Lies(LieKind::kForkItself)) {
    ++Of(cache).handles;
    return cache;
  }
  auto fork = std::make_unique<Cache>();
  fork->honest = Of(cache).honest->Fork();
  return fork.release();
}

}  // namespace

std::string_view LieName(LieKind kind) { return kNames.at(static_cast<size_t>(kind)); }

bool IsLieOfTable(LieKind kind) { return kind >= LieKind::kOtherVersion; }

HostilePlugin::HostilePlugin(LieKind kind, int32_t after)
    : table_{.abi_version = LOCKSTEP_KV_ABI_VERSION,
             .features = LOCKSTEP_KV_GRANTS_SLOTS | LOCKSTEP_KV_FORKS,
             .name = "hostile",
             .block_size = 0,
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
             .save = nullptr,
             .restore = nullptr,
             .used_blocks = nullptr} {
  g_state = {kind, after, false};
  if (kind == LieKind::kHidesSlots) table_.features = LOCKSTEP_KV_FORKS;
  if (kind == LieKind::kOtherVersion) ++table_.abi_version;
  if (kind == LieKind::kNoName) table_.name = nullptr;
  if (kind == LieKind::kNegativeBlock) table_.block_size = -1 - after;
  if (kind == LieKind::kNoMultiple) table_.head_dim_multiple = -after;
  if (kind == LieKind::kHugeMultiple) table_.head_dim_multiple = INT32_MAX - after;
  if (kind != LieKind::kNoFunction) return;
  switch (after % 4) {
    case 0:
      table_.create = nullptr;
      break;
    case 1:
      table_.read_row = nullptr;
      break;
    case 2:
      table_.commit_slot = nullptr;
      break;
    default:
      table_.fork = nullptr;
      break;
  }
}

HostilePlugin::~HostilePlugin() { g_state = {}; }

bool HostilePlugin::told() const { return g_state.told; }

}  // namespace lockstep::fuzz
