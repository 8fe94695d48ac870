// Random texts that begin the same, on one pool with a prefix index: what was attached, what was
// computed behind it, and everything that shares blocks with it equals a cold computation, token by
// token and alone, bit for bit (caches/CONTRACT.md, "Prefixes").
//
// Pools are small, so that blocks are given up. Sequences fork, roll back into what is shared, end,
// fail half-way and change their adapters; two models share the pool.
#ifndef LOCKSTEP_PROPERTIES_PREFIX_CAMPAIGN_H_
#define LOCKSTEP_PROPERTIES_PREFIX_CAMPAIGN_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "caches/prefix_index.h"
#include "engine/prefix_cache.h"

namespace lockstep {

struct PrefixCampaignOptions {
  uint64_t seed = 1;
  int32_t operations = 60;
  std::string preset = "tiny-mha-4x4-f32";
  int32_t block_size = 4;
  int32_t blocks = 24;
  int32_t threads = 1;
  int32_t hash_bits = 128;  // of the index
};

// What a campaign has to have done.
enum class PrefixClass : uint8_t {
  kHit,
  kHitUnderAdapters,
  kHitAfterEviction,  // of anything
  kCancelled,
  kCancelledBehindAHit,
  kExhausted,
  kRolledBackIntoShared,  // and a block that the index holds stays behind
  kAdaptersSwitched,
  kForked,
  kOtherModelSameTokens,  // registered by one, asked by the other
};
inline constexpr size_t kPrefixClasses = 10;

struct PrefixFinding {
  int32_t op = 0;
  std::string clause;
  std::string what;
};

struct PrefixRun {
  std::optional<PrefixFinding> finding;
  std::array<int64_t, kPrefixClasses> counts = {};
  PrefixCounters counters;
  Digest digest;  // of all logits and rows, in order
};

// What the campaign drives, so that wrong ones can be put in its place.
class PrefixDriver {
 public:
  explicit PrefixDriver(PrefixCache& prefixes) : prefixes_(prefixes) {}
  virtual ~PrefixDriver() = default;
  PrefixDriver(const PrefixDriver&) = delete;
  PrefixDriver& operator=(const PrefixDriver&) = delete;

  virtual int32_t Attach(std::span<const int32_t> tokens, std::span<const AppliedAdapter> adapters,
                         KvCache* cache) {
    return prefixes_.Attach(tokens, adapters, cache);
  }
  virtual void Register(std::span<const int32_t> tokens, std::span<const AppliedAdapter> adapters,
                        const KvCache& cache) {
    prefixes_.Register(tokens, adapters, cache);
  }

 protected:
  PrefixCache& prefixes() { return prefixes_; }

 private:
  PrefixCache& prefixes_;
};

// Empty: the right one.
using MakePrefixDriver = std::function<std::unique_ptr<PrefixDriver>(PrefixCache&)>;

// Stops at the first finding. Not for several threads at once.
PrefixRun RunPrefixCampaign(const PrefixCampaignOptions& options,
                            const MakePrefixDriver& make_driver = {});

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_PREFIX_CAMPAIGN_H_
