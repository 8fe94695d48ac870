// Traces of requests, generated, through the scheduler: each request as alone. RapidCheck shrinks
// what it falsifies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "properties/serve_trace_runner.h"

namespace lockstep {

// RapidCheck prints counterexamples by this.
void showValue(const ServeTrace& trace, std::ostream& os) { os << ServeTraceText(trace); }

namespace {

using testing::HasSubstr;

constexpr uint64_t kTraces = 600;
constexpr uint64_t kTraceSeed = 0x5eed;
constexpr int kTraceCases = 120;

TEST(ServeTraceTest, F5_EachRequestIsAsAloneAndEveryClassIsReached) {
  std::array<int64_t, kServeClasses> classes = {};
  for (uint64_t seed = 1; seed <= kTraces; ++seed) {
    const ServeTrace trace = GenerateServeTrace(seed);
    const ServeRun run = RunServeTrace(trace);
    if (run.finding) {
      FAIL() << "step " << run.finding->step << ": " << run.finding->what << "\nseed " << seed
             << '\n'
             << ServeTraceText(trace);
    }
    for (size_t i = 0; i < kServeClasses; ++i) classes[i] += run.classes[i];
  }
  for (size_t i = 0; i < kServeClasses; ++i) {
    EXPECT_GE(classes[i], 5) << ServeClassName(static_cast<ServeClass>(i));
  }
}

rc::Gen<ServeTrace> AnyTrace() {
  return rc::Gen<ServeTrace>([](const rc::Random& random, int) {
    rc::Random source = random;
    return rc::shrinkable::shrinkRecur(
        GenerateServeTrace(source.next()),
        [](const ServeTrace& trace) { return rc::seq::fromContainer(SimplerServeTraces(trace)); });
  });
}

// What RapidCheck says: empty when the property holds, else the smallest trace.
std::string Falsified(const ServeRunOptions& options) {
  rc::detail::TestParams params;
  params.seed = kTraceSeed;
  params.maxSuccess = kTraceCases;
  rc::detail::TestMetadata metadata;
  metadata.id = "a request is as alone";
  const rc::Gen<ServeTrace> traces = AnyTrace();
  const auto result = rc::detail::checkTestable(
      [&] {
        const ServeRun run = RunServeTrace(*traces, options);
        if (run.finding) RC_FAIL(run.finding->what);
      },
      metadata, params);
  if (result.template is<rc::detail::SuccessResult>()) return "";
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  return text.str();
}

TEST(ServeTraceTest, F5_HoldsForAnyTrace) { EXPECT_EQ(Falsified({}), ""); }

// What a request is given depends on nothing but itself.
TEST(ServeTraceTest, F5_NeitherPoolNorBudgetNorNeighboursChangeABit) {
  int32_t pools = 0;
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    ServeTrace trace = GenerateServeTrace(seed);
    for (TraceRequest& request : trace.requests) request.cancel = -1;
    trace.blocks = 0;
    const Digest plain = RunServeTrace(trace).digest;
    std::vector<ServeTrace> others(6, trace);
    others[0].running = 1;
    others[1].budget = others[1].chunk = 1;
    others[2].threads = 3;
    others[3].step = 1;
    others[4].prefixes = !trace.prefixes;
    for (TraceRequest& request : others[5].requests) request.arrives *= 3;
    for (const ServeTrace& other : others) {
      EXPECT_EQ(RunServeTrace(other).digest, plain) << ServeTraceText(other);
    }
    // As few blocks as all of them can do with.
    ServeTrace small = trace;
    for (small.blocks = 1; RunServeTrace(small).digest != plain; ++small.blocks) {
      ASSERT_LT(small.blocks, 200) << ServeTraceText(small);
    }
    pools += RunServeTrace(small).counters.preempted > 0 ? 1 : 0;
  }
  EXPECT_GT(pools, 3);
}

// ---- What the property is there for -----------------------------------------------------------

template <typename Driver>
std::string FalsifiedBy() {
  return Falsified({.make_driver = [](Scheduler& scheduler) -> std::unique_ptr<ServeDriver> {
    return std::make_unique<Driver>(scheduler);
  }});
}

// RapidCheck's smallest trace: how many requests it has.
int64_t RequestsIn(const std::string& text) {
  int64_t count = 0;
  for (size_t at = text.find("request at="); at != text.npos; at = text.find("request at=", at + 1))
    ++count;
  return count;
}

TEST(WrongServeTest, DrawsFromAnotherSeed) {
  struct Driver final : ServeDriver {
    using ServeDriver::ServeDriver;
    int64_t Submit(ServeRequest request) override {
      ++request.seed;
      return scheduler().Submit(std::move(request));
    }
  };
  const std::string text = FalsifiedBy<Driver>();
  EXPECT_THAT(text, HasSubstr("alone"));
  EXPECT_EQ(RequestsIn(text), 1) << text;
}

TEST(WrongServeTest, LogitsOfTheNeighbour) {
  struct Driver final : ServeDriver {
    using ServeDriver::ServeDriver;
    std::span<const ServedToken> Step() override {
      const auto served = scheduler().Step();
      tokens.assign(served.begin(), served.end());
      if (tokens.size() > 1) std::swap(tokens[0].logits, tokens[1].logits);
      return tokens;
    }
    std::vector<ServedToken> tokens;
  };
  const std::string text = FalsifiedBy<Driver>();
  EXPECT_THAT(text, HasSubstr("the logits of token"));
  EXPECT_EQ(RequestsIn(text), 2) << text;
}

TEST(WrongServeTest, ATokenIsLostWhenTwoComeAtOnce) {
  struct Driver final : ServeDriver {
    using ServeDriver::ServeDriver;
    std::span<const ServedToken> Step() override {
      const auto served = scheduler().Step();
      return served.first(std::min<size_t>(served.size(), 1));
    }
  };
  const std::string text = FalsifiedBy<Driver>();
  EXPECT_NE(text, "");
  EXPECT_EQ(RequestsIn(text), 2) << text;
}

TEST(WrongServeTest, WhoIsCancelledGoesOn) {
  struct Driver final : ServeDriver {
    using ServeDriver::ServeDriver;
    bool Cancel(int64_t) override { return true; }
  };
  const std::string text = FalsifiedBy<Driver>();
  EXPECT_THAT(text, HasSubstr("cancelled"));
  EXPECT_EQ(RequestsIn(text), 1) << text;
}

// Younger ones go first when whoever waits is asked for again behind them.
TEST(WrongServeTest, WhoWaitsGoesToTheEnd) {
  struct Driver final : ServeDriver {
    using ServeDriver::ServeDriver;
    int64_t Submit(ServeRequest request) override {
      requests.push_back(request);
      return scheduler().Submit(std::move(request));
    }
    std::span<const ServedToken> Step() override {
      const auto all = scheduler().requests();
      if (all.size() > 2 && all.back().state == RequestState::kWaiting &&
          all[all.size() - 2].state == RequestState::kWaiting) {
        const int64_t id = all[all.size() - 2].id;
        scheduler().Cancel(id);
        scheduler().Submit(requests[static_cast<size_t>(id - 1)]);
        requests.push_back(requests[static_cast<size_t>(id - 1)]);
      }
      return scheduler().Step();
    }
    std::vector<ServeRequest> requests;
  };
  EXPECT_NE(FalsifiedBy<Driver>(), "");
}

}  // namespace
}  // namespace lockstep
