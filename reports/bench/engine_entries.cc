// The engine: prompts, and decoding alone, with the prompt before it outside the time.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>

#include "engine/kernels.h"
#include "engine/synthetic.h"
#include "engine/thread_team.h"
#include "reports/bench/entries.h"
#include "reports/bench/serve_case.h"
#include "reports/engine_meter.h"

namespace lockstep::internal {
namespace {

constexpr std::string_view kBenchPreset = "smollm-135m";
constexpr std::string_view kSmallPreset = "tiny-segments-6x2-q8_0";

std::shared_ptr<const Model> BenchModel(bool small) {
  const char* path = std::getenv("LOCKSTEP_BENCH_MODEL");
  if (!small && path != nullptr && *path != '\0') return Model::Load(GgufFile::Open(path));
  constexpr uint64_t kSeed = 1;
  return Model::Load(
      MakeSyntheticModel(SyntheticPreset(small ? kSmallPreset : kBenchPreset), kSeed));
}

MadeBench MadeEngine(const EnginePoint& point, bool small) {
  const int32_t decode_tokens = small ? 2 : 8;
  const auto meter = std::make_shared<EngineMeter>(
      BenchModel(small), EngineMeterOptions{.max_positions = point.tokens + decode_tokens,
                                            .decode_tokens = decode_tokens});
  meter->CheckCache(point.cache);
  const auto timing = std::make_shared<Timing>();
  return {.run = [=] { *timing = meter->Measure(point); },
          .digest = [timing] { return timing->digest; },
          .work = meter->WorkOf(point),
          .bound = point.phase == Phase::kDecode ? "memory" : "arithmetic",
          .threads = point.threads,
          .judged_by_limit = point.phase == Phase::kDecode,
          .seconds = [timing] { return timing->seconds; }};
}

// Requests that share each step, or one after another: the same bits.
BenchEntry ServeEntry(bool together, int32_t threads, bool small) {
  const ServeCaseOptions options = {.requests = small ? 3 : 8,
                                    .prompt_tokens = small ? 5 : 32,
                                    .new_tokens = small ? 3 : 8,
                                    .threads = threads};
  constexpr std::string_view kBits = "engine/serve/paged_16";
  return {.name = fmt::format("engine/{}/paged_16/threads_{}",
                              together ? "serve_together" : "serve_in_turn", threads),
          .bits = std::string(kBits),
          .make = [=] {
            const auto subject = std::make_shared<ServeCase>(BenchModel(small), options);
            const auto timing = std::make_shared<ServeTiming>();
            return MadeBench{
                .run = [=] { *timing = subject->Run(together ? options.requests : 1); },
                .digest = [timing] { return timing->digest; },
                .threads = threads,
                .seconds = [timing] { return timing->seconds; }};
          }};
}

}  // namespace

std::vector<BenchEntry> EngineEntries(bool small) {
  std::vector<int32_t> threads = {1};
  if (small || UsableCpus() > 1) threads.push_back(small ? 2 : UsableCpus());
  std::vector<BenchEntry> entries;
  for (const char* cache : {"simple", "paged/16", "quantized/f16+f16/w0"}) {
    for (int32_t thread_count : threads) {
      const auto add = [&](std::string_view name, Phase phase, int32_t tokens) {
        const EnginePoint point = {.phase = phase,
                                   .tokens = tokens,
                                   .cache = cache,
                                   .isa = std::string(SelectKernels().name),
                                   .threads = thread_count};
        const std::string bits = fmt::format("engine/{}/{}", name, BenchWord(cache));
        entries.push_back({.name = fmt::format("{}/threads_{}", bits, thread_count),
                           .bits = bits,
                           .make = [point, small] { return MadeEngine(point, small); }});
      };
      add("prefill", Phase::kPrefill, small ? 9 : 128);
      add("decode_first", Phase::kDecode, 0);
      add("decode_deep", Phase::kDecode, small ? 5 : 1024);
    }
  }
  for (const int32_t thread_count : threads) {
    for (const bool together : {false, true}) {
      entries.push_back(ServeEntry(together, thread_count, small));
    }
  }
  return entries;
}

}  // namespace lockstep::internal
