#include "oracle/matrix/run.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "caches/cache_file.h"
#include "caches/check.h"
#include "caches/random.h"
#include "oracle/faulty_cache.h"
#include "oracle/model_cache.h"

namespace lockstep {
namespace {

constexpr int32_t kRandomCutMax = 11;  // tokens
constexpr int32_t kForkTokens = 2;     // that the source of a fork writes after it

// The contract of a run's cache: written by one path, and counted.
std::unique_ptr<CountingCache> Dress(std::unique_ptr<KvCache> cache, Variation::Path path) {
  if (path == Variation::Path::kLegacy) {
    cache = std::make_unique<UpdateOnlyCache>(std::move(cache));
  } else if (path == Variation::Path::kOneLayerRefused) {
    cache = std::make_unique<FaultyCache>(std::move(cache), ParsePlant("refuse-reserve:layer=0"));
  }
  return std::make_unique<CountingCache>(std::move(cache));
}

// `empty`, once it holds what the file of `live` says.
std::unique_ptr<KvCache> Restored(const KvCache& live, std::unique_ptr<KvCache> empty) {
  StateWriter writer;
  live.SaveState(&writer);
  const std::vector<std::byte> file = writer.Finish();
  StateReader reader(file, "the saved cache");
  empty->LoadState(&reader);
  return empty;
}

std::shared_ptr<Device> MakeDeviceFor(Variation::On on, uint64_t seed) {
  switch (on) {
    case Variation::On::kHost:
      return nullptr;
    case Variation::On::kExecutor:
      return MakeHostExecutor();
    case Variation::On::kAnyOrder:
      return MakeHostExecutor({.seed = seed | 1});  // 0 is no order
    case Variation::On::kCuda:
      return MakeDevice("cuda");
  }
  LS_CHECK(false, "device {}", static_cast<int>(on));
  return nullptr;
}

// Another sequence in the same steps: one to five tokens in each, and from the start again when its
// cache is full, so that it is in its prefill while others decode.
class Neighbour {
 public:
  Neighbour(std::unique_ptr<KvCache> cache, int32_t vocab_size, int32_t index)
      : cache_(std::move(cache)), vocab_size_(vocab_size), step_(index) {}

  BatchSequence Next() {
    const int32_t count = 1 + 3 * step_ % 5;
    if (cache_->current_length() + count > cache_->max_length()) cache_->Rollback(0);
    tokens_.resize(static_cast<size_t>(count));
    positions_.resize(tokens_.size());
    std::iota(positions_.begin(), positions_.end(), cache_->current_length());
    for (int32_t& token : tokens_) token = 17 * ++made_ % vocab_size_;
    ++step_;
    return {.tokens = tokens_, .positions = positions_, .cache = cache_.get()};
  }

 private:
  std::unique_ptr<KvCache> cache_;
  int32_t vocab_size_;
  int32_t step_;
  int32_t made_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> positions_;
};

}  // namespace

// The sequence under test, its cache, and what shares its steps.
class MatrixRunner::Sequence {
 public:
  Sequence(Transformer& engine, std::unique_ptr<CountingCache> cache,
           std::span<const AppliedAdapter> adapters)
      : engine_(engine), adapters_(adapters), counting_(*cache), cache_(std::move(cache)) {}

  void Share(Variation::Batch rank, std::vector<Neighbour> neighbours) {
    rank_ = rank;
    neighbours_ = std::move(neighbours);
  }

  KvCache& cache() { return *cache_; }
  Counters counters() const { return counting_.total(); }  // of the first cache

  // Goes on with another cache. The first one lives on, as the source of a fork does.
  void Replace(std::unique_ptr<KvCache> cache) {
    replaced_ = std::move(cache_);
    cache_ = std::move(cache);
  }

  std::span<const float> Step(std::span<const int32_t> tokens) {
    std::vector<int32_t> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), cache_->current_length());
    if (neighbours_.empty() && adapters_.empty()) {
      return engine_.Forward(tokens, positions, *cache_);
    }
    std::vector<BatchSequence> batch;
    for (Neighbour& neighbour : neighbours_) batch.push_back(neighbour.Next());
    const auto own = static_cast<size_t>(rank_ == Variation::Batch::kFirst    ? 0
                                         : rank_ == Variation::Batch::kMiddle ? 1
                                                                              : batch.size());
    batch.insert(
        batch.begin() + static_cast<std::ptrdiff_t>(own),
        {.tokens = tokens, .positions = positions, .cache = cache_.get(), .adapters = adapters_});
    const std::span<const float> logits = engine_.ForwardBatch(batch);
    const size_t vocab = logits.size() / batch.size();
    return logits.subspan(own * vocab, vocab);
  }

  std::span<const float> Prefill(std::span<const int32_t> prompt,
                                 const std::vector<int32_t>& cuts) {
    std::span<const float> logits;
    for (const int32_t count : cuts) {
      logits = Step(prompt.first(static_cast<size_t>(count)));
      prompt = prompt.subspan(static_cast<size_t>(count));
    }
    return logits;
  }

 private:
  Transformer& engine_;
  std::span<const AppliedAdapter> adapters_;
  CountingCache& counting_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<KvCache> replaced_;
  Variation::Batch rank_ = Variation::Batch::kAlone;
  std::vector<Neighbour> neighbours_;
};

MatrixRunner::MatrixRunner(const MatrixModel& model, int32_t decode_steps, uint64_t seed)
    : model_(model), decode_steps_(decode_steps), seed_(seed) {}

