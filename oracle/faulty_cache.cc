#include "oracle/faulty_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "caches/check.h"
#include "caches/digest.h"
#include "caches/error.h"

namespace lockstep {
namespace {

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(a, b, {}, CanonicalBits, CanonicalBits);
}

}  // namespace

FaultyCache::FaultyCache(KvCache& inner, const Plant& plant)
    : ForwardingCache(inner), plant_(plant) {
  CheckPlace();
}

FaultyCache::FaultyCache(std::unique_ptr<KvCache> inner, const Plant& plant)
    : ForwardingCache(std::move(inner)), plant_(plant) {
  CheckPlace();
}

void FaultyCache::CheckPlace() const {
  const KvGeometry& g = geometry();
  const auto check = [&](const char* what, int64_t value, int64_t limit) {
    if (value >= 0 && value < limit) return;
    throw Error({fmt::format("plant '{}'", PlantText(plant_)),
                 fmt::format("{} {} is outside [0, {}) of the cache", what, value, limit), ""});
  };
  check("layer", plant_.layer, g.num_layers);
  check("position", plant_.position, g.max_length);
  check("element", plant_.element, g.kv_stride());
  check("byte", plant_.byte, int64_t{sizeof(float)});
}

std::string FaultyCache::name() const { return fmt::format("faulty({})", inner().name()); }

bool FaultyCache::Is(PlantKind kind, int32_t layer) const {
  return plant_.kind == kind && layer == plant_.layer && step_ >= plant_.step;
}

void FaultyCache::Fire(bool changed) const {
  ++fired_;
  if (changed) changed_ = true;
}

// ---- Where faults happen --------------------------------------------------------------------

void FaultyCache::View(int32_t layer, KvView* view) const {
  inner().View(layer, view);
  ShowStale(layer, view);
}

void FaultyCache::ViewForQuery(int32_t layer, int32_t position, KvView* view) const {
  inner().ViewForQuery(layer, position, view);
  ShowStale(layer, view);
}

void FaultyCache::Update(int32_t layer, std::span<const int32_t> positions,
                         std::span<const float> keys, std::span<const float> values) {
  BeforeWrite(layer);
  if (layer == 0) layer0_written_ = true;
  if (Is(PlantKind::kDropUpdate, layer)) return Fire(!positions.empty());
  inner().Update(layer, positions, keys, values);
  if (layer != plant_.layer || positions.empty()) return;
  reserved_.reset();
  AfterWrite(positions);
}

std::optional<KvSlot> FaultyCache::TryReserveSlot(int32_t layer,
                                                  std::span<const int32_t> positions) {
  BeforeWrite(layer);
  if (Is(PlantKind::kRefuseReserve, layer)) {
    Fire(true);
    return std::nullopt;
  }
  std::optional<KvSlot> slot = inner().TryReserveSlot(layer, positions);
  if (slot && layer == plant_.layer) reserved_.emplace(positions.begin(), positions.end());
  return slot;
}

void FaultyCache::CommitSlot(int32_t layer, std::span<const int32_t> positions) {
  if (layer == 0) layer0_written_ = true;
  if (Is(PlantKind::kSkipCommit, layer)) return Fire(reserved_.has_value());
  inner().CommitSlot(layer, positions);
  // A repeated commit writes nothing, and a fault that follows it would undo itself.
  if (layer != plant_.layer || !reserved_ || !std::ranges::equal(*reserved_, positions)) return;
  reserved_.reset();
  AfterWrite(positions);
}

void FaultyCache::Rollback(int32_t length) {
  if (plant_.kind == PlantKind::kStaleRow && step_ >= plant_.step && length >= 0 &&
      length < inner().length(plant_.layer)) {
    stale_ = Read(length);
    stale_->count = 1;
  }
  const bool keep = plant_.kind == PlantKind::kKeepRow && step_ >= plant_.step && length >= 0 &&
                    length < inner().current_length();
  inner().Rollback(keep ? length + 1 : length);
  if (keep) Fire(true);
  ForgetReservation();
}

void FaultyCache::Clear() {
  inner().Clear();
  stale_.reset();
  ForgetReservation();
}

std::unique_ptr<KvCache> FaultyCache::Fork() {
  auto fork = std::make_unique<FaultyCache>(inner().Fork(), plant_);
  ForgetReservation();
  fork->step_ = step_;
  fork->stale_ = stale_;
  fork->fired_ = fired_.load();
  fork->changed_ = changed_.load();
  return fork;
}

void FaultyCache::LoadState(StateReader* reader) {
  inner().LoadState(reader);
  stale_.reset();
  ForgetReservation();
}

void FaultyCache::ForgetReservation() {
  layer0_written_ = true;
  reserved_.reset();
}

void FaultyCache::BeforeWrite(int32_t layer) {
  if (layer != 0) {
    layer0_written_ = true;
    return;
  }
  if (!layer0_written_) return;
  layer0_written_ = false;
  ++step_;
  const bool flip = plant_.kind == PlantKind::kFlipK || plant_.kind == PlantKind::kFlipV;
  // Before the row exists there is nothing to flip: the fault waits. It stays away from what is
  // forgotten.
  if (flip && fired_ == 0 && step_ >= plant_.step &&
      plant_.position < inner().length(plant_.layer) &&
      plant_.position >= inner().first_position(plant_.layer)) {
    Flip();
  }
}

void FaultyCache::AfterWrite(std::span<const int32_t> positions) {
  if (step_ < plant_.step) return;
  switch (plant_.kind) {
    case PlantKind::kSwapKv:
      return SwapKv(positions);
    case PlantKind::kWritePast:
      return WritePast(positions);
    case PlantKind::kOffByOne:
      return WriteEarly(positions);
    case PlantKind::kStaleRow:
      return RestoreStale(positions);
    default:
      return;
  }
}

