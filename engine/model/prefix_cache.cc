#include "engine/prefix_cache.h"

#include <bit>
#include <stdexcept>

#include "engine/math.h"

namespace lockstep {
namespace {

void AddDigest(const Digest& digest, DigestBuilder* builder) {
  builder->AddU64(digest.high);
  builder->AddU64(digest.low);
}

}  // namespace

Digest PrefixKey(const Digest& model_file, std::span<const AppliedAdapter> adapters,
                 const KvCache& cache) {
  DigestBuilder builder;
  builder.AddText("lockstep prefix");
  builder.AddU32(kArithmeticVersion);
  AddDigest(model_file, &builder);
  builder.AddText(cache.name());
  const KvGeometry& geometry = cache.geometry();
  for (const int32_t size : {geometry.num_layers, geometry.num_kv_heads, geometry.head_dim}) {
    builder.AddU32(static_cast<uint32_t>(size));
  }
  // The last part, so that it needs no length.
  for (const AppliedAdapter& applied : adapters) {
    if (applied.scale == 0.0f) continue;  // it is not applied
    AddDigest(applied.adapter->digest(), &builder);
    builder.AddU32(std::bit_cast<uint32_t>(applied.scale));
  }
  return builder.Finish();
}

PrefixCache::PrefixCache(const Transformer& transformer, PrefixIndex& index)
    : model_file_(DigestOfBytes(transformer.model().file().bytes())), index_(index) {
  if (!transformer.has_hook()) return;
  throw std::invalid_argument("prefix cache: a hook changes rows in ways that no key can name");
}

int32_t PrefixCache::Attach(std::span<const int32_t> tokens,
                            std::span<const AppliedAdapter> adapters, KvCache* cache) {
  return index_.Attach(PrefixKey(model_file_, adapters, *cache), tokens, cache);
}

int32_t PrefixCache::Register(std::span<const int32_t> tokens,
                              std::span<const AppliedAdapter> adapters, const KvCache& cache) {
  return index_.Register(PrefixKey(model_file_, adapters, cache), tokens, cache);
}

}  // namespace lockstep
