#include "caches/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <array>
#include <bit>
#include <cstring>
#include <new>

#include "caches/check.h"

namespace lockstep {
namespace {

Digest FromXxh(XXH128_hash_t hash) { return {hash.high64, hash.low64}; }

}  // namespace

static_assert(std::endian::native == std::endian::little,
              "digests hash host memory as little-endian; a big-endian port must swap here");

struct DigestBuilder::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    LS_CHECK(xxh != nullptr, "out of memory for a hash state");
    XXH3_128bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

std::string Digest::Hex() const { return fmt::format("{:016x}{:016x}", high, low); }

DigestBuilder::DigestBuilder() : state_(std::make_unique<State>()) {}
DigestBuilder::~DigestBuilder() = default;
DigestBuilder::DigestBuilder(DigestBuilder&&) noexcept = default;
DigestBuilder& DigestBuilder::operator=(DigestBuilder&&) noexcept = default;

void DigestBuilder::AddBytes(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

void DigestBuilder::AddText(std::string_view text) {
  AddU64(text.size());
  AddBytes(std::as_bytes(std::span(text)));
}

void DigestBuilder::AddU32(uint32_t value) { AddBytes(std::as_bytes(std::span(&value, 1))); }

void DigestBuilder::AddU64(uint64_t value) { AddBytes(std::as_bytes(std::span(&value, 1))); }

void DigestBuilder::AddFloats(std::span<const float> values) {
  std::array<uint32_t, 256> chunk;
  while (!values.empty()) {
    const size_t n = std::min(values.size(), chunk.size());
    for (size_t i = 0; i < n; ++i) chunk[i] = CanonicalBits(values[i]);
    AddBytes(std::as_bytes(std::span(chunk).first(n)));
    values = values.subspan(n);
  }
}

Digest DigestBuilder::Finish() const { return FromXxh(XXH3_128bits_digest(state_->xxh)); }

Digest DigestOfFloats(std::span<const float> values) {
  DigestBuilder builder;
  builder.AddFloats(values);
  return builder.Finish();
}

Digest DigestOfBytes(std::span<const std::byte> bytes) {
  return FromXxh(XXH3_128bits(bytes.data(), bytes.size()));
}

uint32_t CanonicalBits(float value) {
  return value == value ? std::bit_cast<uint32_t>(value) : 0x7fc00000u;
}

}  // namespace lockstep
