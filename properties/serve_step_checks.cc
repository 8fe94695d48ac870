#include "properties/serve_step_checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "caches/paged_kv_cache.h"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, kServeClasses> kServeClassNames = {"admitted_mid_decode",
                                                                          "prefill_beside_decode",
                                                                          "chunked",
                                                                          "budget_full",
                                                                          "waited_for_place",
                                                                          "waited_for_blocks",
                                                                          "pool_exactly_full",
                                                                          "preempted_prefilling",
                                                                          "preempted_decoding",
                                                                          "preempted_twice",
                                                                          "draws_after_preemption",
                                                                          "cancelled_waiting",
                                                                          "cancelled_prefilling",
                                                                          "cancelled_decoding",
                                                                          "cancelled_preempted",
                                                                          "hit",
                                                                          "hit_with_running",
                                                                          "hit_after_preemption",
                                                                          "hit_after_eviction",
                                                                          "hit_under_adapters",
                                                                          "stopped",
                                                                          "refused_by_context",
                                                                          "refused_by_pool",
                                                                          "adapters_differ",
                                                                          "one_a_request",
                                                                          "threads"};

const ServeExpected& ExpectedOf(std::span<const ServeExpected> expected,
                                const ServeGrowth& growth) {
  return expected[static_cast<size_t>(growth.before->id - 1)];
}

bool Decodes(const ServeGrowth& growth) { return growth.before->state == RequestState::kDecoding; }

}  // namespace

std::string_view ServeClassName(ServeClass serve_class) {
  return kServeClassNames[static_cast<size_t>(serve_class)];
}

const RequestStatus* FindStatus(const std::vector<RequestStatus>& all, int64_t id) {
  const auto found = std::ranges::find(all, id, &RequestStatus::id);
  return found == all.end() ? nullptr : &*found;
}

std::vector<ServeGrowth> GrowthIn(const ServeStep& step, std::span<const ServeExpected> expected) {
  std::vector<ServeGrowth> all;
  for (const RequestStatus& before : step.before) {
    ServeGrowth growth = {.before = &before, .after = FindStatus(step.after, before.id)};
    const auto last = std::ranges::find(step.served, before.id, &ServedToken::id);
    const bool ran = before.state != RequestState::kWaiting;
    const bool runs = growth.after == nullptr || growth.after->state != RequestState::kWaiting;
    if (growth.after != nullptr) growth.attached = growth.after->attached;
    if (growth.after == nullptr && last != step.served.end()) growth.attached = last->attached;
    growth.admitted = !ran && runs;
    growth.preempted = ran && !runs;
    growth.from = ran ? before.rows : growth.attached;
    const int32_t rows =
        growth.after == nullptr ? ExpectedOf(expected, growth).rows() : growth.after->rows;
    growth.rows = runs ? rows - growth.from : 0;
    all.push_back(growth);
  }
  return all;
}

std::optional<std::string> GrowthFault(const ServeStep& step, std::span<const ServeGrowth> growth) {
  for (const ServeGrowth& one : growth) {
    const int64_t id = one.before->id;
    if (one.rows < 0 || one.rows > step.trace.chunk) {
      return fmt::format("request {} grew by {} rows", id, one.rows);
    }
    const bool oldest = &one == growth.data();
    const bool has_place = Decodes(one) && !one.preempted;
    if ((oldest || has_place) && one.rows == 0) {
      return fmt::format("request {} did not advance", id);
    }
    if (one.preempted && step.trace.blocks == 0) {
      return fmt::format("request {} was preempted without need", id);
    }
  }
  return std::nullopt;
}

std::optional<std::string> CounterFault(const ServeStep& step, std::span<const ServeGrowth> growth,
                                        std::span<const ServeExpected> expected) {
  SchedulerCounters counters = step.counters_before;
  int64_t together = 0;
  for (const ServeGrowth& one : growth) {
    counters.rows += one.rows;
    counters.recomputed += std::clamp(ExpectedOf(expected, one).reached - one.from, 0, one.rows);
    together += one.rows > 0 ? 1 : 0;
    counters.preempted += one.preempted ? 1 : 0;
    if (!one.admitted) continue;
    ++counters.admitted;
    counters.prefix_hits += one.attached > 0 ? 1 : 0;
    counters.rows_attached += one.attached;
  }
  if (counters.rows - step.counters_before.rows > step.trace.budget) return "a step is too large";
  ++counters.steps;
  counters.tokens += std::ssize(step.served);
  counters.most_together = std::max(counters.most_together, together);
  if (counters == step.counters_after) return std::nullopt;
  const SchedulerCounters& said = step.counters_after;
  return fmt::format(
      "counters: {} rows, {} again, {} admitted, {} preempted, {} hits of {} rows; they were {}, "
      "{}, {}, {}, {} and {}",
      said.rows, said.recomputed, said.admitted, said.preempted, said.prefix_hits,
      said.rows_attached, counters.rows, counters.recomputed, counters.admitted, counters.preempted,
      counters.prefix_hits, counters.rows_attached);
}

