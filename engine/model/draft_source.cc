#include "engine/draft_source.h"

#include <algorithm>
#include <numeric>

#include "engine/generate.h"

namespace lockstep {

Drafts LookupDraftSource::Propose(std::span<const int32_t> text, int32_t count,
                                  Random* /*random*/) {
  Drafts drafts{.tokens = LookupDrafts(text, match_, count), .proposal = {}};
  for (const int32_t token : drafts.tokens) {
    drafts.proposal.push_back({{{token, kWeightOne}}, kWeightOne});
  }
  return drafts;
}

std::span<const float> ModelDraftSource::Feed(std::span<const int32_t> text) {
  const int32_t common = KeepCommonPrefix(cache_, held_, text);
  const auto fed = text.subspan(static_cast<size_t>(common));
  held_.assign(text.begin(), text.end());
  std::vector<int32_t> positions(fed.size());
  std::iota(positions.begin(), positions.end(), common);
  return transformer_.Forward(fed, positions, cache_);
}

Drafts ModelDraftSource::Propose(std::span<const int32_t> text, int32_t count, Random* random) {
  const int32_t limit = std::min(cache_.max_length(), transformer_.model().config().context_length);
  const auto room = limit - static_cast<int64_t>(text.size());
  Drafts drafts;
  std::vector<int32_t> known(text.begin(), text.end());
  while (static_cast<int64_t>(drafts.tokens.size()) < std::min<int64_t>(count, room)) {
    const Distribution& distribution = sampler_.Of(Feed(known), known);
    const int32_t token = Draw(distribution, random);
    drafts.proposal.push_back(distribution);
    drafts.tokens.push_back(token);
    known.push_back(token);
  }
  return drafts;
}

}  // namespace lockstep
