#include "properties/serve_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "caches/check.h"
#include "caches/random.h"
#include "caches/registry.h"
#include "engine/synthetic.h"
#include "properties/engine_script.h"

namespace lockstep {
namespace {

constexpr int32_t kTraceStems = 3;

// Cheap ones; the last two have windows, which rings ask for.
constexpr std::array kTraceModels = {"tiny-mha-4x4-f32", "tiny-ragged-3x1-f32",
                                     "tiny-untied-4x2-q8_0", "tiny-mistral-6x2-q8_0",
                                     "tiny-gemma2-5x1-q8_0"};
constexpr std::array kTraceBlockSizes = {1, 1, 2, 2, 3, 4, 5, 8, 16};
constexpr std::array kTraceBudgets = {1, 2, 3, 5, 8, 64};
constexpr std::array kTraceChunks = {1, 2, 3, 4, 64, 64};
constexpr std::array kTraceSteps = {2, 3, 5, 512, 512};
constexpr std::array kTraceThreads = {1, 1, 1, 1, 1, 1, 2, 3};

bool SuitsCache(const char* model, const std::string& cache) {
  const KvGeometry geometry = SyntheticGeometry(SyntheticPreset(model), 1);
  return Misfit(ParseCacheSpec(cache), geometry).empty();
}

class TraceMaker {
 public:
  explicit TraceMaker(uint64_t seed) : random_(seed) {}

  ServeTrace Make() {
    PickCache();
    trace_.max_length = random_.Between(10, 26);
    trace_.running = random_.Between(1, 5);
    trace_.budget = OneOf(kTraceBudgets);
    trace_.chunk = OneOf(kTraceChunks);
    trace_.step = OneOf(kTraceSteps);
    trace_.threads = OneOf(kTraceThreads);
    grows_ = OneIn(2);
    const int32_t count = random_.Between(2, 8);
    int32_t arrives = 0;
    for (int32_t i = 0; i < count; ++i) {
      if (!OneIn(3)) arrives += random_.Between(0, 3);
      trace_.requests.push_back(Request(arrives));
    }
    PickBlocks();
    return std::move(trace_);
  }

 private:
  bool OneIn(uint32_t count) { return random_.Below(count) == 0; }
  template <typename List>
  typename List::value_type OneOf(const List& list) {
    return list[random_.Below(static_cast<uint32_t>(list.size()))];
  }

  // Mostly one whose sequences share a pool.
  void PickCache() {
    if (OneIn(4)) {
      trace_.cache = OneOf(AllCaches()).name;
    } else {
      trace_.cache = fmt::format("paged/{}", OneOf(kTraceBlockSizes));
    }
    std::vector<const char*> models;
    for (const char* model : kTraceModels) {
      if (SuitsCache(model, trace_.cache)) models.push_back(model);
    }
    LS_CHECK(!models.empty(), "no model for {}", trace_.cache);
    trace_.model = OneOf(models);
    trace_.prefixes = block_size() > 0 && !OneIn(3);
  }
  int32_t block_size() const { return ParseCacheSpec(trace_.cache).block_size; }

  TraceRequest Request(int32_t arrives) {
    TraceRequest request;
    request.arrives = arrives;
    if (OneIn(3)) request.cancel = random_.Between(0, grows_ ? 24 : 9);
    request.stem = random_.Between(0, kTraceStems - 1);
    // A pool runs out under texts that grow: in half of the traces they begin short.
    const int32_t longest = grows_ ? 6 : trace_.max_length - 2;
    request.prompt = random_.Between(1, std::min(longest, trace_.max_length - 2));
    request.own = OneIn(2) ? 0 : random_.Between(0, std::min(3, request.prompt));
    const int32_t most = std::min(grows_ ? 18 : 9, trace_.max_length - request.prompt + 1);
    request.new_tokens = random_.Between(grows_ ? std::min(6, most) : 1, most);
    if (OneIn(12)) request.new_tokens = trace_.max_length - request.prompt + 2;  // one too many
    request.sampler = random_.Between(0, kTraceSamplers - 1);
    if (OneIn(4)) request.adapters = random_.Between(1, kAdapterSets - 1);
    request.seed = random_.Between(1, 1000);
    return request;
  }

  // For the longest request alone, for all that run, or anything between; sometimes too few for it.
  void PickBlocks() {
    const int32_t size = block_size();
    if (size == 0 || OneIn(5)) return;
    int32_t longest = 1, all = 0;
    for (const TraceRequest& request : trace_.requests) {
      const int32_t rows = std::min(request.prompt + request.new_tokens - 1, trace_.max_length);
      const int32_t blocks = (rows + size - 1) / size;
      longest = std::max(longest, blocks);
      all += blocks;
    }
    if (OneIn(8)) longest = std::max(1, longest - 1);
    trace_.blocks = OneIn(3) ? longest : random_.Between(longest, std::max(longest, all * 2 / 3));
  }

