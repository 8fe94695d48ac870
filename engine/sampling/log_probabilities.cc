#include <algorithm>
#include <limits>

#include "caches/check.h"
#include "engine/kernels.h"
#include "engine/math.h"
#include "engine/sampler.h"

namespace lockstep {

LogProbabilities::LogProbabilities(std::span<const float> logits) : logits_(logits) {
  LS_CHECK(!logits.empty(), "no logits");
  top_ = logits[static_cast<size_t>(ArgMax(logits))];
  uint64_t sum = 0;
  bool numbers = true;
  for (const float logit : logits) {
    const float power = CanonicalExp(logit - top_);
    numbers = numbers && power <= 1.0f;  // not for a NaN
    if (numbers) sum += static_cast<uint64_t>(power * 0x1p32f);
  }
  log_sum_ = numbers ? CanonicalLog(static_cast<double>(sum) * 0x1p-32)
                     : std::numeric_limits<double>::quiet_NaN();
}

double LogProbabilities::Of(int32_t token) const {
  return double{logits_[static_cast<size_t>(token)]} - double{top_} - log_sum_;
}

std::vector<std::pair<int32_t, double>> LogProbabilities::Top(int32_t count) const {
  std::vector<std::pair<int32_t, double>> all;
  for (size_t token = 0; token < logits_.size(); ++token) {
    all.emplace_back(static_cast<int32_t>(token), Of(static_cast<int32_t>(token)));
  }
  const auto kept = std::min(all.size(), static_cast<size_t>(std::max(count, 0)));
  std::ranges::partial_sort(all, all.begin() + static_cast<std::ptrdiff_t>(kept),
                            [](const auto& a, const auto& b) {
                              return a.second != b.second ? a.second > b.second : a.first < b.first;
                            });
  all.resize(kept);
  return all;
}

}  // namespace lockstep
