// Traces of requests to a scheduler (engine/scheduler.h), as plain data: who arrives when, asks for
// what, and goes away before the end; how large the pool is, the budget, the chunks.
//
// Made from a seed, aimed at pools that run out and texts that begin the same; made simpler by a
// list of neighbours, for RapidCheck to shrink with.
#ifndef LOCKSTEP_PROPERTIES_SERVE_TRACE_H_
#define LOCKSTEP_PROPERTIES_SERVE_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/sampler.h"

namespace lockstep {

enum class TraceSampler : uint8_t {
  kGreedy,
  kDrawn,
  kPenalized,  // drawn, and what stands in the text counts
  kStopping,   // drawn, a quarter of all tokens ends the text
};
inline constexpr int32_t kTraceSamplers = 4;

struct TraceRequest {
  int32_t arrives = 0;  // before this step
  int32_t cancel = -1;  // so many steps later it goes away; -1: never
  int32_t stem = 0;     // which text it begins like
  int32_t prompt = 1;   // tokens
  int32_t own = 0;      // of these, the last ones that are not the stem's
  int32_t new_tokens = 1;
  int32_t sampler = 0;   // a TraceSampler
  int32_t adapters = 0;  // a set of MakeAdapterSets
  int32_t seed = 1;      // of its draws, and of its own tokens

  friend bool operator==(const TraceRequest&, const TraceRequest&) = default;
};

struct ServeTrace {
  std::string model = "tiny-mha-4x4-f32";  // a preset of engine/synthetic.h
  std::string cache = "paged/4";           // a name of caches/registry.h
  int32_t max_length = 24;                 // positions of a request
  int32_t blocks = 0;                      // of the pool of all; 0: enough, whatever runs
  bool prefixes = false;                   // a prefix index over the pool
  int32_t running = 4;                     // SchedulerOptions
  int32_t budget = 64;
  int32_t chunk = 64;
  int32_t step = 512;  // TransformerOptions
  int32_t threads = 1;
  std::vector<TraceRequest> requests = {};  // by arrival

  friend bool operator==(const ServeTrace&, const ServeTrace&) = default;
};

// One line for the trace and one a request.
std::string ServeTraceText(const ServeTrace& trace);

// Every trace that this gives can be run on this machine.
ServeTrace GenerateServeTrace(uint64_t seed);

// Each has fewer requests, or something smaller or plainer in it, so that taking one after another
// comes to an end. The boldest come first.
std::vector<ServeTrace> SimplerServeTraces(const ServeTrace& trace);

// What the request's prompt is, its options for the sampler, and which tokens end it.
std::vector<int32_t> TracePrompt(const TraceRequest& request, int32_t vocab_size);
SamplerOptions TraceSamplerOptions(const TraceRequest& request);
std::vector<int32_t> TraceStops(const TraceRequest& request, int32_t vocab_size);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_SERVE_TRACE_H_
