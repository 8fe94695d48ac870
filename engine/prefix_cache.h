// Rows that were computed already, for texts that begin the same: what a PrefixIndex needs to know
// of an engine.
//
// Rows are the same bits whatever computed them: kernels, threads, chunks, write paths and
// neighbours in a batch are no part of the key (engine/ARITHMETIC.md). What changes a bit is [P8].
#ifndef LOCKSTEP_ENGINE_PREFIX_CACHE_H_
#define LOCKSTEP_ENGINE_PREFIX_CACHE_H_

#include <cstdint>
#include <span>

#include "caches/digest.h"
#include "caches/kv_cache.h"
#include "caches/prefix_index.h"
#include "engine/adapter.h"
#include "engine/transformer.h"

namespace lockstep {

// Of the arithmetic's version, the model's file, the cache's name and row shape, and the adapters
// that are applied, in their order, with their scales.
Digest PrefixKey(const Digest& model_file, std::span<const AppliedAdapter> adapters,
                 const KvCache& cache);

class PrefixCache {
 public:
  // Borrows the index; several models may share one. Reads the model's whole file once.
  // Throws std::invalid_argument for a transformer with a hook: nobody knows what that does.
  PrefixCache(const Transformer& transformer, PrefixIndex& index);

  // PrefixIndex::Attach and Register for token ids that are fed, or were fed, under `adapters`, all
  // of them; they throw what these throw.
  int32_t Attach(std::span<const int32_t> tokens, std::span<const AppliedAdapter> adapters,
                 KvCache* cache);
  int32_t Register(std::span<const int32_t> tokens, std::span<const AppliedAdapter> adapters,
                   const KvCache& cache);

  const PrefixIndex& index() const { return index_; }

 private:
  Digest model_file_;
  PrefixIndex& index_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_PREFIX_CACHE_H_
