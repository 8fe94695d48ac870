// Drafts: where they come from, and which of them stand.
#include <algorithm>

#include "caches/check.h"
#include "engine/sampler.h"

namespace lockstep {

AcceptanceRatio AcceptanceRatioOf(const Distribution& p, const Distribution& q, int32_t token) {
  const uint64_t proposed = q.WeightOf(token);
  LS_CHECK(proposed > 0, "draft {} has no weight in its proposal", token);
  const Uint128 of = Uint128{proposed} * p.total;
  return {std::min(Uint128{p.WeightOf(token)} * q.total, of), of};
}

std::vector<Uint128> ResidualOf(const Distribution& p, const Distribution& q) {
  std::vector<Uint128> residual;
  for (const Distribution::Entry& entry : p.entries) {
    const Uint128 mine = Uint128{entry.weight} * q.total;
    const Uint128 other = Uint128{q.WeightOf(entry.token)} * p.total;
    residual.push_back(mine > other ? mine - other : 0);
  }
  return residual;
}

Verdict JudgeDrafts(std::span<const Distribution> target, std::span<const Distribution> proposal,
                    std::span<const int32_t> drafts, Random* random) {
  LS_CHECK(target.size() == drafts.size() + 1 && proposal.size() == drafts.size(),
           "{} drafts, {} targets, {} proposals", drafts.size(), target.size(), proposal.size());
  for (size_t i = 0; i < drafts.size(); ++i) {
    const Distribution& p = target[i];
    const AcceptanceRatio acceptance = AcceptanceRatioOf(p, proposal[i], drafts[i]);
    if (UniformBelow(acceptance.of, random) < acceptance.standing) continue;
    // Rejected, so p is below q at the draft, and then above it somewhere.
    const std::vector<Uint128> residual = ResidualOf(p, proposal[i]);
    Uint128 sum = 0;
    for (const Uint128 weight : residual) sum += weight;
    Uint128 at = UniformBelow(sum, random);
    size_t entry = 0;
    while (at >= residual[entry]) at -= residual[entry++];
    return {static_cast<int32_t>(i), p.entries[entry].token};
  }
  return {static_cast<int32_t>(drafts.size()), Draw(target.back(), random)};
}

std::vector<int32_t> LookupDrafts(std::span<const int32_t> text, int32_t match, int32_t count) {
  for (auto size = static_cast<size_t>(std::max(match, 0)); size > 0; --size) {
    if (text.size() <= size) continue;
    const auto end = text.last(size);
    for (size_t begin = text.size() - size; begin-- > 0;) {
      if (!std::ranges::equal(text.subspan(begin, size), end)) continue;
      const auto behind = text.subspan(begin + size);
      const auto drafts = behind.first(std::min(behind.size(), static_cast<size_t>(count)));
      return {drafts.begin(), drafts.end()};
    }
  }
  return {};
}

}  // namespace lockstep
