#include "golden/view_log.h"

#include <algorithm>
#include <limits>

namespace lockstep {
namespace {

// A traced step asks for a view twice, for the trace and for attention; what is asked later is what
// an operation left.
constexpr int32_t kViewsOfStep = 2;

}  // namespace

std::vector<KvRows> ViewLog::Read(int32_t in_op, std::span<const int32_t> positions,
                                  size_t nth) const {
  for (const Step& step : steps) {
    if (step.op != in_op || !std::ranges::equal(step.positions, positions)) continue;
    if (nth-- > 0) continue;
    if (step.queries.empty()) return {step.view};
    std::vector<KvRows> rows;
    for (int32_t position : positions) {
      const auto found = step.queries.find(position);
      if (found == step.queries.end()) return {};
      rows.push_back(found->second);
    }
    return rows;
  }
  return {};
}

KvRows RowsByPosition(const KvView& view, int64_t kv_stride) {
  KvRows rows = DecodeRows(view, kv_stride);
  const auto forgotten = static_cast<size_t>(rows.first * kv_stride);
  for (std::vector<float>* half : {&rows.keys, &rows.values}) {
    half->insert(half->begin(), forgotten, std::numeric_limits<float>::quiet_NaN());
  }
  rows.first = 0;
  return rows;
}

void LoggingCache::View(int32_t layer, KvView* view) const {
  inner().View(layer, view);
  if (layer != log_->layer || !step_) return;
  ViewLog::Step& step = log_->steps[*step_];
  if (++step.views > kViewsOfStep) return;
  step.view = RowsByPosition(*view, geometry().kv_stride());
}

void LoggingCache::ViewForQuery(int32_t layer, int32_t position, KvView* view) const {
  inner().ViewForQuery(layer, position, view);
  if (layer != log_->layer || !step_) return;
  log_->steps[*step_].queries[position] = RowsByPosition(*view, geometry().kv_stride());
}

// The engine asks for a slot first; the legacy path is refused before it gets here.
void LoggingCache::BeginStep(int32_t layer, std::span<const int32_t> positions) {
  if (layer != 0) return;
  if (step_ && log_->steps[*step_].op == log_->op &&
      std::ranges::equal(log_->steps[*step_].positions, positions)) {
    return;
  }
  step_ = log_->steps.size();
  log_->steps.push_back({.op = log_->op, .positions = {positions.begin(), positions.end()}});
}

void LoggingCache::Update(int32_t layer, std::span<const int32_t> positions,
                          std::span<const float> keys, std::span<const float> values) {
  BeginStep(layer, positions);
  inner().Update(layer, positions, keys, values);
}

std::optional<KvSlot> LoggingCache::TryReserveSlot(int32_t layer,
                                                   std::span<const int32_t> positions) {
  BeginStep(layer, positions);
  return inner().TryReserveSlot(layer, positions);
}

std::unique_ptr<KvCache> LoggingCache::Fork() {
  return std::make_unique<LoggingCache>(inner().Fork(), log_);
}

}  // namespace lockstep
