// Saving a cache to a file and restoring it, all or nothing.
//
// The file, version 2; integers are little-endian:
//
//   magic     8 bytes "lskvfile"
//   version   u32     2
//   size      u64     bytes of the whole file, checksum included
//   kind      u32 length, then text: "simple", "paged", "quantized", "cuda", "cuda-quantized",
//             "hybrid"
//   geometry  4 x u32 num_layers, num_kv_heads, head_dim, max_length
//   types     2 x u32 RowType of keys, of values
//   window    2 x u32 positions kept exactly, 0 for none; RowType of these rows
//   lengths   u32 x num_layers
//   content           what the kind stores; rows in order of position, as their RowType stores them
//   checksum  16 bytes: XXH3-128 of everything before it, `high` then `low`, each u64
//
// Nothing about where rows lie in memory is in the file: a paged cache restores into other blocks.
// A file is restored into a cache of the same kind, geometry (max_length included), types and
// window; anything else, and any damage, is an Error that names the file, the field and the remedy,
// and leaves the cache as it was, byte for byte.
#ifndef LOCKSTEP_CACHES_CACHE_FILE_H_
#define LOCKSTEP_CACHES_CACHE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caches/error.h"
#include "caches/kv_cache.h"

namespace lockstep {

// Writes the cache to `path`. The file appears under that name only when it is complete (written
// beside it as a temporary file, flushed, then renamed), so a failed save loses nothing; the
// temporary file is removed. Error when the file cannot be written.
void SaveCache(const KvCache& cache, const std::string& path);

// Replaces the cache's content by the file's, and cancels open reservations. Error as above;
// PoolExhausted when a paged cache's pool has too few blocks. Then nothing has changed.
void RestoreCache(KvCache* cache, const std::string& path);

// The remedy of every error that says a file is damaged.
inline constexpr std::string_view kDamagedRemedy = "the file is damaged: save the cache again";

// What must agree between a file and the cache it is restored into.
struct StateHeader {
  std::string_view kind;  // without parameters that only concern memory, as a block size does
  KvGeometry geometry;
  RowType key_type = RowType::kF32;
  RowType value_type = RowType::kF32;
  int32_t window = 0;  // positions
  RowType window_type = RowType::kF32;
};

// For KvCache::SaveState: header, lengths, then the content. Collects the file in memory.
class StateWriter {
 public:
  void WriteHeader(const StateHeader& header);
  void WriteLengths(std::span<const int32_t> lengths);  // [num_layers]
  void WriteU32(uint32_t value);
  void WriteBytes(std::span<const std::byte> bytes);

  // The bytes of the whole file, its size and checksum filled in. Nothing may follow.
  // REQUIRES: WriteHeader was called.
  std::vector<std::byte> Finish();

 private:
  std::vector<std::byte> file_;
};

// For KvCache::LoadState: the same calls in the same order. The checksum was verified before, so
// what can still fail is a mismatch, or a file that somebody wrote to be malicious: a LoadState
// checks header, lengths and ExpectRemaining before it changes anything, and after that calls
// nothing but ReadBytes and ReadU32, which then cannot fail.
class StateReader {
 public:
  // The bytes of the whole file; they stay the caller's. Error unless magic, version, size and
  // checksum are right.
  StateReader(std::span<const std::byte> file, std::string path);

  void ExpectHeader(const StateHeader& header);
  std::vector<int32_t> ReadLengths(const KvGeometry& geometry);  // each in [0, max_length]
  void ExpectRemaining(int64_t bytes);  // that so many bytes of content are left, no more, no fewer
  uint32_t ReadU32(std::string_view field);
  void ReadBytes(std::span<std::byte> bytes);

  // Throws an Error about a field of this file.
  [[noreturn]] void Fail(std::string_view field, std::string what, std::string remedy) const;

 private:
  std::span<const std::byte> rest_;  // not yet read, checksum excluded
  std::string path_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_CACHE_FILE_H_