KvGeometry MatrixRunner::Geometry() const {
  const auto prompt = static_cast<int32_t>(model_.prompt.size());
  return model_.model->config().geometry(prompt + std::max(decode_steps_, 3));
}

Transformer& MatrixRunner::Engine(const KernelTable& kernels, const Variation& variation) {
  const EngineKind kind = {&kernels, variation.threads, variation.on, variation.device_layers};
  if (engine_ == nullptr || engine_kind_ != kind) {
    engine_ = nullptr;  // never two pools of threads at a time
    device_ = MakeDeviceFor(variation.on, seed_);
    engine_ = std::make_unique<Transformer>(
        model_.model, TransformerOptions{.kernels = &kernels,
                                         .threads = variation.threads,
                                         .device = device_,
                                         .device_layers = variation.device_layers});
    engine_kind_ = kind;
  }
  return *engine_;
}

std::vector<int32_t> MatrixRunner::Cuts(int32_t chunk) const {
  const auto total = static_cast<int32_t>(model_.prompt.size());
  Random random = Random(seed_).Split(model_.prompt.size());
  std::vector<int32_t> cuts;
  for (int32_t done = 0; done < total; done += cuts.back()) {
    int32_t count = chunk == Variation::kWhole ? total : chunk;
    if (chunk == Variation::kRandom) count = random.Between(1, kRandomCutMax);
    cuts.push_back(std::min(count, total - done));
  }
  return cuts;
}

RunOutcome MatrixRunner::RunReference(const RowSemantics& semantics, const KernelTable& kernels,
                                      std::vector<int32_t>* decoded) {
  auto model = std::make_unique<ModelCache>(ModelCacheOptions{.geometry = Geometry(),
                                                              .key_type = semantics.key_type,
                                                              .value_type = semantics.value_type,
                                                              .window = semantics.window,
                                                              .window_type = semantics.window_type,
                                                              .max_step_rows = semantics.undo_rows,
                                                              .windows = semantics.windows});
  Sequence sequence(Engine(kernels, {}), Dress(std::move(model), Variation::Path::kLegacy),
                    model_.adapters);
  RunOutcome outcome;
  std::span<const float> logits = sequence.Prefill(model_.prompt, Cuts(Variation::kWhole));
  outcome.logits.push_back(DigestOfFloats(logits));
  for (int32_t i = 0; i < decode_steps_; ++i) {
    decoded->push_back(ArgMax(logits));
    logits = sequence.Step({&decoded->back(), 1});
    outcome.logits.push_back(DigestOfFloats(logits));
  }
  outcome.rows = DigestOfCache(sequence.cache());
  outcome.storage = sequence.cache().StorageDigest();
  return outcome;
}

RunOutcome MatrixRunner::Run(const CacheMaker& make, const KernelTable& kernels,
                             const Variation& variation, const std::vector<int32_t>& decoded) {
  RunOutcome outcome;
  try {
    Transformer& engine = Engine(kernels, variation);
    Sequence sequence(engine, Dress(make(Geometry(), device_), variation.path), model_.adapters);
    if (variation.batch != Variation::Batch::kAlone) {
      std::vector<Neighbour> neighbours;
      const int32_t vocab_size = model_.model->config().vocab_size;
      for (int32_t n = 1; n <= 2; ++n)
        neighbours.emplace_back(make(Geometry(), device_), vocab_size, n);
      sequence.Share(variation.batch, std::move(neighbours));
    }
    outcome.logits.push_back(DigestOfFloats(Begin(&sequence, variation, decoded)));
    for (size_t i = 0; i < decoded.size(); ++i) {
      outcome.logits.push_back(DigestOfFloats(sequence.Step({&decoded[i], 1})));
      if (i > 0) continue;
      if (variation.detour == Variation::Detour::kRestore) {
        sequence.Replace(
            Restored(sequence.cache(), Dress(make(Geometry(), device_), variation.path)));
      } else if (variation.detour == Variation::Detour::kFork) {
        std::unique_ptr<KvCache> fork = sequence.cache().Fork();
        for (int32_t n = 0; n < kForkTokens; ++n) sequence.Step({&decoded[i], 1});
        sequence.Replace(std::move(fork));
      }
    }
    outcome.rows = DigestOfCache(sequence.cache());
    outcome.storage = sequence.cache().StorageDigest();
    outcome.granted = sequence.counters().reserve_granted;
    outcome.refused = sequence.counters().reserve_refused;
  } catch (const UnsupportedOnDevice& error) {
    outcome.unsupported = error.what();
  } catch (const std::exception& error) {
    outcome.failure = error.what();
  }
  return outcome;
}

std::span<const float> MatrixRunner::Begin(Sequence* sequence, const Variation& variation,
                                           const std::vector<int32_t>& decoded) {
  const std::vector<int32_t> cuts = Cuts(variation.chunk);
  if (variation.detour == Variation::Detour::kRestart) {
    sequence->Prefill(model_.prompt, cuts);
    sequence->Step({decoded.data(), 1});
    sequence->cache().Rollback(0);
  }
  const std::span<const float> logits = sequence->Prefill(model_.prompt, cuts);
  if (variation.detour != Variation::Detour::kReject) return logits;
  logits_.assign(logits.begin(), logits.end());
  for (int32_t n = 0; n < variation.rejected; ++n) {
    const int32_t other = (decoded[0] + 1 + n) % model_.model->config().vocab_size;
    sequence->Step({&other, 1});
  }
  sequence->cache().Rollback(static_cast<int32_t>(model_.prompt.size()));
  return logits_;
}

}  // namespace lockstep
