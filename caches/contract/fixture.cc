#include "caches/contract/fixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <ostream>

#include "caches/random.h"

namespace lockstep::contract {
namespace {

constexpr int64_t kGroup = 32;  // elements that share a scale in the block formats

Random RowRandom(int32_t layer, int32_t position, int version, Half half) {
  Random random(0x6b76);
  for (int32_t part :
       {layer, position, static_cast<int32_t>(version), static_cast<int32_t>(half)}) {
    random = random.Split(static_cast<uint64_t>(part));
  }
  return random;
}

// The first difference between two sequences of floats, by bits.
std::string FirstDifference(std::span<const float> got, std::span<const float> want,
                            int64_t kv_stride) {
  if (got.size() != want.size()) {
    return fmt::format("{} elements instead of {}", got.size(), want.size());
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(want[i])) continue;
    const auto stride = static_cast<size_t>(kv_stride);
    return fmt::format("position {} element {}: {} ({:#010x}) instead of {} ({:#010x})", i / stride,
                       i % stride, got[i], std::bit_cast<uint32_t>(got[i]), want[i],
                       std::bit_cast<uint32_t>(want[i]));
  }
  return "";
}

}  // namespace

std::vector<float> Row(const KvGeometry& geometry, int32_t layer, int32_t position, int version,
                       Half half) {
  Random random = RowRandom(layer, position, version, half);
  std::vector<float> row(static_cast<size_t>(geometry.kv_stride()));  // [kv_stride]
  for (size_t first = 0; first < row.size(); first += kGroup) {
    const int32_t k = random.Between(-6, 6);
    const float magnitude = std::ldexp(127.0f, k);
    const auto pattern = static_cast<uint32_t>(random.Next()) | 1u;
    for (size_t i = first; i < std::min(row.size(), first + kGroup); ++i) {
      if ((pattern >> (i - first) & 1u) != 0) row[i] = -magnitude;
    }
  }
  return row;
}

