// A plug-in over a cache of the registry whose rows lie on a device, so that the conformance kit
// runs over it: the one that LOCKSTEP_DEVICE_PLUGIN names when its table is asked for. Its code is
// the program's that loads it, which exports it.
//
// The rows of the ABI are F32, those of such a cache mostly F16. What F16 leaves of each row that
// was written is kept here, by layer and position, and joined with the row of the cache where that
// is the same row rounded. Where the cache shows another row the caller gets that one: lengths,
// gaps and rows that were overwritten, rolled back or restored are the cache's alone.
//
// With LOCKSTEP_DEVICE_PLUGIN_FAULT it has one fault: "keep" rolls back to a row more, "gap" shows
// rows from before a rollback in a gap, "stale" saves without the last row.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "caches/cache_file.h"
#include "caches/codec.h"
#include "caches/error.h"
#include "caches/plugin.h"
#include "caches/registry.h"
#include "properties/test_plugin.h"

namespace lockstep {
namespace {

std::string kind, fault;

// K before V, [2, kv_stride].
using ExactRow = std::vector<float>;
using ExactRows = std::map<std::pair<int32_t, int32_t>, ExactRow>;  // by layer and position

// With room to read in, because reading may not allocate.
struct Sequence {
  explicit Sequence(std::unique_ptr<KvCache> of)
      : cache(std::move(of)), stored(2 * static_cast<size_t>(cache->geometry().kv_stride())) {
    view.segments.reserve(4);
  }

