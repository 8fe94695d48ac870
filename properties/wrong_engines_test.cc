// Engines and caches that are wrong in one way, which generated engine scripts have to find, and
// shrink: the checks of the runner are only as good as what they catch.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "oracle/decorators.h"
#include "oracle/faulty_cache.h"
#include "properties/engine_script_runner.h"

namespace lockstep {
namespace {

constexpr int32_t kOperations = 24;

EngineScript Script(uint64_t seed, const std::string& cache) {
  EngineScriptLimits limits{.isa = "scalar"};
  if (!cache.empty()) limits.caches = {cache};
  EngineScript script = GenerateEngineScript(seed, kOperations, limits);
  script.threads = 1;
  return script;
}

// What the first scripts find, shrunk, and found again in the script's text.
struct Catch {
  std::string clause = "nothing";
  size_t operations = 0;
  uint64_t scripts = 0;
  std::string text = {};
};

Catch CatchOf(const std::string& cache, const EngineSubject& subject, uint64_t scripts = 150) {
  for (uint64_t seed = 1; seed <= scripts; ++seed) {
    const EngineScript script = Script(seed, cache);
    const auto finding = RunEngineScript(script, subject).finding;
    if (!finding) continue;
    const EngineScript shrunk = ShrinkEngineScript(script, subject);
    const std::string text = EngineScriptText(shrunk);
    const auto again = RunEngineScript(ParseEngineScript(text, "shrunk"), subject).finding;
    EXPECT_TRUE(again && again->clause == finding->clause) << text;
    EXPECT_FALSE(RunEngineScript(shrunk).finding) << "the right engine passes it\n" << text;
    return {finding->clause, shrunk.ops.size(), seed, again->what + "\n" + text};
  }
  return {};
}

enum class Wrong {
  kKeepsAccepted,       // a speculation forgets the pending token
  kKeepsOneMore,        // and keeps one draft that was rejected
  kKeepsAll,            // rejects nothing
  kMixesPositions,      // the second sequence of a batch is written at the first one's positions
  kMixesTokens,         // the first two sequences get each other's tokens
  kMixesLogits,         // and each other's logits
  kLogitsOfFirstToken,  // a step is cut in two, and the logits are those of the first part
  kDropsLastToken,      // the last token of a long step is never written
  kRollsBackLess,
  kRollsBackMore,
  kClampsRollback,    // one past the length is no error
  kFailureLeavesRow,  // of a failed step, at one layer
  kFailureLosesRow,   // that was there before the step
  kFailureOfOthers,   // undoes the first sequence of a failed batch alone
  kSwallowsFailure,
  kOtherPath,       // the bits of the direct path by the legacy one
  kForkStale,       // a fork without the last row
  kForkClears,      // a fork that takes the rows along
  kShiftsUnturned,  // rows move and keep their angles
  kShiftsOneLate,   // the row at the beginning stays, the one behind the end goes
  kShiftsOtherPairs,
  kShiftsNothingBack,  // what is behind the deleted is lost as well
  kCount,
};

std::vector<int32_t> From(int32_t first, size_t count) {
  std::vector<int32_t> positions(count);
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

class WrongDriver final : public EngineDriver {
 public:
  WrongDriver(Transformer& engine, Wrong wrong) : EngineDriver(engine), wrong_(wrong) {}

  std::span<const float> Step(std::span<const BatchSequence> batch) override {
    lengths_.clear();
    for (const BatchSequence& s : batch) lengths_.push_back(s.cache->current_length());
    std::vector<BatchSequence> edited(batch.begin(), batch.end());
    try {
      return Edited(&edited);
    } catch (const std::exception&) {
      if (wrong_ == Wrong::kSwallowsFailure && !batch.empty()) {
        const auto vocab = static_cast<size_t>(engine().model().config().vocab_size);
        logits_.assign(batch.size() * vocab, 0.0f);
        return logits_;
      }
      Spoil(batch);
      throw;
    }
  }

  std::span<const float> Speculate(const BatchSequence& sequence, int32_t accepted) override {
    const int32_t before = sequence.positions.front();
    const std::span<const float> logits = Step({&sequence, 1});
    const int32_t kept = wrong_ == Wrong::kKeepsAccepted  ? accepted
                         : wrong_ == Wrong::kKeepsOneMore ? accepted + 2
                         : wrong_ == Wrong::kKeepsAll     ? sequence.cache->current_length()
                                                          : accepted + 1;
    sequence.cache->Rollback(wrong_ == Wrong::kKeepsAll
                                 ? kept
                                 : std::min(before + kept, sequence.cache->current_length()));
    return logits;
  }

  void Rollback(KvCache& cache, int32_t length) override {
    const int32_t held = cache.current_length();
    if (wrong_ == Wrong::kRollsBackLess && length < held) ++length;
    if (wrong_ == Wrong::kRollsBackMore && length > 0 && length <= held) --length;
    if (wrong_ == Wrong::kClampsRollback) length = std::min(length, held);
    cache.Rollback(length);
  }

  void Shift(KvCache& cache, const DeletedSpan& deleted) override {
    ModelConfig config = engine().model().config();
    DeletedSpan edited = deleted;
    if (wrong_ == Wrong::kShiftsUnturned) config.no_rope_interval = 1;
    if (wrong_ == Wrong::kShiftsOtherPairs) {
      const bool halves = config.rope_pairing == RopePairing::kHalves;
      config.rope_pairing = halves ? RopePairing::kInterleaved : RopePairing::kHalves;
    }
    const bool moves = deleted.end < cache.current_length();
    if (wrong_ == Wrong::kShiftsOneLate && moves) ++edited.first, ++edited.end;
    ShiftContext(config, engine().kernels(), edited, &cache);
    if (wrong_ == Wrong::kShiftsNothingBack && moves) cache.Rollback(deleted.first);
  }

  std::unique_ptr<KvCache> Fork(KvCache& cache) override {
    std::unique_ptr<KvCache> fork = cache.Fork();
    if (wrong_ == Wrong::kForkStale) fork->Rollback(std::max(0, fork->current_length() - 1));
    if (wrong_ == Wrong::kForkClears) cache.Clear();
    return fork;
  }

 private:
  std::span<const float> Edited(std::vector<BatchSequence>* batch) {
    std::vector<BatchSequence>& b = *batch;
    const bool several = b.size() > 1;
    const size_t count = b.empty() ? 0 : b[0].tokens.size();
    std::vector<int32_t> positions;
    if (wrong_ == Wrong::kMixesPositions && several) {
      positions = From(b[0].positions.front(), b[1].tokens.size());
      b[1].positions = positions;
    }
    if (wrong_ == Wrong::kMixesTokens && several && count == b[1].tokens.size()) {
      std::swap(b[0].tokens, b[1].tokens);
    }
    if (wrong_ == Wrong::kDropsLastToken && count > 2) {
      b[0].tokens = b[0].tokens.first(count - 1);
      b[0].positions = b[0].positions.first(count - 1);
    }
    if (wrong_ == Wrong::kLogitsOfFirstToken && b.size() == 1 && count > 1) {
      const std::span<const float> logits = engine().ForwardBatch(
          std::vector<BatchSequence>{{b[0].tokens.first(1), b[0].positions.first(1), b[0].cache}});
      logits_.assign(logits.begin(), logits.end());
      engine().ForwardBatch(std::vector<BatchSequence>{
          {b[0].tokens.subspan(1), b[0].positions.subspan(1), b[0].cache}});
      return logits_;
    }
    if (wrong_ == Wrong::kOtherPath && !b.empty()) {
      UpdateOnlyCache legacy(*b[0].cache);
      b[0].cache = &legacy;
      return EngineDriver::Step(b);
    }
    const std::span<const float> logits = EngineDriver::Step(b);
    if (wrong_ != Wrong::kMixesLogits || !several) return logits;
    logits_.assign(logits.begin(), logits.end());
    const auto vocab = static_cast<std::ptrdiff_t>(logits.size() / b.size());
    std::swap_ranges(logits_.begin(), logits_.begin() + vocab, logits_.begin() + vocab);
    return logits_;
  }

  // What a failed step leaves.
  void Spoil(std::span<const BatchSequence> batch) {
    if (batch.empty()) return;
    KvCache& cache = *batch[0].cache;
    const int32_t length = lengths_[0];
    if (wrong_ == Wrong::kFailureLeavesRow && length < cache.max_length()) {
      const std::vector<float> row(static_cast<size_t>(cache.geometry().kv_stride()), 1.0f);
      cache.Update(cache.geometry().num_layers - 1, {&length, 1}, row, row);
    }
    if (wrong_ == Wrong::kFailureLosesRow && length > 0) cache.Rollback(length - 1);
    if (wrong_ == Wrong::kFailureOfOthers && batch.size() > 1) {
      KvCache& other = *batch[1].cache;
      if (other.current_length() > 0 && &other != &cache) other.Rollback(0);
    }
  }

  Wrong wrong_;
  std::vector<int32_t> lengths_;
  std::vector<float> logits_;
};

TEST(WrongEngineTest, ScriptsFindEveryWrongDriverAndShrinkIt) {
  for (int wrong = 0; wrong < static_cast<int>(Wrong::kCount); ++wrong) {
    const EngineSubject subject = {.make_driver = [wrong](Transformer& engine) {
      return std::make_unique<WrongDriver>(engine, static_cast<Wrong>(wrong));
    }};
    const Catch caught = CatchOf("paged/4", subject);
    EXPECT_NE(caught.clause, "nothing") << "wrong " << wrong;
    EXPECT_LE(caught.operations, 4u) << "wrong " << wrong << ": " << caught.text;
    EXPECT_LE(caught.scripts, 30u) << "wrong " << wrong;
  }
}

// An engine that computes on the host what it was to compute on a device gives the same bits.
TEST(WrongEngineTest, ScriptsFindAnEngineThatStaysOnTheHost) {
  class HostDriver final : public EngineDriver {
   public:
    using EngineDriver::EngineDriver;
    std::span<const float> Step(std::span<const BatchSequence> batch) override {
      std::vector<BatchSequence> hidden(batch.begin(), batch.end());
      std::vector<std::unique_ptr<RecordingCache>> caches;
      for (BatchSequence& sequence : hidden) {
        caches.push_back(std::make_unique<RecordingCache>(*sequence.cache));
        sequence.cache = caches.back().get();
      }
      return EngineDriver::Step(hidden);
    }
  };
  const EngineSubject subject = {
      .make_driver = [](Transformer& engine) { return std::make_unique<HostDriver>(engine); }};
  for (const char* cache : {"cuda", "hybrid/1"}) {
    EngineScript script =
        ParseEngineScript(std::string("engine tiny-mha-4x4-f32 max=9 device=host-executor cache=") +
                              cache + "\nprefill cuts=3 tokens=1\n",
                          "test");
    EXPECT_FALSE(RunEngineScript(script).finding) << cache;
    const auto finding = RunEngineScript(script, subject).finding;
    ASSERT_TRUE(finding) << cache;
    EXPECT_EQ(finding->clause, "R2") << finding->what;
    script.device.clear();
    EXPECT_FALSE(RunEngineScript(script, subject).finding) << cache;
  }
}

// A cache whose forks, but for those that sequences begin with, are the cache itself.
class SharingCache final : public ForwardingCache {
 public:
  SharingCache(std::shared_ptr<KvCache> inner, bool root)
      : ForwardingCache(*inner), shared_(std::move(inner)), root_(root) {}
  std::unique_ptr<KvCache> Fork() override {
    return std::make_unique<SharingCache>(root_ ? inner().Fork() : shared_, false);
  }

 private:
  std::shared_ptr<KvCache> shared_;
  bool root_;
};

TEST(WrongEngineTest, ScriptsFindAForkThatShares) {
  const EngineSubject subject = {.make_cache = [](const CacheSpec& spec, const KvGeometry& geometry,
                                                  int32_t blocks) -> std::unique_ptr<KvCache> {
    return std::make_unique<SharingCache>(MakeScriptCache(spec, geometry, blocks), true);
  }};
  const Catch caught = CatchOf("simple", subject);
  EXPECT_TRUE(caught.clause == "B4" || caught.clause == "F3" || caught.clause == "Q3")
      << caught.clause << caught.text;
  EXPECT_LE(caught.operations, 3u) << caught.text;
}

// Every fault of oracle/faulty_cache.h, on a cache of each kind of storage that shows it.
TEST(WrongEngineTest, ScriptsFindEveryPlant) {
  const std::pair<const char*, const char*> kCases[] = {
      {"flip-k:layer=1,position=2,element=3,step=2,byte=3", ""},
      {"flip-v:layer=0,position=0,element=1,step=3,byte=3", "paged/4"},
      {"skip-commit:layer=1", "simple"},
      {"drop-update:layer=2", "quantized/f16+f16/w4"},
      {"swap-kv:layer=1", ""},
      {"write-past:layer=0", "paged/2"},
      {"off-by-one:layer=1", "simple"},
      {"stale-row:layer=0", "simple"},
      {"keep-row", "quantized/f16+f16/w0"},
      {"stale-view:layer=1", ""},
      {"refuse-reserve:layer=2", "paged/16"}};
  std::set<PlantKind> kinds;
  for (const auto& [plant, cache] : kCases) {
    kinds.insert(ParsePlant(plant).kind);
    const Catch caught = CatchOf(cache, PlantedEngine(plant));
    EXPECT_NE(caught.clause, "nothing") << plant;
    EXPECT_LE(caught.operations, 6u) << plant << ": " << caught.text;
  }
  EXPECT_EQ(kinds.size(), KnownPlants().size()) << "a plant without a script that finds it";
}

// Blocks that a rollback does not give back, which only the books show.
TEST(WrongEngineTest, ScriptsFindALeakedBlock) {
  std::vector<std::unique_ptr<KvCache>> leaked;
  class LeakingDriver final : public EngineDriver {
   public:
    LeakingDriver(Transformer& engine, std::vector<std::unique_ptr<KvCache>>* kept)
        : EngineDriver(engine), kept_(kept) {}
    void Rollback(KvCache& cache, int32_t length) override {
      kept_->push_back(cache.Fork());
      cache.Rollback(length);
    }

   private:
    std::vector<std::unique_ptr<KvCache>>* kept_;
  };
  const EngineSubject subject = {.make_driver = [&](Transformer& engine) {
    leaked.clear();
    return std::make_unique<LeakingDriver>(engine, &leaked);
  }};
  const Catch caught = CatchOf("paged/2", subject);
  EXPECT_EQ(caught.clause, "B3") << caught.text;
  EXPECT_LE(caught.operations, 2u) << caught.text;
}

}  // namespace
}  // namespace lockstep