void NoteGrowth(std::span<const ServeGrowth> growth, std::vector<ServeExpected>* expected) {
  for (const ServeGrowth& one : growth) {
    ServeExpected& request = (*expected)[static_cast<size_t>(one.before->id - 1)];
    request.reached = std::max(request.reached, one.from + one.rows);
    if (one.preempted) request.resumes = request.resumes || request.given > 0;
  }
}

namespace {

class ShapeCounter {
 public:
  ShapeCounter(const ServeStep& step, std::span<const ServeExpected> expected,
               std::array<int64_t, kServeClasses>* classes)
      : step_(step), expected_(expected), classes_(*classes) {}

  void Add(const ServeGrowth& growth) {
    if (growth.preempted) AddPreemption(growth);
    if (growth.admitted && growth.attached > 0) AddHit(growth);
    decoded_before_ = decoded_before_ || Decodes(growth);
    admitted_ = admitted_ || growth.admitted;
    if (growth.rows == 0) return;
    rows_ += growth.rows;
    ++(Decodes(growth) ? decoding_ : prefilling_);
    Count(ServeClass::kChunked,
          growth.after != nullptr && growth.after->state == RequestState::kPrefilling);
    const int32_t adapters = ExpectedOf(expected_, growth).request.adapters;
    adapters_differ_ = adapters_differ_ || (adapters_ >= 0 && adapters != adapters_);
    adapters_ = adapters;
  }

  void Finish() {
    Count(ServeClass::kAdmittedMidDecode, decoded_before_ && admitted_);
    Count(ServeClass::kPrefillBesideDecode, decoding_ > 0 && prefilling_ > 0);
    Count(ServeClass::kBudgetFull, rows_ == step_.trace.budget && decoding_ + prefilling_ > 1);
    Count(ServeClass::kAdaptersDiffer, adapters_differ_);
    const BlockPool* pool = step_.pool;
    Count(ServeClass::kPoolExactlyFull,
          pool != nullptr && pool->free_blocks() == 0 && pool->reclaimable_blocks() == 0);
  }

 private:
  void Count(ServeClass c, bool reached) { classes_[static_cast<size_t>(c)] += reached ? 1 : 0; }

  void AddPreemption(const ServeGrowth& growth) {
    Count(ServeClass::kPreemptedDecoding, Decodes(growth));
    Count(ServeClass::kPreemptedPrefilling, !Decodes(growth));
    Count(ServeClass::kPreemptedTwice, growth.after->preemptions > 1);
  }

  void AddHit(const ServeGrowth& growth) {
    Count(ServeClass::kHit, true);
    Count(ServeClass::kHitAfterPreemption, growth.before->preemptions > 0);
    Count(ServeClass::kHitAfterEviction, step_.index->counters().evicted > 0);
    Count(ServeClass::kHitUnderAdapters, ExpectedOf(expected_, growth).request.adapters != 0);
    if (growth.after == nullptr) return;
    const auto& cache = static_cast<const PagedKvCache&>(*growth.after->cache);
    constexpr int32_t kItAndTheIndex = 2;
    Count(ServeClass::kHitWithRunning,
          step_.pool->references(cache.block_table().front()) > kItAndTheIndex);
  }

  const ServeStep& step_;
  std::span<const ServeExpected> expected_;
  std::array<int64_t, kServeClasses>& classes_;
  int32_t rows_ = 0;
  int32_t decoding_ = 0, prefilling_ = 0;  // requests with rows
  int32_t adapters_ = -1;
  bool decoded_before_ = false, admitted_ = false, adapters_differ_ = false;
};

}  // namespace

void CountShapes(const ServeStep& step, std::span<const ServeGrowth> growth,
                 std::span<const ServeExpected> expected,
                 std::array<int64_t, kServeClasses>* classes) {
  ShapeCounter counter(step, expected, classes);
  for (const ServeGrowth& one : growth) counter.Add(one);
  counter.Finish();
}

}  // namespace lockstep