// ---- What the faults are --------------------------------------------------------------------

void FaultyCache::Flip() {
  Rows rows = Read(plant_.position);
  std::vector<float>& row = plant_.kind == PlantKind::kFlipK ? rows.rows.keys : rows.rows.values;
  float& element = row[static_cast<size_t>(plant_.element)];
  const uint32_t mask = uint32_t{0xff} << (8 * plant_.byte);
  element = std::bit_cast<float>(std::bit_cast<uint32_t>(element) ^ mask);
  WriteBack(rows);
}

void FaultyCache::SwapKv(std::span<const int32_t> positions) {
  const auto stride = static_cast<std::ptrdiff_t>(geometry().kv_stride());
  Rows rows = Read(*std::ranges::min_element(positions));
  for (int32_t row = 0; row < rows.count; ++row) {
    if (std::ranges::find(positions, rows.first + row) == positions.end()) continue;
    const auto key = rows.rows.keys.begin() + row * stride;
    const auto value = rows.rows.values.begin() + row * stride;
    std::swap_ranges(key, key + stride, value);
  }
  WriteBack(rows);
}

void FaultyCache::WritePast(std::span<const int32_t> positions) {
  const int32_t last = *std::ranges::max_element(positions);
  if (last + 1 >= geometry().max_length) return;
  const auto stride = static_cast<std::ptrdiff_t>(geometry().kv_stride());
  Rows rows = Read(last);
  for (std::vector<float>* side : {&rows.rows.keys, &rows.rows.values}) {
    if (rows.count == 1) side->resize(2 * static_cast<size_t>(stride));
    std::copy(side->begin(), side->begin() + stride, side->begin() + stride);
  }
  rows.count = std::max(rows.count, 2);
  WriteBack(rows);
}

void FaultyCache::WriteEarly(std::span<const int32_t> positions) {
  const auto stride = static_cast<std::ptrdiff_t>(geometry().kv_stride());
  std::vector<int32_t> sorted(positions.begin(), positions.end());
  std::ranges::sort(sorted);
  Rows rows = Read(std::max(0, sorted.front() - 1));
  for (std::vector<float>* side : {&rows.rows.keys, &rows.rows.values}) {
    const auto row = [&](int32_t position) {
      return side->begin() + (position - rows.first) * stride;
    };
    for (int32_t p : sorted) {
      if (p > 0) std::copy(row(p), row(p) + stride, row(p - 1));
    }
    std::fill(row(sorted.back()), row(sorted.back()) + stride, 0.0f);
  }
  WriteBack(rows);
}

void FaultyCache::RestoreStale(std::span<const int32_t> positions) {
  if (!stale_ || std::ranges::find(positions, stale_->first) == positions.end()) return;
  const auto stride = static_cast<std::ptrdiff_t>(geometry().kv_stride());
  Rows rows = Read(stale_->first);
  std::copy_n(stale_->rows.keys.begin(), stride, rows.rows.keys.begin());
  std::copy_n(stale_->rows.values.begin(), stride, rows.rows.values.begin());
  stale_.reset();
  WriteBack(rows);
}

void FaultyCache::ShowStale(int32_t layer, KvView* view) const {
  if (!Is(PlantKind::kStaleView, layer) || view->length < 2) return;
  const int32_t shown = view->length - 2;
  const auto holder = std::ranges::find_if(
      view->segments, [&](const KvSegment& s) { return shown < s.first + s.count; });
  LS_CHECK(holder != view->segments.end(), "no segment holds position {}", shown);
  KvSegment stale = *holder;
  stale.keys += (shown - stale.first) * RowBytes(stale.key_type, geometry().kv_stride());
  stale.values += (shown - stale.first) * RowBytes(stale.value_type, geometry().kv_stride());
  stale.first = view->length - 1;
  stale.count = 1;
  if (--view->segments.back().count == 0) view->segments.pop_back();
  view->segments.push_back(stale);
  Fire(true);
}

FaultyCache::Rows FaultyCache::Read(int32_t first) const {
  const auto stride = static_cast<std::ptrdiff_t>(geometry().kv_stride());
  KvView view;
  inner().View(plant_.layer, &view);
  Rows rows{.first = first,
            .count = view.length - first,
            .rows = DecodeRows(view, geometry().kv_stride())};
  LS_CHECK(rows.count > 0 && first >= view.first(), "position {} of rows {} to {}", first,
           view.first(), view.length);
  for (std::vector<float>* side : {&rows.rows.keys, &rows.rows.values}) {
    side->erase(side->begin(), side->begin() + (first - view.first()) * stride);
  }
  return rows;
}

void FaultyCache::WriteBack(const Rows& rows) {
  const auto stride = static_cast<size_t>(geometry().kv_stride());
  const Rows before = Read(rows.first);
  std::vector<int32_t> positions;
  for (int32_t done = 0; done < rows.count;) {
    const int32_t count = std::min(inner().max_step_rows(), rows.count - done);
    positions.clear();
    for (int32_t i = 0; i < count; ++i) positions.push_back(rows.first + done + i);
    const size_t offset = static_cast<size_t>(done) * stride;
    const size_t elements = static_cast<size_t>(count) * stride;
    inner().Update(plant_.layer, positions, std::span(rows.rows.keys).subspan(offset, elements),
                   std::span(rows.rows.values).subspan(offset, elements));
    done += count;
  }
  const Rows after = Read(rows.first);
  Fire(!SameBits(before.rows.keys, after.rows.keys) ||
       !SameBits(before.rows.values, after.rows.values));
}

}  // namespace lockstep
