// Another engine on the same file, in the same run: llama.cpp's prebuilt binaries, driven by
// reports/peer/llama.mjs.
//
// Each round measures every point four times, ours, theirs, theirs, ours: a machine that becomes
// slower meanwhile slows both alike. The ratio of a round is theirs over ours, in seconds.
#ifndef LOCKSTEP_REPORTS_PEER_BENCH_H_
#define LOCKSTEP_REPORTS_PEER_BENCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/model.h"
#include "reports/engine_meter.h"
#include "reports/limits.h"
#include "reports/table.h"

namespace lockstep {

struct PeerBenchOptions {
  std::string model_path;            // GGUF, read by both
  std::vector<std::string> command;  // the driver; the path and the context length are added
  std::string isa;                   // our kernel table; empty: the one that SelectKernels gives
  std::string cache = "quantized/f16+f16/w0";  // what llama.cpp keeps by default
  std::vector<int32_t> threads = {1, 2};
  std::vector<int32_t> prefills = {128, 512};
  std::vector<int32_t> depths = {0, 1024};
  int32_t decode_tokens = 32;
  int32_t rounds = 7;
  int32_t bits_tokens = 322;  // prompt whose logits are compared with themselves; 0: not at all
  uint64_t seed = 1;
  LimitOptions limits;
  std::function<void(int32_t done, int32_t total)> on_sample = {};  // progress, may be empty
};

struct PeerRound {
  double ours = 0;    // seconds of one sample, mean of the round's two
  double theirs = 0;  // likewise
  double limit = 0;   // the least seconds at the round's limits
  std::optional<double> barrier_seconds = {};
  std::optional<ForeignLoad> load = {};  // while ours ran, the first time
};

struct PeerPoint {
  EnginePoint point;
  double tokens = 0;  // of one sample
  std::vector<PeerRound> rounds = {};
};

// Positions of one prompt whose logits changed, of those compared, against steps of one token on
// one thread.
struct ChangedBits {
  std::string how;  // "steps of 7 tokens, 1 thread"
  int32_t ours_changed = 0, ours_compared = 0;
  int32_t theirs_changed = 0, theirs_compared = 0;
};

struct PeerBenchResult {
  std::string peer;  // names, versions and features, as the driver says them
  uint64_t seed = 0;
  std::vector<PeerPoint> points;
  std::vector<ChangedBits> bits;

  bool ours_is_invariant() const;  // no bit of ours changed
};

// Throws Error when the driver cannot be run or fails, and as RunEngineBench does.
PeerBenchResult RunPeerBench(std::shared_ptr<const Model> model, const PeerBenchOptions& options);

// One row a point: tokens/s of both, the ratio with a 95 % confidence interval (bootstrap, from the
// result's seed), the limit, and both as fractions of it.
Table PeerTable(const PeerBenchResult& result);
Table ChangedBitsTable(const PeerBenchResult& result);

// Barrier latency and foreign load over all rounds, in one line.
std::string PeerLoadLine(const PeerBenchResult& result);

std::string PeerMarkdown(const PeerBenchResult& result, const std::string& command,
                         const std::string& model);
std::string PeerJson(const PeerBenchResult& result, const std::string& command,
                     const std::string& model);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_PEER_BENCH_H_
