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

DeviceKv* UpdateOnlyCache::device_kv(int32_t layer) {
  return inner().device_kv(layer) == nullptr ? nullptr : &on_device_;
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

// Counts a reservation and hands on its result.
template <typename Slot>
std::optional<Slot> CountReservation(Counters& c, std::span<const int32_t> positions,
                                     std::optional<Slot> slot) {
  if (slot) {
    ++c.reserve_granted;
    c.rows_reserved += static_cast<int64_t>(positions.size());
  } else {
    ++c.reserve_refused;
  }
  return slot;
}

}  // namespace

class CountingCache::OnDevice final : public ForwardingDeviceKv {
 public:
  OnDevice(CountingCache* counting, KvCache& inner)
      : ForwardingDeviceKv(inner), counting_(*counting) {}

  template <typename Call>
  auto Count(Counters& c, Call&& call) {
    ++c.on_device;
    return CountThrow(c.threw, call);
  }

  std::optional<DeviceKvSlot> TryReserveDeviceSlot(int32_t layer,
                                                   std::span<const int32_t> positions,
                                                   DeviceStream& stream) override {
    Counters& c = At(layer);
    return CountReservation(c, positions, Count(c, [&] {
                              return ForwardingDeviceKv::TryReserveDeviceSlot(layer, positions,
                                                                              stream);
                            }));
  }

  void CommitDeviceSlot(int32_t layer, std::span<const int32_t> positions,
                        DeviceStream& stream) override {
    Counters& c = At(layer);
    Count(c, [&] { ForwardingDeviceKv::CommitDeviceSlot(layer, positions, stream); });
    ++c.commits;
    c.rows_committed += static_cast<int64_t>(positions.size());
  }

  void UpdateOnDevice(int32_t layer, std::span<const int32_t> positions, Global<const float> keys,
                      Global<const float> values, DeviceStream& stream) override {
    Counters& c = At(layer);
    Count(c, [&] { ForwardingDeviceKv::UpdateOnDevice(layer, positions, keys, values, stream); });
    ++c.updates;
    c.rows_updated += static_cast<int64_t>(positions.size());
  }

  DeviceKvView ViewOnDevice(int32_t layer, std::span<const int32_t> positions,
                            DeviceStream& stream) override {
    Counters& c = At(layer);
    const DeviceKvView view =
        Count(c, [&] { return ForwardingDeviceKv::ViewOnDevice(layer, positions, stream); });
    ++c.views;
    return view;
  }

 private:
  Counters& At(int32_t layer) { return counting_.counters_[counting_.Index(layer)]; }

  CountingCache& counting_;
};

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
  on_device += other.on_device;
  rollbacks += other.rollbacks;
  clears += other.clears;
  forks += other.forks;
  return *this;
}

std::string CountersText(const Counters& c) {
  return fmt::format(
      "reserve {}+{} ({} rows), commit {} ({} rows), update {} ({} rows), view {}, rollback {}, "
      "clear {}, fork {}, threw {}, on a device {}",
      c.reserve_granted, c.reserve_refused, c.rows_reserved, c.commits, c.rows_committed, c.updates,
      c.rows_updated, c.views, c.rollbacks, c.clears, c.forks, c.threw, c.on_device);
}

CountingCache::CountingCache(KvCache& inner)
    : ForwardingCache(inner),
      counters_(static_cast<size_t>(inner.geometry().num_layers) + 1),
      views_(counters_.size()),
      view_throws_(counters_.size()),
      on_device_(std::make_unique<OnDevice>(this, ForwardingCache::inner())) {}

CountingCache::CountingCache(std::unique_ptr<KvCache> inner)
    : ForwardingCache(std::move(inner)),
      counters_(static_cast<size_t>(geometry().num_layers) + 1),
      views_(counters_.size()),
      view_throws_(counters_.size()),
      on_device_(std::make_unique<OnDevice>(this, ForwardingCache::inner())) {}

CountingCache::~CountingCache() = default;

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
  return CountReservation(
      c, positions, CountThrow(c.threw, [&] { return inner().TryReserveSlot(layer, positions); }));
}

void CountingCache::CommitSlot(int32_t layer, std::span<const int32_t> positions) {
  Counters& c = counters_[Index(layer)];
  CountThrow(c.threw, [&] { inner().CommitSlot(layer, positions); });
  ++c.commits;
  c.rows_committed += static_cast<int64_t>(positions.size());
}

DeviceKv* CountingCache::device_kv(int32_t layer) {
  return inner().device_kv(layer) == nullptr ? nullptr : on_device_.get();
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
