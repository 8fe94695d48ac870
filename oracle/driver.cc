#include "oracle/driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <thread>

#include "caches/check.h"
#include "caches/registry.h"
#include "engine/stopwatch.h"

namespace lockstep {
namespace {

// One of the two executions: engine, cache, what it observed.
class Execution {
 public:
  Execution(const DriverOptions& options, const Side& side)
      : rule_(side.rule),
        inner_(*side.cache),
        counting_(*side.cache),
        engine_(options.model, {.kernels = options.kernels,
                                .max_step_tokens = options.max_step_tokens,
                                .device = side.device,
                                .device_layers = side.rule.device_layers}),
        step_rows_(std::min(options.max_step_tokens, side.cache->max_step_rows())) {
    engine_.SetAdapters(options.adapters);
    LS_CHECK(inner_.current_length() == 0, "the cache holds {} rows", inner_.current_length());
  }

  void Step(std::span<const int32_t> tokens, std::span<const int32_t> positions) {
    trace_.Reset();
    counting_.Reset();
    failure_ = nullptr;
    logits_ = {};
    const Stopwatch stopwatch;
    try {
      logits_ = engine_.Forward(tokens, positions, counting_, &trace_);
    } catch (...) {
      failure_ = std::current_exception();
    }
    seconds_ += stopwatch.seconds();
  }

  void Rollback(int32_t length) { counting_.Rollback(length); }

  // After a step that was compared and found equal.
  void Accept() {
    logits_digest_.AddFloats(logits_);
    tokens_.push_back(ArgMax(logits_));
    for (int32_t layer = 0; layer < geometry().num_layers; ++layer) counts_ += Observed(layer);
  }

  PathCounts Observed(int32_t layer) const {
    const Counters& c = counting_.layer(layer);
    return {c.reserve_granted, c.reserve_refused, c.commits, c.updates, c.on_device};
  }

  // What the rule asks of the layer for a step of `count` rows from `first`.
  PathCounts Expected(int32_t layer, int32_t first, int32_t count) const {
    constexpr int64_t kDeviceCalls = 3;  // reserve; commit or update; view
    PathCounts expected;
    for (int32_t done = 0; done < count; done += step_rows_) {
      const int32_t rows = std::min(step_rows_, count - done);
      if (layer < rule_.device_layers) expected.on_device += kDeviceCalls;
      if (rule_.Direct(layer, first + done, rows)) {
        ++expected.granted;
        ++expected.commits;
      } else {
        ++expected.refused;
        ++expected.updates;
      }
    }
    return expected;
  }

  SideResult Result() const {
    return {logits_digest_.Finish(), DigestOfCache(inner_), tokens_, counts_, seconds_};
  }

  const KvCache& cache() const { return inner_; }
  const KvGeometry& geometry() const { return inner_.geometry(); }
  std::span<const float> logits() const { return logits_; }
  std::span<const RecordingTrace::Entry> trace() const { return trace_.entries(); }
  const std::exception_ptr& failure() const { return failure_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }

