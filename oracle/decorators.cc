#include "oracle/decorators.h"

#include <fmt/format.h>

#include <utility>

#include "caches/check.h"
#include "caches/kv_checks.h"

namespace lockstep {

ForwardingCache::ForwardingCache(std::unique_ptr<KvCache> inner)
    : owned_(std::move(inner)), inner_(owned_.get()) {
  LS_CHECK(inner_ != nullptr, "a decorator needs a cache");
}

// ---- UpdateOnlyCache ------------------------------------------------------------------------

std::string UpdateOnlyCache::name() const { return fmt::format("update-only({})", inner().name()); }

void UpdateOnlyCache::Update(int32_t layer, std::span<const int32_t> positions,
                             std::span<const float> keys, std::span<const float> values) {
  inner().Update(layer, positions, keys, values);
}

std::optional<KvSlot> UpdateOnlyCache::TryReserveSlot(int32_t layer, std::span<const int32_t>) {
  CheckLayer(geometry(), layer);
  return std::nullopt;
}

void UpdateOnlyCache::CommitSlot(int32_t layer, std::span<const int32_t> positions) {
  inner().CommitSlot(layer, positions);
}

void UpdateOnlyCache::Rollback(int32_t length) { inner().Rollback(length); }

void UpdateOnlyCache::Clear() { inner().Clear(); }

std::unique_ptr<KvCache> UpdateOnlyCache::Fork() {
  return std::make_unique<UpdateOnlyCache>(inner().Fork());
}

void UpdateOnlyCache::LoadState(StateReader* reader) { inner().LoadState(reader); }

// ---- CountingCache --------------------------------------------------------------------------

namespace {

// Runs `call`; when it throws, counts that instead of what the caller counts afterwards.
template <typename Count, typename Call>
auto CountThrow(Count& threw, Call&& call) {
  try {
    return call();
  } catch (...) {
    ++threw;
    throw;
  }
}

}  // namespace

Counters& Counters::operator+=(const Counters& other) {
  reserve_granted += other.reserve_granted;
  reserve_refused += other.reserve_refused;
  rows_reserved += other.rows_reserved;
  commits += other.commits;
  rows_committed += other.rows_committed;
  updates += other.updates;
  rows_updated += other.rows_updated;
  views += other.views;
  threw += other.threw;
  rollbacks += other.rollbacks;
  clears += other.clears;
  forks += other.forks;
  return *this;
}

std::string CountersText(const Counters& c) {
  return fmt::format(
      "reserve {}+{} ({} rows), commit {} ({} rows), update {} ({} rows), view {}, rollback {}, "
      "clear {}, fork {}, threw {}",
      c.reserve_granted, c.reserve_refused, c.rows_reserved, c.commits, c.rows_committed, c.updates,
      c.rows_updated, c.views, c.rollbacks, c.clears, c.forks, c.threw);
}

CountingCache::CountingCache(KvCache& inner)
    : ForwardingCache(inner),
      counters_(static_cast<size_t>(inner.geometry().num_layers) + 1),
      views_(counters_.size()),
      view_throws_(counters_.size()) {}

CountingCache::CountingCache(std::unique_ptr<KvCache> inner)
    : ForwardingCache(std::move(inner)),
      counters_(static_cast<size_t>(geometry().num_layers) + 1),
      views_(counters_.size()),
      view_throws_(counters_.size()) {}

size_t CountingCache::Index(int32_t layer) const {
  return layer >= 0 && layer < geometry().num_layers ? static_cast<size_t>(layer)
                                                     : counters_.size() - 1;
}

Counters CountingCache::layer(int32_t layer) const {
  CheckLayer(geometry(), layer);
  const size_t i = Index(layer);
  Counters counters = counters_[i];
  counters.views += views_[i].load();
  counters.threw += view_throws_[i].load();
  return counters;
}

Counters CountingCache::total() const {
  Counters total;
  for (size_t i = 0; i < counters_.size(); ++i) {
    total += counters_[i];
    total.views += views_[i].load();
    total.threw += view_throws_[i].load();
  }
  return total;
}

void CountingCache::Reset() {
  for (size_t i = 0; i < counters_.size(); ++i) {
    counters_[i] = {};
    views_[i] = 0;
    view_throws_[i] = 0;
  }
}

void CountingCache::View(int32_t layer, KvView* view) const {
  CountThrow(view_throws_[Index(layer)], [&] { inner().View(layer, view); });
  ++views_[Index(layer)];
}

void CountingCache::ViewForQuery(int32_t layer, int32_t position, KvView* view) const {
  CountThrow(view_throws_[Index(layer)], [&] { inner().ViewForQuery(layer, position, view); });
  ++views_[Index(layer)];
}

void CountingCache::Update(int32_t layer, std::span<const int32_t> positions,
                           std::span<const float> keys, std::span<const float> values) {
  Counters& c = counters_[Index(layer)];
  CountThrow(c.threw, [&] { inner().Update(layer, positions, keys, values); });
  ++c.updates;
  c.rows_updated += static_cast<int64_t>(positions.size());
}

std::optional<KvSlot> CountingCache::TryReserveSlot(int32_t layer,
                                                    std::span<const int32_t> positions) {
  Counters& c = counters_[Index(layer)];
  std::optional<KvSlot> slot =
      CountThrow(c.threw, [&] { return inner().TryReserveSlot(layer, positions); });
  if (slot) {
    ++c.reserve_granted;
    c.rows_reserved += static_cast<int64_t>(positions.size());
  } else {
    ++c.reserve_refused;
  }
  return slot;
}

void CountingCache::CommitSlot(int32_t layer, std::span<const int32_t> positions) {
  Counters& c = counters_[Index(layer)];
  CountThrow(c.threw, [&] { inner().CommitSlot(layer, positions); });
  ++c.commits;
  c.rows_committed += static_cast<int64_t>(positions.size());
}

void CountingCache::Rollback(int32_t length) {
  Counters& c = counters_.back();
  CountThrow(c.threw, [&] { inner().Rollback(length); });
  ++c.rollbacks;
}

void CountingCache::Clear() {
  Counters& c = counters_.back();
  CountThrow(c.threw, [&] { inner().Clear(); });
  ++c.clears;
}

std::unique_ptr<KvCache> CountingCache::Fork() {
  Counters& c = counters_.back();
  std::unique_ptr<KvCache> fork = CountThrow(c.threw, [&] { return inner().Fork(); });
  ++c.forks;
  return std::make_unique<CountingCache>(std::move(fork));
}

}  // namespace lockstep