  Random random_;
  ServeTrace trace_;
  bool grows_ = false;  // short prompts, long answers
};

template <typename Edit>
void Try(const ServeTrace& trace, std::vector<ServeTrace>* simpler, Edit edit) {
  ServeTrace other = trace;
  edit(&other);
  if (!(other == trace)) simpler->push_back(std::move(other));
}

void FewerRequests(const ServeTrace& trace, std::vector<ServeTrace>* simpler) {
  const size_t count = trace.requests.size();
  for (size_t chunk = (count + 1) / 2; chunk > 0 && count > 1; chunk /= 2) {
    for (size_t begin = 0; begin + chunk <= count; begin += chunk) {
      Try(trace, simpler, [&](ServeTrace* t) {
        const auto from = t->requests.begin() + static_cast<std::ptrdiff_t>(begin);
        t->requests.erase(from, from + static_cast<std::ptrdiff_t>(chunk));
      });
    }
  }
}

// Every number on its way to the plainest one: there, half of the way, one step.
void Nearer(const ServeTrace& trace, int32_t now, int32_t plain, std::vector<ServeTrace>* simpler,
            const auto& set) {
  if (now == plain) return;
  for (const int32_t value : {plain, plain + (now - plain) / 2, now > plain ? now - 1 : now + 1}) {
    Try(trace, simpler, [&](ServeTrace* t) { set(t, value); });
  }
}

void SmallerRequests(const ServeTrace& trace, std::vector<ServeTrace>* simpler) {
  using Field = std::pair<int32_t TraceRequest::*, int32_t>;
  constexpr std::array kFields = {
      Field{&TraceRequest::prompt, 1},  Field{&TraceRequest::new_tokens, 1},
      Field{&TraceRequest::cancel, -1}, Field{&TraceRequest::arrives, 0},
      Field{&TraceRequest::sampler, 0}, Field{&TraceRequest::adapters, 0},
      Field{&TraceRequest::own, 0},     Field{&TraceRequest::stem, 0},
      Field{&TraceRequest::seed, 1},
  };
  for (size_t i = 0; i < trace.requests.size(); ++i) {
    for (const auto& [field, plain] : kFields) {
      Nearer(trace, trace.requests[i].*field, plain, simpler,
             [i, field = field](ServeTrace* t, int32_t value) { t->requests[i].*field = value; });
    }
  }
}

}  // namespace

std::string ServeTraceText(const ServeTrace& trace) {
  std::string text = fmt::format(
      "serve {} cache={} max={} blocks={} prefixes={} running={} budget={} chunk={} step={} "
      "threads={}\n",
      trace.model, trace.cache, trace.max_length, trace.blocks, trace.prefixes ? 1 : 0,
      trace.running, trace.budget, trace.chunk, trace.step, trace.threads);
  for (const TraceRequest& r : trace.requests) {
    text += fmt::format(
        "request at={} cancel={} stem={} prompt={} own={} new={} sampler={} adapters={} seed={}\n",
        r.arrives, r.cancel, r.stem, r.prompt, r.own, r.new_tokens, r.sampler, r.adapters, r.seed);
  }
  return text;
}

ServeTrace GenerateServeTrace(uint64_t seed) { return TraceMaker(seed).Make(); }

std::vector<ServeTrace> SimplerServeTraces(const ServeTrace& trace) {
  std::vector<ServeTrace> simpler;
  FewerRequests(trace, &simpler);
  Try(trace, &simpler, [](ServeTrace* t) { t->threads = 1; });
  Try(trace, &simpler, [](ServeTrace* t) { t->step = 512; });
  Try(trace, &simpler, [](ServeTrace* t) { t->prefixes = false; });
  Try(trace, &simpler, [](ServeTrace* t) { t->blocks = 0; });
  Try(trace, &simpler, [](ServeTrace* t) { t->chunk = 64; });
  Try(trace, &simpler, [](ServeTrace* t) { t->budget = 64; });
  if (ParseCacheSpec(trace.cache).block_size == 0) {
    Try(trace, &simpler, [](ServeTrace* t) { t->cache = "simple"; });
  }
  if (SuitsCache(kTraceModels[0], trace.cache)) {
    Try(trace, &simpler, [](ServeTrace* t) { t->model = kTraceModels[0]; });
  }
  SmallerRequests(trace, &simpler);
  return simpler;
}

// The second stem goes away from the first in the middle, the third in one bit above the low 8.
std::vector<int32_t> TracePrompt(const TraceRequest& request, int32_t vocab_size) {
  constexpr uint64_t kStems = 77, kOwn = 78;
  constexpr int32_t kFork = 7;
  const auto bound = static_cast<uint32_t>(vocab_size);
  Random stem(kStems), other = stem.Split(1);
  Random own = Random(kOwn).Split(static_cast<uint64_t>(request.seed));
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < request.prompt; ++i) {
    auto token = static_cast<int32_t>(stem.Below(bound));
    if (request.stem == 1 && i >= kFork) token = static_cast<int32_t>(other.Below(bound));
    if (request.stem == 2 && i == 1) token = (token + 256) % vocab_size;
    if (i >= request.prompt - request.own) token = static_cast<int32_t>(own.Below(bound));
    prompt.push_back(token);
  }
  return prompt;
}

SamplerOptions TraceSamplerOptions(const TraceRequest& request) {
  switch (static_cast<TraceSampler>(request.sampler)) {
    case TraceSampler::kGreedy:
      return {};
    case TraceSampler::kPenalized:
      return {.penalty_tokens = -1, .repetition_penalty = 1.5f, .temperature = 0.8f, .top_k = 40};
    case TraceSampler::kDrawn:
    case TraceSampler::kStopping:
      break;
  }
  return {.temperature = 1.25f};
}

std::vector<int32_t> TraceStops(const TraceRequest& request, int32_t vocab_size) {
  std::vector<int32_t> stops;
  if (static_cast<TraceSampler>(request.sampler) != TraceSampler::kStopping) return stops;
  for (int32_t token = request.seed % 4; token < vocab_size; token += 4) stops.push_back(token);
  return stops;
}

}  // namespace lockstep
