#include "reports/engine_meter.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "caches/check.h"
#include "caches/error.h"
#include "caches/random.h"
#include "caches/registry.h"
#include "engine/kernels.h"
#include "engine/stopwatch.h"

namespace lockstep {
namespace {

constexpr int32_t kStepTokens = 512;
constexpr int32_t kPrefillRoom = -1;

}  // namespace

std::string EnginePoint::name() const {
  return fmt::format("{} {}", phase == Phase::kPrefill ? "prefill" : "decode", tokens);
}

EngineMeter::EngineMeter(std::shared_ptr<const Model> model, const EngineMeterOptions& options)
    : model_(std::move(model)), options_(options) {
  const ModelConfig& config = model_->config();
  if (options_.max_positions > config.context_length) {
    throw Error({"benchmark",
                 fmt::format("a point needs {} positions, the model's context has {}",
                             options_.max_positions, config.context_length),
                 "choose shorter prompts and depths"});
  }
  Random random(options_.seed);
  for (int32_t i = 0; i < options_.max_positions; ++i) {
    tokens_.push_back(random.Between(0, config.vocab_size - 1));
  }
  positions_.resize(tokens_.size());
  std::iota(positions_.begin(), positions_.end(), 0);
  logits_.resize(static_cast<size_t>(options_.decode_tokens) *
                 static_cast<size_t>(config.vocab_size));
}

void EngineMeter::CheckCache(const std::string& name) const {
  CheckFits(ParseCacheSpec(name), model_->config().geometry(1), fmt::format("cache '{}'", name));
}

Transformer& EngineMeter::EngineOf(const EnginePoint& point) {
  auto& engine = engines_[{point.isa, point.threads}];
  if (engine == nullptr) {
    engine = std::make_unique<Transformer>(model_,
                                           TransformerOptions{.kernels = &SelectKernels(point.isa),
                                                              .max_step_tokens = kStepTokens,
                                                              .threads = point.threads});
  }
  return *engine;
}

EngineMeter::Room& EngineMeter::RoomOf(const std::string& cache, int32_t depth) {
  Room& room = rooms_[{cache, depth}];
  if (room.cache == nullptr) {
    CheckCache(cache);
    room.cache = ParseCacheSpec(cache).make(
        {.geometry = model_->config().geometry(options_.max_positions), .sequences = 1});
  }
  return room;
}

std::span<const float> EngineMeter::Forward(Transformer& engine, int32_t first, int32_t count,
                                            KvCache* cache) const {
  const auto from = static_cast<size_t>(first), size = static_cast<size_t>(count);
  return engine.Forward(std::span(tokens_).subspan(from, size),
                        std::span(positions_).subspan(from, size), *cache);
}

Timing EngineMeter::Measure(const EnginePoint& point) {
  return point.phase == Phase::kPrefill ? MeasurePrefill(point) : MeasureDecode(point);
}

Timing EngineMeter::MeasurePrefill(const EnginePoint& point) {
  Transformer& engine = EngineOf(point);
  KvCache* cache = RoomOf(point.cache, kPrefillRoom).cache.get();
  cache->Clear();
  const LoadMeter load;
  const Stopwatch stopwatch;
  const std::span<const float> logits = Forward(engine, 0, point.tokens, cache);
  const double seconds = stopwatch.seconds();
  return {.seconds = seconds, .digest = DigestOfFloats(logits), .load = load.Load()};
}

Timing EngineMeter::MeasureDecode(const EnginePoint& point) {
  Transformer& engine = EngineOf(point);
  Room& room = RoomOf(point.cache, point.tokens);
  // Rows that left an exact window stay outside when a rollback brings them back, and forgotten
  // ones cannot be brought back: filled anew.
  const bool refill = room.cache->view_depends_on_query() || room.filled != point.tokens ||
                      !CanRollback(*room.cache, point.tokens);
  room.cache->Rollback(refill ? 0 : point.tokens);
  if (refill && point.tokens > 0) Forward(engine, 0, point.tokens, room.cache.get());
  room.filled = point.tokens;

  const auto vocab = static_cast<std::ptrdiff_t>(model_->config().vocab_size);
  Timing timing;
  int32_t token = tokens_[static_cast<size_t>(point.tokens)];
  const LoadMeter load;
  for (int32_t i = 0; i < options_.decode_tokens; ++i) {
    const int32_t position = point.tokens + i;
    const Stopwatch stopwatch;
    const auto logits = engine.Forward({&token, 1}, {&position, 1}, *room.cache);
    timing.seconds += stopwatch.seconds();
    std::ranges::copy(logits, logits_.begin() + i * vocab);
    token = ArgMax(logits);
  }
  timing.load = load.Load();
  timing.digest = DigestOfFloats(logits_);
  return timing;
}

double EngineMeter::TokensOf(const EnginePoint& point) const {
  return point.phase == Phase::kPrefill ? point.tokens : options_.decode_tokens;
}

Work EngineMeter::WorkOf(const EnginePoint& point) const {
  if (point.phase == Phase::kPrefill) return PrefillWork(*model_, point.tokens, kStepTokens);
  const CacheSpec spec = ParseCacheSpec(point.cache);
  Work work;
  for (int32_t i = 0; i < options_.decode_tokens; ++i) {
    const Work step = DecodeWork(*model_, {spec.key_type, spec.value_type}, point.tokens + i);
    work.bytes += step.bytes;
    work.dot_multiply_adds += step.dot_multiply_adds;
    work.fma_multiply_adds += step.fma_multiply_adds;
  }
  return work;
}

std::vector<Digest> EngineMeter::LogitsInSteps(const EnginePoint& point, int32_t count,
                                               int32_t batch, int32_t stride) {
  LS_CHECK(batch > 0 && stride % batch == 0, "steps of {}, stride {}", batch, stride);
  Transformer& engine = EngineOf(point);
  KvCache* cache = RoomOf(point.cache, kPrefillRoom).cache.get();
  cache->Clear();
  std::vector<Digest> digests;
  for (int32_t first = 0; first < count; first += batch) {
    const int32_t size = std::min(batch, count - first);
    const auto logits = Forward(engine, first, size, cache);
    if ((first + size) % stride == 0) digests.push_back(DigestOfFloats(logits));
  }
  return digests;
}

Digest EngineMeter::LogitsAtOnce(const EnginePoint& point, int32_t count) {
  Transformer& engine = EngineOf(point);
  KvCache* cache = RoomOf(point.cache, kPrefillRoom).cache.get();
  cache->Clear();
  return DigestOfFloats(Forward(engine, 0, count, cache));
}

std::vector<LimitSample> MeasureLimits(MachineLimits* limits, std::span<const std::string> kernels,
                                       int32_t threads) {
  const double bandwidth = limits->ReadBandwidth(threads);
  std::vector<LimitSample> samples;
  for (const std::string& name : kernels) {
    const std::string isa(InstructionSetOf(name, limits->instruction_sets()));
    samples.push_back({.threads = threads,
                       .isa = isa,
                       .read_bandwidth = bandwidth,
                       .dot_peak = limits->DotPeak(isa, threads).value(),
                       .fma_peak = limits->FmaPeak(isa, threads).value()});
  }
  return samples;
}

double SecondsAtBest(Phase phase, const Work& work, const LimitSample& limits) {
  if (phase == Phase::kDecode) return work.bytes / limits.read_bandwidth;
  return work.dot_multiply_adds / limits.dot_peak + work.fma_multiply_adds / limits.fma_peak;
}

}  // namespace lockstep
