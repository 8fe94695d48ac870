// What attention read: a decorator that keeps the rows of every view of one layer, step by step.
#ifndef LOCKSTEP_GOLDEN_VIEW_LOG_H_
#define LOCKSTEP_GOLDEN_VIEW_LOG_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "caches/kv_cache.h"
#include "oracle/decorators.h"

namespace lockstep {

// The view's rows, each at its position: NaN stands where a cache has forgotten some [W1].
KvRows RowsByPosition(const KvView& view, int64_t kv_stride);

struct ViewLog {
  // One write of layer 0, as every step begins, and what its sequence read at `layer` behind it.
  struct Step {
    int32_t op = 0;
    std::vector<int32_t> positions = {};
    KvRows view = {};                        // the last View of the step
    std::map<int32_t, KvRows> queries = {};  // the last ViewForQuery of each position
    int32_t views = 0;                       // calls of View
  };

  int32_t layer = 0;
  int32_t op = 0;  // in progress
  std::vector<Step> steps = {};

  // The rows that each query at `positions` read in that step of the operation: one for all, or
  // one for each. `nth`: of the steps of the operation at these positions. Empty when there are
  // none.
  std::vector<KvRows> Read(int32_t in_op, std::span<const int32_t> positions, size_t nth) const;
};

// Forks write to the same log.
class LoggingCache final : public ForwardingCache {
 public:
  LoggingCache(std::unique_ptr<KvCache> inner, std::shared_ptr<ViewLog> log)
      : ForwardingCache(std::move(inner)), log_(std::move(log)) {}

  void View(int32_t layer, KvView* view) const override;
  void ViewForQuery(int32_t layer, int32_t position, KvView* view) const override;
  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override;
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override;
  std::unique_ptr<KvCache> Fork() override;

 private:
  void BeginStep(int32_t layer, std::span<const int32_t> positions);

  std::shared_ptr<ViewLog> log_;
  std::optional<size_t> step_;  // in the log
};

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_VIEW_LOG_H_
