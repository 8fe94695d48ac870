#include "properties/serve_trace_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "caches/error.h"
#include "caches/paged_kv_cache.h"
#include "caches/registry.h"
#include "engine/prefix_cache.h"
#include "oracle/difference.h"
#include "properties/serve_reference.h"
#include "properties/serve_step_checks.h"

namespace lockstep {
namespace {

class TraceRun {
 public:
  TraceRun(const ServeTrace& trace, const ServeRunOptions& options)
      : trace_(trace),
        options_(options),
        model_(EngineModelOf(trace.model, 1)),
        spec_(ParseCacheSpec(trace.cache)),
        geometry_(model_->model->config().geometry(trace.max_length)),
        root_(MakeRoot()),
        pool_(PoolOf(*root_)),
        engine_(model_->model, {.max_step_tokens = trace.step, .threads = trace.threads}) {
    if (trace.prefixes && pool_ != nullptr) {
      index_ = std::make_unique<PrefixIndex>(*root_);
      prefixes_ = std::make_unique<PrefixCache>(engine_, *index_);
    }
    scheduler_ = std::make_unique<Scheduler>(engine_, *root_,
                                             SchedulerOptions{.max_running = trace.running,
                                                              .step_tokens = trace.budget,
                                                              .chunk_tokens = trace.chunk,
                                                              .prefixes = prefixes_.get()});
    driver_ = options.make_driver ? options.make_driver(*scheduler_)
                                  : std::make_unique<ServeDriver>(*scheduler_);
  }

  ServeRun Run() {
    int32_t last = 0;
    for (const TraceRequest& request : trace_.requests) last = std::max(last, request.arrives);
    for (step_ = 0; !run_.finding; ++step_) {
      Arrive();
      Cancel();
      if (scheduler_->idle() && step_ >= last) break;
      if (!scheduler_->idle() && !run_.finding) Step();
    }
    if (!run_.finding) End();
    run_.counters = scheduler_->counters();
    return std::move(run_);
  }

 private:
  void Count(ServeClass c, bool reached = true) {
    run_.classes[static_cast<size_t>(c)] += reached ? 1 : 0;
  }
  void Fault(std::string what) {
    if (!run_.finding) run_.finding = {step_, std::move(what)};
  }
  bool Known(int64_t id) const { return id >= 1 && id <= std::ssize(expected_); }
  ServeExpected& Of(int64_t id) { return expected_[static_cast<size_t>(id - 1)]; }

  std::unique_ptr<KvCache> MakeRoot() const {
    const int32_t size = spec_.block_size;
    if (size == 0) return spec_.make({.geometry = geometry_});
    const int32_t enough = BlocksForRows(trace_.max_length, size) * trace_.running;
    return std::make_unique<PagedKvCache>(
        PagedKvCacheOptions{.geometry = geometry_,
                            .block_size = size,
                            .pool = std::make_shared<BlockPool>(BlockPoolOptions{
                                .geometry = geometry_,
                                .block_size = size,
                                .num_blocks = trace_.blocks > 0 ? trace_.blocks : enough,
                                .shuffle_seed = 0x5eed,
                                .poison_on_free = true})});
  }

  ModelCacheOptions ModelCacheOf() const {
    const std::vector<int32_t> windows = WindowsOf(spec_, geometry_);
    return {.geometry = geometry_,
            .key_type = spec_.key_type,
            .value_type = spec_.value_type,
            .window = spec_.window,
            .window_type = spec_.window_type,
            .refuses_host_slots = true,
            .max_step_rows = windows.empty() ? 0 : spec_.undo_rows,
            .windows = windows};
  }

  // ---- Who comes and goes -----------------------------------------------------------------

  ServeRequest RequestOf(const TraceRequest& request) const {
    const int32_t vocabulary = model_->model->config().vocab_size;
    return {.prompt = TracePrompt(request, vocabulary),
            .max_new_tokens = request.new_tokens,
            .sampler = TraceSamplerOptions(request),
            .seed = static_cast<uint64_t>(request.seed),
            .stop_tokens = TraceStops(request, vocabulary),
            .adapters = model_->adapters[static_cast<size_t>(request.adapters)]};
  }

  void Arrive() {
    for (const TraceRequest& request : trace_.requests) {
      if (request.arrives == step_ && !run_.finding) Submit(request);
    }
  }

  void Submit(const TraceRequest& request) {
    const int32_t rows = request.prompt + request.new_tokens - 1;
    const bool long_text = rows > trace_.max_length;
    const bool large =
        pool_ != nullptr && BlocksForRows(rows, pool_->block_size()) > pool_->num_blocks();
    const auto before = scheduler_->requests().size();
    try {
      const int64_t id = SubmitAtLast(RequestOf(request));
      if (long_text || large) return Fault("a request that can never run was taken");
      if (id != std::ssize(expected_) + 1) return Fault(fmt::format("request {} is next", id));
    } catch (const Error& error) {
      if (!long_text && !large) return Fault(fmt::format("refused: {}", error.what()));
      if (scheduler_->requests().size() != before) Fault("a refused request is there");
      return Count(long_text ? ServeClass::kRefusedByContext : ServeClass::kRefusedByPool);
    }
    ServeExpected expected = {.request = request,
                              .alone = RunAlone(*model_, ModelCacheOf(), RequestOf(request))};
    expected.deadline = scheduler_->counters().steps + expected.rows();
    for (const ServeExpected& older : expected_) {
      if (!older.ended && !older.cancelled) expected.deadline += older.rows();
    }
    expected_.push_back(std::move(expected));
  }