  std::unique_ptr<KvCache> cache;
  ExactRows exact;
  mutable KvView view;
  mutable std::vector<float> stored;  // a row as the cache has it
};

Sequence& At(void* self) { return *static_cast<Sequence*>(self); }
const Sequence& At(const void* self) { return *static_cast<const Sequence*>(self); }

std::span<const int32_t> Positions(const int32_t* positions, int32_t n) {
  return {positions, static_cast<size_t>(n)};
}

void* Create(const lockstep_kv_geometry* g) {
  return PointerOf([&]() -> void* {
    const KvGeometry geometry = {g->num_layers, g->num_kv_heads, g->head_dim, g->max_length};
    return new Sequence(ParseCacheSpec(kind).make({.geometry = geometry, .sequences = 1}));
  });
}

void Destroy(void* self) { delete static_cast<Sequence*>(self); }

int32_t Length(const void* self, int32_t layer) {
  const KvCache& cache = *At(self).cache;
  return layer >= 0 && layer < cache.geometry().num_layers ? cache.length(layer) : -1;
}

// Whether these floats, stored in that type, are what the cache has.
bool Rounded(RowType type, float exact, float stored) {
  if (type == RowType::kF16) exact = F32FromF16(F16FromF32(exact));
  return std::memcmp(&exact, &stored, sizeof exact) == 0 || (exact != exact && stored != stored);
}

void Read(const Sequence& sequence, int32_t layer, int32_t position) {
  const KvCache& cache = *sequence.cache;
  cache.ViewForQuery(layer, position, &sequence.view);
  const auto stride = static_cast<size_t>(cache.geometry().kv_stride());
  const auto row = std::span(sequence.stored);
  for (const KvSegment& segment : sequence.view.segments) {
    if (position >= segment.first + segment.count) continue;
    const auto decode = [&](RowType type, const std::byte* rows, std::span<float> to) {
      const int64_t bytes = RowBytes(type, static_cast<int64_t>(stride));
      const std::byte* from = rows + (position - segment.first) * bytes;
      DecodeRow(type, {from, static_cast<size_t>(bytes)}, to);
    };
    decode(segment.key_type, segment.keys, row.first(stride));
    decode(segment.value_type, segment.values, row.subspan(stride));
    break;
  }
  const auto found = sequence.exact.find({layer, position});
  if (found == sequence.exact.end()) return;
  const RowType type = cache.key_type();
  const ExactRow& exact = found->second;
  const bool same =
      std::ranges::equal(exact, row, [&](float a, float b) { return Rounded(type, a, b); });
  if (same || fault == "gap") std::ranges::copy(exact, row.begin());
}

lockstep_kv_status ReadRow(const void* self, int32_t layer, int32_t position, float* keys,
                           float* values) {
  return StatusOf([&] {
    Read(At(self), layer, position);
    const std::vector<float>& row = At(self).stored;
    std::memcpy(keys, row.data(), row.size() / 2 * sizeof(float));
    std::memcpy(values, row.data() + row.size() / 2, row.size() / 2 * sizeof(float));
  });
}

lockstep_kv_status Update(void* self, int32_t layer, const int32_t* positions, int32_t n,
                          const float* keys, const float* values) {
  return StatusOf([&] {
    Sequence& sequence = At(self);
    const auto stride = static_cast<size_t>(sequence.cache->geometry().kv_stride());
    const size_t elements = static_cast<size_t>(n) * stride;
    ExactRows rows;  // before anything is written
    for (int32_t i = 0; i < n; ++i) {
      const size_t at = static_cast<size_t>(i) * stride;
      ExactRow row(keys + at, keys + at + stride);
      row.insert(row.end(), values + at, values + at + stride);
      rows[{layer, positions[i]}] = std::move(row);
    }
    sequence.cache->Update(layer, Positions(positions, n), {keys, elements}, {values, elements});
    rows.merge(sequence.exact);  // the new ones stay
    sequence.exact.swap(rows);
  });
}

lockstep_kv_status TryReserveSlot(void* self, int32_t layer, const int32_t* positions, int32_t n,
                                  float**, float**) {
  const lockstep_kv_status status =
      StatusOf([&] { At(self).cache->TryReserveSlot(layer, Positions(positions, n)); });
  return status == LOCKSTEP_KV_OK ? LOCKSTEP_KV_REFUSED : status;  // no rows of F32 on the host
}

lockstep_kv_status CommitSlot(void* self, int32_t layer, const int32_t* positions, int32_t n) {
  return StatusOf([&] { At(self).cache->CommitSlot(layer, Positions(positions, n)); });
}

lockstep_kv_status Rollback(void* self, int32_t length) {
  return StatusOf([&] {
    KvCache& cache = *At(self).cache;
    const bool keeps = fault == "keep" && length > 0 && length < cache.current_length();
    cache.Rollback(keeps ? length + 1 : length);
  });
}

void Clear(void* self) { At(self).cache->Clear(); }

void* Fork(void* self) {
  return PointerOf([&] {
    auto fork = std::make_unique<Sequence>(At(self).cache->Fork());
    fork->exact = At(self).exact;
    return fork.release();
  });
}

// The cache's file, the exact rows, and a digest of both.
int64_t Save(const void* self, void* bytes, int64_t capacity) {
  try {
    const Sequence& sequence = At(self);
    StateWriter writer;
    if (fault == "stale") {
      const std::unique_ptr<KvCache> fork = sequence.cache->Fork();
      fork->Rollback(std::max(0, fork->current_length() - 1));
      fork->SaveState(&writer);
    } else {
      sequence.cache->SaveState(&writer);
    }
    const std::vector<std::byte> file = writer.Finish();
    std::vector<std::byte> all;
    const auto add = [&](const void* from, size_t size) {
      const auto* first = static_cast<const std::byte*>(from);
      all.insert(all.end(), first, first + size);
    };
    const uint64_t sizes[] = {file.size(), sequence.exact.size()};
    add(sizes, sizeof sizes);
    add(file.data(), file.size());
    for (const auto& [place, row] : sequence.exact) {
      add(&place.first, sizeof place.first);
      add(&place.second, sizeof place.second);
      add(row.data(), row.size() * sizeof(float));
    }
    DigestBuilder digest;
    digest.AddBytes(all);
    const Digest sum = digest.Finish();
    add(&sum.high, sizeof sum.high);
    add(&sum.low, sizeof sum.low);
    if (capacity >= static_cast<int64_t>(all.size())) std::memcpy(bytes, all.data(), all.size());
    return static_cast<int64_t>(all.size());
  } catch (const std::exception&) {
    return -1;
  }
}

ExactRows ExactOf(std::span<const std::byte> bytes, uint64_t count, size_t elements) {
  ExactRows rows;
  const size_t row_bytes = 2 * sizeof(int32_t) + elements * sizeof(float);
  if (bytes.size() % row_bytes != 0 || bytes.size() / row_bytes != count) {
    throw std::invalid_argument("another geometry");
  }
  for (; !bytes.empty(); bytes = bytes.subspan(row_bytes)) {
    int32_t place[2];
    std::memcpy(place, bytes.data(), sizeof place);
    ExactRow row(elements);
    std::memcpy(row.data(), bytes.data() + sizeof place, elements * sizeof(float));
    rows[{place[0], place[1]}] = std::move(row);
  }
  return rows;
}

lockstep_kv_status Restore(void* self, const void* bytes, int64_t size) {
  return StatusOf([&] {
    Sequence& sequence = At(self);
    std::span<const std::byte> all(static_cast<const std::byte*>(bytes), static_cast<size_t>(size));
    constexpr size_t kDigest = 2 * sizeof(uint64_t);
    uint64_t sizes[2], sum[2];
    if (all.size() < sizeof sizes + kDigest) throw std::invalid_argument("too short");
    std::memcpy(sum, all.data() + all.size() - kDigest, kDigest);
    all = all.first(all.size() - kDigest);
    DigestBuilder digest;
    digest.AddBytes(all);
    if (digest.Finish() != Digest{sum[0], sum[1]}) throw std::invalid_argument("changed");
    std::memcpy(sizes, all.data(), sizeof sizes);
    all = all.subspan(sizeof sizes);
    if (sizes[0] > all.size()) throw std::invalid_argument("too short");
    ExactRows exact = ExactOf(all.subspan(sizes[0]), sizes[1], sequence.stored.size());
    StateReader reader(all.first(sizes[0]), "save");
    sequence.cache->LoadState(&reader);
    sequence.exact.swap(exact);
  });
}

}  // namespace
}  // namespace lockstep

extern "C" const lockstep_kv_plugin* lockstep_kv_plugin_v1() {
  using namespace lockstep;
  static lockstep_kv_plugin table;
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  kind = variable("LOCKSTEP_DEVICE_PLUGIN");
  fault = variable("LOCKSTEP_DEVICE_PLUGIN_FAULT");
  table = {.abi_version = LOCKSTEP_KV_ABI_VERSION,
           .features = LOCKSTEP_KV_FORKS | LOCKSTEP_KV_SAVES,
           .name = "device",
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
           .save = Save,
           .restore = Restore,
           .used_blocks = nullptr};
  return &table;
}