std::vector<float> Rows(const KvGeometry& geometry, int32_t layer,
                        std::span<const int32_t> positions, int version, Half half) {
  std::vector<float> rows;  // [n, kv_stride]
  for (int32_t position : positions) {
    const std::vector<float> row = Row(geometry, layer, position, version, half);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

std::vector<int32_t> Range(int32_t first, int32_t end) {
  std::vector<int32_t> positions(static_cast<size_t>(end - first));
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

void Model::Write(int32_t layer, std::span<const int32_t> positions, int version) {
  Layer& state = layers_[static_cast<size_t>(layer)];
  for (int32_t position : positions) {
    state.versions[position] = version;
    state.length = std::max(state.length, position + 1);
  }
}

void Model::Rollback(int32_t length) {
  for (Layer& layer : layers_) {
    layer.length = std::min(layer.length, length);
    layer.versions.erase(layer.versions.lower_bound(length), layer.versions.end());
  }
}

KvRows Model::rows(int32_t layer) const {
  const Layer& state = layers_[static_cast<size_t>(layer)];
  const auto stride = static_cast<size_t>(geometry_.kv_stride());
  KvRows rows{.keys = std::vector<float>(static_cast<size_t>(state.length) * stride),
              .values = std::vector<float>(static_cast<size_t>(state.length) * stride)};
  for (const auto& [position, version] : state.versions) {
    const auto offset = static_cast<std::ptrdiff_t>(static_cast<size_t>(position) * stride);
    std::ranges::copy(Row(geometry_, layer, position, version, Half::kKeys),
                      rows.keys.begin() + offset);
    std::ranges::copy(Row(geometry_, layer, position, version, Half::kValues),
                      rows.values.begin() + offset);
  }
  return rows;
}

void Update(KvCache* cache, int32_t layer, const std::vector<int32_t>& positions, int version) {
  cache->Update(layer, positions, Rows(cache->geometry(), layer, positions, version, Half::kKeys),
                Rows(cache->geometry(), layer, positions, version, Half::kValues));
}

void Fill(const KvCache& cache, const KvSlot& slot, int32_t layer,
          const std::vector<int32_t>& positions, int version) {
  const auto keys = Rows(cache.geometry(), layer, positions, version, Half::kKeys);
  const auto values = Rows(cache.geometry(), layer, positions, version, Half::kValues);
  ASSERT_EQ(slot.keys.size(), keys.size());
  ASSERT_EQ(slot.values.size(), values.size());
  std::ranges::copy(keys, slot.keys.begin());
  std::ranges::copy(values, slot.values.begin());
}

bool WriteDirect(KvCache* cache, int32_t layer, const std::vector<int32_t>& positions,
                 int version) {
  const auto slot = cache->TryReserveSlot(layer, positions);
  if (!slot) return false;
  Fill(*cache, *slot, layer, positions, version);
  cache->CommitSlot(layer, positions);
  return true;
}

void UpdateAll(KvCache* cache, const std::vector<int32_t>& positions, int version) {
  for (int32_t layer = 0; layer < cache->geometry().num_layers; ++layer) {
    Update(cache, layer, positions, version);
  }
}

KvRows Read(const KvCache& cache, int32_t layer) {
  KvView view;
  cache.View(layer, &view);
  return DecodeRows(view, cache.geometry().kv_stride());
}

std::string Difference(const KvCache& cache, const Model& model) {
  for (int32_t layer = 0; layer < cache.geometry().num_layers; ++layer) {
    if (cache.length(layer) != model.length(layer)) {
      return fmt::format("layer {}: length {} instead of {}", layer, cache.length(layer),
                         model.length(layer));
    }
    const KvRows got = Read(cache, layer), want = model.rows(layer);
    const int64_t stride = cache.geometry().kv_stride();
    const std::string keys = FirstDifference(got.keys, want.keys, stride);
    if (!keys.empty()) return fmt::format("layer {} K {}", layer, keys);
    const std::string values = FirstDifference(got.values, want.values, stride);
    if (!values.empty()) return fmt::format("layer {} V {}", layer, values);
  }
  return "";
}

Snapshot Observe(const KvCache& cache) {
  Snapshot snapshot{.current_length = cache.current_length(),
                    .hash = DigestOfCache(cache),
                    .storage = cache.StorageDigest(),
                    .blocks = BlockCountsOf(cache)};
  for (int32_t layer = 0; layer < cache.geometry().num_layers; ++layer) {
    snapshot.lengths.push_back(cache.length(layer));
    const KvRows rows = Read(cache, layer);
    snapshot.row_bits.push_back(Bits(rows.keys));
    const auto values = Bits(rows.values);
    snapshot.row_bits.back().insert(snapshot.row_bits.back().end(), values.begin(), values.end());
    auto& digests = snapshot.query_digests.emplace_back();
    if (!cache.view_depends_on_query()) continue;
    for (int32_t position = 0; position < cache.length(layer); ++position) {
      KvView view;
      cache.ViewForQuery(layer, position, &view);
      const KvRows seen = DecodeRows(view, cache.geometry().kv_stride());
      digests.push_back(DigestOfFloats(seen.keys));
      digests.push_back(DigestOfFloats(seen.values));
    }
  }
  return snapshot;
}

void PrintTo(const Snapshot& snapshot, std::ostream* out) {
  *out << fmt::format("lengths {} (current {}), hash {}, storage {}",
                      fmt::join(snapshot.lengths, " "), snapshot.current_length,
                      snapshot.hash.Hex(), snapshot.storage.Hex());
  if (snapshot.blocks) {
    *out << fmt::format(", {} free, {} used, references {}", snapshot.blocks->free_blocks,
                        snapshot.blocks->used_blocks, fmt::join(snapshot.blocks->references, " "));
  }
}

std::vector<uint32_t> Bits(std::span<const float> values) {
  std::vector<uint32_t> bits;
  for (float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

namespace {

// Their tests are in ring_test.cc: most others write more rows than a step of theirs may have.
bool Forgets(const CacheSpec& spec) { return spec.undo_rows > 0; }

template <typename Predicate>
std::vector<CacheSpec> Where(Predicate predicate) {
  std::vector<CacheSpec> caches;
  for (const CacheSpec& spec : AllCaches()) {
    if (!Forgets(spec)) caches.push_back(spec);
  }
  // Two that have room for all rows of these tests: rings that never come round.
  for (const char* rows : {"", "f16+bf16/"}) {
    caches.push_back(ParseCacheSpec(
        fmt::format("ring/{}w{}+{}", rows, kGeometry.max_length, kGeometry.max_length)));
  }
  std::erase_if(caches, [&](const CacheSpec& spec) { return !std::invoke(predicate, spec); });
  return caches;
}

}  // namespace

std::vector<CacheSpec> EveryCache() {
  return Where([](const CacheSpec&) { return true; });
}
std::vector<CacheSpec> SlotCaches() { return Where(&CacheSpec::grants_host_slots); }
std::vector<CacheSpec> SlotlessCaches() {
  return Where([](const CacheSpec& spec) { return !spec.grants_host_slots; });
}
std::vector<CacheSpec> BlockCaches() {
  return Where([](const CacheSpec& spec) { return spec.block_size > 0; });
}
std::vector<CacheSpec> WindowCaches() {
  return Where([](const CacheSpec& spec) { return spec.window > 0; });
}
std::vector<CacheSpec> QuantizedCaches() {
  return Where([](const CacheSpec& spec) {
    return spec.key_type != RowType::kF32 || spec.value_type != RowType::kF32;
  });
}

std::string TestName(const testing::TestParamInfo<CacheSpec>& info) {
  std::string name = info.param.name;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

}  // namespace lockstep::contract

namespace lockstep {
void PrintTo(const CacheSpec& spec, std::ostream* out) { *out << spec.name; }
}  // namespace lockstep