  // Where asked for, behind attempts with each allocation failing.
  int64_t SubmitAtLast(const ServeRequest& request) {
    for (int64_t n = 0; options_.fail_allocation; ++n) {
      const size_t before = scheduler_->requests().size();
      ServeRequest copy = request;
      try {
        options_.fail_allocation(n);
        const int64_t id = driver_->Submit(std::move(copy));
        options_.fail_allocation(-1);
        return id;
      } catch (const std::bad_alloc&) {
      } catch (const Error&) {
        options_.fail_allocation(-1);
        throw;
      }
      options_.fail_allocation(-1);
      if (scheduler_->requests().size() != before) Fault("a request that failed is there");
    }
    return driver_->Submit(request);
  }

  void Cancel() {
    for (size_t i = 0; i < expected_.size() && !run_.finding; ++i) {
      ServeExpected& expected = expected_[i];
      const TraceRequest& request = expected.request;
      if (request.cancel < 0 || request.arrives + request.cancel != step_) continue;
      const auto id = static_cast<int64_t>(i) + 1;
      const auto all = scheduler_->requests();
      const RequestStatus* status = FindStatus(all, id);
      if (driver_->Cancel(id) != !expected.ended || driver_->Cancel(id)) {
        return Fault(fmt::format("request {} was cancelled twice, or not once", id));
      }
      if (expected.ended) continue;
      expected.cancelled = true;
      const bool preempted = status->preemptions > 0;
      Count(status->state == RequestState::kDecoding     ? ServeClass::kCancelledDecoding
            : status->state == RequestState::kPrefilling ? ServeClass::kCancelledPrefilling
            : preempted                                  ? ServeClass::kCancelledPreempted
                                                         : ServeClass::kCancelledWaiting);
      CheckBooks(scheduler_->requests());
    }
  }

  // ---- A step -----------------------------------------------------------------------------

  void Step() {
    std::span<const ServedToken> served;
    try {
      served = Serve();
    } catch (const std::exception& error) {
      return Fault(fmt::format("a step threw: {}", error.what()));
    }
    if (run_.finding) return;
    const std::vector<RequestStatus> after = scheduler_->requests();
    CheckServed(served);
    if (!run_.finding) CheckOrder(after);
    if (!run_.finding) CheckStep(after, served);
    if (!run_.finding) CheckRows(after);
    if (!run_.finding) CheckBooks(after);
  }

  // The step itself, where asked for behind many with an allocation that fails.
  std::span<const ServedToken> Serve() {
    for (int64_t n = 0;; n += 1 + n / 8) {
      before_ = scheduler_->requests();
      counters_ = scheduler_->counters();
      if (!options_.fail_allocation) return driver_->Step();
      options_.fail_allocation(n);
      try {
        const auto served = driver_->Step();
        options_.fail_allocation(-1);
        return served;
      } catch (const std::bad_alloc&) {
        options_.fail_allocation(-1);
      }
      ++run_.failed_steps;
      const std::vector<RequestStatus> after = scheduler_->requests();
      CheckOrder(after);
      CheckBooks(after);
      if (after.size() != before_.size()) Fault("a failed step ended a request");
      if (run_.finding) return {};
    }
  }

  void CheckServed(std::span<const ServedToken> served) {
    int64_t latest = 0;
    for (const ServedToken& token : served) {
      if (token.id <= latest || !Known(token.id) || FindStatus(before_, token.id) == nullptr) {
        return Fault(fmt::format("a token for request {} behind {}", token.id, latest));
      }
      latest = token.id;
      ServeExpected& expected = Of(token.id);
      const size_t at = expected.given++;
      if (expected.ended || at >= expected.alone.tokens.size()) {
        return Fault(fmt::format("request {} goes on after its end", token.id));
      }
      if (FirstFloatDifference(token.logits, expected.alone.logits[at]) >= 0) {
        return Fault(fmt::format("request {}: the logits of token {} differ", token.id, at));
      }
      if (token.token != expected.alone.tokens[at]) {
        return Fault(fmt::format("request {}: token {} is {}, alone {}", token.id, at, token.token,
                                 expected.alone.tokens[at]));
      }
      expected.ended = at + 1 == expected.alone.tokens.size();
      if (token.last != expected.ended) Fault(fmt::format("request {} ends elsewhere", token.id));
      Count(ServeClass::kStopped,
            expected.ended && std::cmp_less(expected.given, expected.request.new_tokens));
      Count(ServeClass::kDrawsAfterPreemption, expected.resumes && expected.request.sampler != 0);
    }
  }