 private:
  PathRule rule_;
  const KvCache& inner_;
  CountingCache counting_;
  Transformer engine_;
  int32_t step_rows_;
  RecordingTrace trace_;
  std::exception_ptr failure_;
  std::span<const float> logits_;
  DigestBuilder logits_digest_;
  std::vector<int32_t> tokens_;
  PathCounts counts_;
  double seconds_ = 0;
};

// What one side threw: the layer, where the engine knows it, and the sentence.
struct Failure {
  int32_t layer = -1;
  std::string what;
};

Failure Describe(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const BrokenCache& e) {
    return {e.layer(), e.what()};
  } catch (const std::exception& e) {
    return {-1, e.what()};
  } catch (...) {
    return {-1, "an exception of unknown type"};
  }
}

Difference Plain(Difference::Kind kind, int32_t layer, std::string place, std::string detail) {
  Difference difference;
  difference.kind = kind;
  difference.layer = layer;
  difference.place = std::move(place);
  difference.detail = std::move(detail);
  return difference;
}

std::optional<Difference> ExceptionDifference(const Execution& subject, const Execution& oracle) {
  if (!subject.failure() && !oracle.failure()) return std::nullopt;
  if (subject.failure() && oracle.failure()) std::rethrow_exception(oracle.failure());
  const bool in_subject = subject.failure() != nullptr;
  const Failure failure = Describe(in_subject ? subject.failure() : oracle.failure());
  return Plain(Difference::Kind::kException, failure.layer, "exception",
               fmt::format("the {} threw: {}", in_subject ? "subject" : "oracle", failure.what));
}

std::optional<Difference> LengthDifference(const Execution& subject, const Execution& oracle) {
  for (int32_t layer = 0; layer < subject.geometry().num_layers; ++layer) {
    const int32_t a = subject.cache().length(layer);
    const int32_t b = oracle.cache().length(layer);
    if (a != b) {
      return Plain(Difference::Kind::kLength, layer, "length",
                   fmt::format("subject {}, oracle {}", a, b));
    }
  }
  return std::nullopt;
}

// The lowest layer whose visible rows differ.
std::optional<Difference> CacheDifference(const Execution& subject, const Execution& oracle) {
  for (int32_t layer = 0; layer < subject.geometry().num_layers; ++layer) {
    if (DigestOfLayer(subject.cache(), layer) == DigestOfLayer(oracle.cache(), layer)) continue;
    auto difference = FirstRowDifference(subject.cache(), oracle.cache(), layer);
    LS_CHECK(difference, "layer {}: digests differ and rows do not", layer);
    return difference;
  }
  return std::nullopt;
}

std::optional<Difference> LogitsDifference(const Execution& subject, const Execution& oracle) {
  const int64_t index = FirstFloatDifference(subject.logits(), oracle.logits());
  if (index < 0) return std::nullopt;
  Difference difference = Plain(Difference::Kind::kLogits, -1, "logits", "");
  difference.element = index;
  difference.subject = subject.logits()[static_cast<size_t>(index)];
  difference.oracle = oracle.logits()[static_cast<size_t>(index)];
  return difference;
}

std::optional<Difference> PathDifference(const Execution& side, const char* name, int32_t first,
                                         int32_t count) {
  for (int32_t layer = 0; layer < side.geometry().num_layers; ++layer) {
    const PathCounts expected = side.Expected(layer, first, count);
    const PathCounts observed = side.Observed(layer);
    if (observed == expected) continue;
    return Plain(
        Difference::Kind::kPath, layer, "write path",
        fmt::format("the {} had to see {} slots granted, {} refused, {} commits, {} updates, {} "
                    "calls on a device, and saw {}, {}, {}, {}, {}",
                    name, expected.granted, expected.refused, expected.commits, expected.updates,
                    expected.on_device, observed.granted, observed.refused, observed.commits,
                    observed.updates, observed.on_device));
  }
  return std::nullopt;
}

// The earliest cause among everything that differs after a step: a row from before the step, else
// the first traced stage, else a row of the step, else the logits.
std::optional<Difference> ContentDifference(const Execution& subject, const Execution& oracle,
                                            int32_t first) {
  auto row = CacheDifference(subject, oracle);
  auto stage = FirstTraceDifference(subject.trace(), oracle.trace());
  if (row && row->position < first && (!stage || row->layer <= stage->layer)) {
    row->kind = Difference::Kind::kBetweenSteps;
    return row;
  }
  if (stage) return stage;
  if (row) return row;
  return LogitsDifference(subject, oracle);
}

std::optional<Difference> Compare(const Execution& subject, const Execution& oracle, int32_t first,
                                  int32_t count, bool compare_storage) {
  if (auto difference = ExceptionDifference(subject, oracle)) return difference;
  if (auto difference = LengthDifference(subject, oracle)) return difference;
  if (auto difference = ContentDifference(subject, oracle, first)) return difference;
  if (auto difference = PathDifference(subject, "subject", first, count)) return difference;
  if (auto difference = PathDifference(oracle, "oracle", first, count)) return difference;
  if (compare_storage && subject.cache().StorageDigest() != oracle.cache().StorageDigest()) {
    return Plain(Difference::Kind::kStorage, -1, "stored bytes",
                 "the rows read equal, the bytes behind them differ");
  }
  return std::nullopt;
}

}  // namespace

