// Times the engine at single points: one prompt, or one run of decode steps, after another.
#ifndef LOCKSTEP_REPORTS_ENGINE_METER_H_
#define LOCKSTEP_REPORTS_ENGINE_METER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "caches/digest.h"
#include "engine/model.h"
#include "engine/transformer.h"
#include "reports/limits.h"
#include "reports/work.h"

namespace lockstep {

enum class Phase { kPrefill, kDecode };

struct EnginePoint {
  Phase phase = Phase::kPrefill;
  int32_t tokens = 0;  // prefill: of the prompt; decode: depth, rows in the cache before the first
  std::string cache;   // a name of caches/registry.h
  std::string isa;     // a kernel table
  int32_t threads = 1;

  std::string name() const;  // "prefill 128", "decode 1024"
};

struct Timing {
  double seconds = 0;  // of all tokens of the sample
  Digest digest = {};  // of the logits: of the last token of a prompt, or of every decode step
  std::optional<ForeignLoad> load = {};
};

struct EngineMeterOptions {
  int32_t max_positions = 0;  // of the longest point, its decode steps included
  int32_t decode_tokens = 32;
  uint64_t seed = 1;  // of the prompt: uniform over the vocabulary; decoding goes on greedily
};

class EngineMeter {
 public:
  // Throws Error when max_positions is more than the model's context.
  EngineMeter(std::shared_ptr<const Model> model, const EngineMeterOptions& options);

  // One sample. Filling the cache for a decode point and hashing logits are not in its time.
  // Throws Error for an unknown kernel table or cache. REQUIRES: the point fits into max_positions.
  Timing Measure(const EnginePoint& point);

  // Of one sample.
  double TokensOf(const EnginePoint& point) const;
  Work WorkOf(const EnginePoint& point) const;

  // Digests of the logits at positions stride - 1, 2 * stride - 1, ... of a prompt of `count`
  // tokens, computed in steps of `batch`. REQUIRES: stride is a multiple of batch.
  std::vector<Digest> LogitsInSteps(const EnginePoint& point, int32_t count, int32_t batch,
                                    int32_t stride);
  // The digest of the logits at the last position of a prompt of `count` tokens in one step.
  Digest LogitsAtOnce(const EnginePoint& point, int32_t count);

  // Throws Error for a cache that is unknown or cannot hold the model's heads.
  void CheckCache(const std::string& name) const;

 private:
  // A cache, and how many positions of the prompt stand in it.
  struct Room {
    std::unique_ptr<KvCache> cache;
    int32_t filled = 0;
  };

  Transformer& EngineOf(const EnginePoint& point);
  Room& RoomOf(const std::string& cache, int32_t depth);
  std::span<const float> Forward(Transformer& engine, int32_t first, int32_t count,
                                 KvCache* cache) const;
  Timing MeasurePrefill(const EnginePoint& point);
  Timing MeasureDecode(const EnginePoint& point);

  std::shared_ptr<const Model> model_;
  EngineMeterOptions options_;
  std::vector<int32_t> tokens_;     // [max_positions]
  std::vector<int32_t> positions_;  // 0, 1, ...
  std::vector<float> logits_;       // [decode_tokens, vocab_size]
  std::map<std::pair<std::string, int32_t>, std::unique_ptr<Transformer>> engines_;
  std::map<std::pair<std::string, int32_t>, Room> rooms_;  // by cache and depth, -1 for prefill
};

// The limits of one moment for a number of threads and an instruction set.
struct LimitSample {
  int32_t threads = 1;
  std::string isa;            // of MachineLimits
  double read_bandwidth = 0;  // bytes/s
  double dot_peak = 0;        // multiply-adds/s
  double fma_peak = 0;        // multiply-adds/s
};

// For each of these kernel tables, in order. REQUIRES: threads > 0.
std::vector<LimitSample> MeasureLimits(MachineLimits* limits, std::span<const std::string> kernels,
                                       int32_t threads);

// The least time that the work takes at these limits:
//   decode    (bytes of weights + bytes of K and V rows read) / read bandwidth
//   prefill   8-bit multiply-adds / dot-product peak + F32 multiply-adds / FMA peak
double SecondsAtBest(Phase phase, const Work& work, const LimitSample& limits);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_ENGINE_METER_H_