  void CheckStep(const std::vector<RequestStatus>& after, std::span<const ServedToken> served) {
    const ServeStep step = {.trace = trace_,
                            .pool = pool_,
                            .index = index_.get(),
                            .before = before_,
                            .after = after,
                            .served = served,
                            .counters_before = counters_,
                            .counters_after = scheduler_->counters()};
    const std::vector<ServeGrowth> growth = GrowthIn(step, expected_);
    if (const auto fault = GrowthFault(step, growth)) return Fault(*fault);
    if (const auto fault = CounterFault(step, growth, expected_)) return Fault(*fault);
    NoteGrowth(growth, &expected_);
    CountShapes(step, growth, expected_, &run_.classes);
  }

  // The oldest run, and everybody has the tokens that were given.
  void CheckOrder(const std::vector<RequestStatus>& all) {
    int32_t running = 0;
    bool waits = false;
    int64_t older = 0;
    for (const RequestStatus& status : all) {
      if (status.id <= older) Fault(fmt::format("request {} is behind {}", status.id, older));
      older = status.id;
      if (!Known(status.id)) return Fault(fmt::format("nobody asked for request {}", status.id));
      const bool runs = status.state != RequestState::kWaiting;
      if (runs && waits) Fault(fmt::format("request {} runs before an older one", status.id));
      waits = waits || !runs;
      running += runs ? 1 : 0;
      const ServeExpected& expected = Of(status.id);
      if (!std::cmp_equal(status.new_tokens, expected.given) || expected.ended) {
        Fault(fmt::format("request {} has {} tokens, it was given {}", status.id, status.new_tokens,
                          expected.given));
      }
      if (scheduler_->counters().steps > expected.deadline) {
        Fault(fmt::format("request {} starves", status.id));
      }
    }
    if (running > trace_.running) Fault(fmt::format("{} run", running));
    Count(ServeClass::kWaitedForPlace, waits && running == trace_.running);
    const bool room = running > 0 && running < trace_.running &&
                      scheduler_->counters().rows - counters_.rows < trace_.budget;
    Count(ServeClass::kWaitedForBlocks, waits && room);
  }

  // ---- What is left -----------------------------------------------------------------------

  void CheckRows(const std::vector<RequestStatus>& all) {
    for (const RequestStatus& status : all) {
      if (status.cache == nullptr) continue;
      const auto& rows = Of(status.id).alone.rows;
      const auto held = static_cast<size_t>(status.rows);
      if (held >= rows.size() || DigestOfCache(*status.cache) != rows[held]) {
        Fault(fmt::format("request {}: its {} rows differ", status.id, status.rows));
      }
    }
  }

  void CheckBooks(const std::vector<RequestStatus>& all) {
    if (pool_ == nullptr) return;
    std::vector<const PagedKvCache*> caches = {static_cast<const PagedKvCache*>(root_.get())};
    for (const RequestStatus& status : all) {
      if (status.cache != nullptr) {
        caches.push_back(static_cast<const PagedKvCache*>(status.cache));
      }
    }
    const auto held = index_ == nullptr ? std::vector<int32_t>() : index_->blocks();
    for (const std::string& fault : AuditBlocks(*pool_, caches, held)) Fault(fault);
  }

  void End() {
    DigestBuilder digest;
    for (const ServeExpected& expected : expected_) {
      if (expected.cancelled) continue;
      if (!expected.ended) Fault("a request never ended");
      for (size_t i = 0; i < expected.given; ++i) {
        digest.AddU32(static_cast<uint32_t>(expected.alone.tokens[i]));
        digest.AddFloats(expected.alone.logits[i]);
      }
    }
    run_.digest = digest.Finish();
    if (index_ != nullptr) index_->Clear();
    if (pool_ != nullptr && pool_->used_blocks() > 0) {
      Fault(fmt::format("{} blocks are not back", pool_->used_blocks()));
    }
    Count(ServeClass::kThreads, trace_.threads > 1);
    Count(ServeClass::kOneARequest, pool_ == nullptr);
  }

  const ServeTrace& trace_;
  const ServeRunOptions& options_;
  std::shared_ptr<const EngineModel> model_;
  CacheSpec spec_;
  KvGeometry geometry_;
  std::unique_ptr<KvCache> root_;
  const BlockPool* pool_;
  Transformer engine_;
  std::unique_ptr<PrefixIndex> index_;
  std::unique_ptr<PrefixCache> prefixes_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<ServeDriver> driver_;
  std::vector<ServeExpected> expected_;  // by id
  std::vector<RequestStatus> before_;
  SchedulerCounters counters_;  // before the step
  int32_t step_ = 0;
  ServeRun run_;
};

}  // namespace

ServeRun RunServeTrace(const ServeTrace& trace, const ServeRunOptions& options) {
  return TraceRun(trace, options).Run();
}

}  // namespace lockstep
