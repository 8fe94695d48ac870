// XXH3-128 digests: the one hash of lockstep (https://xxhash.com, XXH3 128-bit, seed 0).
//
// Digests of floats are canonical: the bits are hashed as little-endian binary32, and every NaN
// counts as 0x7fc00000, because NaN payloads are not specified (engine/ARITHMETIC.md).
#ifndef LOCKSTEP_CACHES_DIGEST_H_
#define LOCKSTEP_CACHES_DIGEST_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

struct Digest {
  uint64_t high = 0;
  uint64_t low = 0;

  // 32 lowercase hex digits, `high` first: the canonical order that xxhsum prints.
  std::string Hex() const;

  friend auto operator<=>(const Digest&, const Digest&) = default;
};

// Streaming. Feeding the same bytes in other pieces gives the same digest.
class DigestBuilder {
 public:
  DigestBuilder();
  ~DigestBuilder();
  DigestBuilder(DigestBuilder&&) noexcept;
  DigestBuilder& operator=(DigestBuilder&&) noexcept;

  void AddBytes(std::span<const std::byte> bytes);
  void AddText(std::string_view text);            // its length as U64, then its bytes
  void AddU32(uint32_t value);                    // little-endian
  void AddU64(uint64_t value);                    // little-endian
  void AddFloats(std::span<const float> values);  // canonical, see above

  Digest Finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Digest of canonical floats alone.
Digest DigestOfFloats(std::span<const float> values);
Digest DigestOfBytes(std::span<const std::byte> bytes);

// The bits that are hashed and compared: NaNs folded to 0x7fc00000.
uint32_t CanonicalBits(float value);

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_DIGEST_H_