bool PathRule::Direct(int32_t layer, int32_t first, int32_t count) const {
  if (layer < device_layers) return grants_device_slots;
  if (!grants_host_slots) return false;
  const int32_t ring = ring_rows.empty() ? 0 : ring_rows[static_cast<size_t>(layer)];
  const int32_t piece = std::max(block_size, ring);
  return piece == 0 || first / piece == (first + count - 1) / piece;
}

std::vector<int32_t> RingRowsOf(const CacheSpec& spec, const KvGeometry& geometry) {
  std::vector<int32_t> rows;
  for (const int32_t window : WindowsOf(spec, geometry)) {
    rows.push_back(window == 0 ? 0 : window + 2 * spec.undo_rows);
  }
  return rows;
}

PathCounts& PathCounts::operator+=(const PathCounts& other) {
  granted += other.granted;
  refused += other.refused;
  commits += other.commits;
  updates += other.updates;
  on_device += other.on_device;
  return *this;
}

namespace {

// The two executions and what came of comparing them so far.
class Lockstep {
 public:
  Lockstep(const DriverOptions& options, const Side& subject, const Side& oracle)
      : options_(options), subject_(options, subject), oracle_(options, oracle) {}

  // Runs and compares one step; false when something differs, and nothing may follow.
  bool Step(std::span<const int32_t> tokens, std::span<const int32_t> positions) {
    if (options_.on_step) options_.on_step(result_.steps);
    // A row that changed since the last comparison has no other cause than time passing.
    result_.difference = CacheDifference(subject_, oracle_);
    if (result_.difference) {
      result_.difference->kind = Difference::Kind::kBetweenSteps;
    } else {
      std::thread oracle_thread([&] { oracle_.Step(tokens, positions); });
      subject_.Step(tokens, positions);
      oracle_thread.join();
      result_.difference =
          Compare(subject_, oracle_, positions.front(), static_cast<int32_t>(positions.size()),
                  options_.compare_storage);
    }
    if (Stopped()) return false;
    subject_.Accept();
    oracle_.Accept();
    ++result_.steps;
    return true;
  }

  // The last step's token at the next position.
  bool Decode() {
    const int32_t token = subject_.tokens().back();
    const int32_t position = subject_.cache().current_length();
    return Step({&token, 1}, {&position, 1});
  }

  // Rolls both sides back by `rows`, then decodes as many again, beginning with another token than
  // the one that was there, so that a rejected row that comes back is not the right one by chance.
  bool RollbackAndRedo(int32_t rows) {
    const int32_t length = subject_.cache().current_length() - rows;
    subject_.Rollback(length);
    oracle_.Rollback(length);
    result_.difference = LengthDifference(subject_, oracle_);
    if (Stopped()) return false;
    const int32_t vocab_size = options_.model->config().vocab_size;
    const int32_t token = (subject_.tokens().back() + 1) % vocab_size;
    if (!Step({&token, 1}, {&length, 1})) return false;
    for (int32_t i = 1; i < rows; ++i) {
      if (!Decode()) return false;
    }
    return true;
  }

  DriverResult Finish() {
    result_.subject = subject_.Result();
    result_.oracle = oracle_.Result();
    return std::move(result_);
  }

 private:
  bool Stopped() {
    if (!result_.difference) return false;
    result_.difference->step = result_.steps;
    return true;
  }

  const DriverOptions& options_;
  Execution subject_;
  Execution oracle_;
  DriverResult result_;
};

}  // namespace

DriverResult RunLockstep(const DriverOptions& options, const Side& subject, const Side& oracle) {
  LS_CHECK(!options.prompt.empty(), "an empty prompt");
  LS_CHECK(options.redo_steps <= options.decode_steps, "{} of {} decode steps to redo",
           options.redo_steps, options.decode_steps);
  Lockstep run(options, subject, oracle);
  std::vector<int32_t> positions(options.prompt.size());
  std::iota(positions.begin(), positions.end(), 0);
  bool equal = run.Step(options.prompt, positions);
  for (int32_t i = 0; equal && i < options.decode_steps; ++i) equal = run.Decode();
  if (equal && options.redo_steps > 0) run.RollbackAndRedo(options.redo_steps);
  return run.Finish();
}

}  // namespace lockstep
