// Every registered cache with every allocation failing once, in generated scripts, and caches that
// do not survive it.
#include "properties/failing_run.h"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "caches/cache_file.h"
#include "caches/failing_new.h"
#include "caches/registry.h"
#include "engine/shift.h"
#include "engine/synthetic.h"
#include "engine/transformer.h"
#include "oracle/decorators.h"
#include "properties/script_builder.h"

namespace lockstep {
namespace {

constexpr int32_t kOperations = 40;

const auto kFail = [](int64_t n) { failing_new::failing_in = n; };

TEST(FailingRunTest, EveryCacheIsAsBeforeAfterEachFailedAllocation) {
  for (const CacheSpec& spec : AllCaches()) {
    for (const AfterFailure after : {AfterFailure::kRepeat, AfterFailure::kGiveUp}) {
      ScriptCounts counts;
      for (uint64_t seed = 1; seed <= 40; ++seed) {
        const CacheScript script = GenerateScript(spec.name, seed, kOperations);
        const ScriptRun run = RunScriptFailing(script, RegisteredSubject(spec.name), after, kFail);
        ASSERT_FALSE(run.finding) << spec.name << ", seed " << seed << ": " << run.finding->clause
                                  << " " << run.finding->what << "\n"
                                  << ScriptText(script);
        counts += run.counts;
      }
      const bool repeats = after == AfterFailure::kRepeat;
      EXPECT_GT(counts.allocations_failed, repeats ? 100 : 20) << spec.name;
      EXPECT_GT(counts.forked, repeats ? 10 : 0) << spec.name;
      EXPECT_GT(counts.restored, 0) << spec.name;
      EXPECT_GT(counts.updated, 50) << spec.name;
      const bool small_blocks = spec.block_size > 0 && spec.block_size < 16;
      EXPECT_GT(counts.exhausted, small_blocks ? 0 : -1) << spec.name;
    }
  }
}

// A shift takes its memory before it changes anything, on every cache.
TEST(FailingRunTest, F4_AFailedAllocationLeavesTheContextUnshifted) {
  const auto model = Model::Load(MakeSyntheticModel(SyntheticPreset("tiny-untied-4x2-q8_0"), 1));
  Transformer engine(model);
  for (const CacheSpec& spec : AllCaches()) {
    const auto cache = spec.make({.geometry = model->config().geometry(12), .sequences = 3});
    if (!MayShift(*cache)) continue;
    engine.Forward({{5, 60, 7, 80, 9, 110, 11, 120, 13, 14}}, {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
                   *cache);
    const auto expected = cache->Fork();
    ShiftContext(model->config(), SelectKernels("scalar"), {1, 4}, expected.get());
    const Digest before = DigestOfCache(*cache), after = DigestOfCache(*expected);
    int32_t failures = 0;
    for (bool done = false; !done; ++failures) {
      failing_new::failing_in = failures;
      try {
        ShiftContext(model->config(), SelectKernels("scalar"), {1, 4}, cache.get());
        done = true;
      } catch (const std::bad_alloc&) {
      }
      failing_new::failing_in = -1;
      ASSERT_EQ(DigestOfCache(*cache), done ? after : before) << spec.name << ", " << failures;
    }
    EXPECT_GT(failures, 4) << spec.name;
  }
}

enum class Careless {
  kAllocatesInUpdate,   // M1
  kAllocatesInReserve,  // M1
  kClearsFirst,         // M2: a restore clears before it has what it needs
  kClosesFirst,         // M2: a fork closes reservations before it has what it needs
  kTruncatesFirst,      // M2: a fork drops the last row, forks, and puts it back
};

class CarelessCache : public ForwardingCache {
 public:
  CarelessCache(std::unique_ptr<KvCache> inner, Careless careless)
      : ForwardingCache(std::move(inner)), careless_(careless) {}

  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override {
    const bool copies = careless_ == Careless::kAllocatesInUpdate;
    const std::vector<float> copy(keys.begin(), copies ? keys.end() : keys.begin());
    inner().Update(layer, positions, keys, values);
  }

  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override {
    const bool copies = careless_ == Careless::kAllocatesInReserve;
    const std::vector<int32_t> copy(positions.begin(),
                                    copies ? positions.end() : positions.begin());
    return inner().TryReserveSlot(layer, positions);
  }

  void LoadState(StateReader* reader) override {
    if (careless_ == Careless::kClearsFirst) inner().Clear();
    inner().LoadState(reader);
  }

  std::unique_ptr<KvCache> Fork() override {
    const int32_t length = current_length();
    if (careless_ == Careless::kClosesFirst) inner().Rollback(length);
    if (careless_ != Careless::kTruncatesFirst || length == 0) return Wrap(inner().Fork());
    const auto whole = inner().Fork();
    inner().Rollback(length - 1);
    const auto fork = inner().Fork();
    StateWriter writer;
    whole->SaveState(&writer);
    const std::vector<std::byte> file = writer.Finish();
    StateReader reader(file, "test");
    inner().LoadState(&reader);
    return Wrap(whole->Fork());
  }

 private:
  std::unique_ptr<KvCache> Wrap(std::unique_ptr<KvCache> fork) const {
    return std::make_unique<CarelessCache>(std::move(fork), careless_);
  }
  Careless careless_;
};

std::string FirstClause(Careless careless, AfterFailure after) {
  ScriptSubject subject = RegisteredSubject("simple");
  subject.make = [make = subject.make, careless](const CacheScript& script) {
    return std::make_unique<CarelessCache>(make(script), careless);
  };
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    const CacheScript script = GenerateScript("simple", seed, kOperations);
    const ScriptRun run = RunScriptFailing(script, subject, after, kFail);
    if (run.finding) return run.finding->clause;
  }
  return "nothing";
}

TEST(FailingRunTest, CarelessCachesAreFound) {
  EXPECT_EQ(FirstClause(Careless::kAllocatesInUpdate, AfterFailure::kRepeat), "M1");
  EXPECT_EQ(FirstClause(Careless::kAllocatesInReserve, AfterFailure::kRepeat), "M1");
  EXPECT_EQ(FirstClause(Careless::kClearsFirst, AfterFailure::kRepeat), "M2");
  EXPECT_EQ(FirstClause(Careless::kTruncatesFirst, AfterFailure::kRepeat), "M2");
  // That a reservation is gone shows only when the script goes on without the fork.
  EXPECT_NE(FirstClause(Careless::kClosesFirst, AfterFailure::kGiveUp), "nothing");
}

}  // namespace
}  // namespace lockstep
