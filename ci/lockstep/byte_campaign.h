// A campaign over byte strings on one fuzz target, in any build: new ones from the seed, and the
// corpus changed. Inputs run in processes of their own, many in each, so that a crash or a hang is
// a finding like any other.
#ifndef LOCKSTEP_CI_LOCKSTEP_BYTE_CAMPAIGN_H_
#define LOCKSTEP_CI_LOCKSTEP_BYTE_CAMPAIGN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "caches/random.h"
#include "ci/lockstep/finding_keeper.h"
#include "ci/shard/shard.h"
#include "properties/fuzz.h"

namespace lockstep::cli {

using Bytes = std::vector<std::byte>;

// Byte strings from a seed, and from what is in a folder.
class ByteSource {
 public:
  ByteSource(uint64_t seed, std::vector<Bytes> corpus)
      : random_(seed), corpus_(std::move(corpus)) {}
  Bytes Next();

 private:
  void Change(Bytes* bytes);

  Random random_;
  std::vector<Bytes> corpus_;
};

// The files of `folder`/`target`, by name; none when there is no such folder. Throws Error for a
// file that cannot be read.
std::vector<Bytes> ReadCorpus(const std::string& folder, std::string_view target);

struct ByteCampaignOptions {
  std::string plant;
  uint64_t seed = 1;
  std::vector<Bytes> corpus;
  Shard shard = {};           // its part of the inputs
  int32_t input_ms = 10'000;  // that one may take; they add up, so a batch has no time of its own
};

class ByteCampaign {
 public:
  ByteCampaign(const FuzzTargetInfo& info, ByteCampaignOptions options);

  // Draws `count` inputs more and runs the shard's. A finding is given to `on_finding` with the
  // smallest text that shows it, which says whether to go on. `known` spares the shrinking of what
  // is known, and going on.
  void Run(int64_t count, const std::function<bool(const FuzzFinding&)>& known,
           const std::function<bool(const FuzzFinding&, const std::string&)>& on_finding);

  int64_t drawn() const { return drawn_; }
  const ShardResult& result() const { return result_; }  // what ran, without findings

 private:
  std::optional<FuzzFinding> RunAlone(const std::function<std::optional<FuzzFinding>()>& run) const;
  std::optional<FuzzFinding> JudgeText(const std::string& text) const;
  std::optional<FuzzFinding> JudgeAlone(const Bytes& input) const;
  bool Report(const Bytes& input, const FuzzFinding& finding,
              const std::function<bool(const FuzzFinding&)>& known,
              const std::function<bool(const FuzzFinding&, const std::string&)>& on_finding) const;

  std::unique_ptr<FuzzTarget> target_;
  ByteSource source_;
  Shard shard_;
  int32_t input_ms_;
  int64_t drawn_ = 0;
  ShardResult result_;
};

// Whether the target's planted fault is found within a few seconds' worth of inputs.
bool FindsCanary(const FuzzTargetInfo& info, uint64_t seed);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_BYTE_CAMPAIGN_H_
