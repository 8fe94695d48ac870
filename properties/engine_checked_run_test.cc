#include "properties/engine_checked_run.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "caches/aligned_buffer.h"
#include "engine/kernels.h"

namespace lockstep {
namespace {

TEST(EngineCheckedRunTest, NothingDependsOnMemoryThatNobodyWrote) {
  EngineCounts counts;
  for (const KernelTable* kernels : AvailableKernels()) {
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      const EngineScript script =
          GenerateEngineScript(seed, 16, {.isa = std::string(kernels->name)});
      const EngineRun run = RunEngineScriptChecked(script);
      ASSERT_FALSE(run.finding) << run.finding->what << "\n" << EngineScriptText(script);
      counts += run.counts;
    }
  }
  EXPECT_GT(counts.steps, 20);
}

// Reads one element of scratch before anything is written to it, which is 0 in a fresh process.
class CarelessDriver : public EngineDriver {
 public:
  using EngineDriver::EngineDriver;
  std::span<const float> Step(std::span<const BatchSequence> batch) override {
    const std::span<const float> right = EngineDriver::Step(batch);
    logits_.assign(right.begin(), right.end());
    const AlignedBuffer<uint32_t> scratch(1);
    if (scratch.span()[0] == 0x5a5a5a5a) logits_[0] += 1;
    return logits_;
  }

 private:
  std::vector<float> logits_;
};

// Writes one element past its scratch, where nothing but a canary is.
class OverrunningDriver : public EngineDriver {
 public:
  using EngineDriver::EngineDriver;
  std::span<const float> Step(std::span<const BatchSequence> batch) override {
    scratch_.data()[kBytes] = 7;
    return EngineDriver::Step(batch);
  }

 private:
  static constexpr int64_t kBytes = 63;  // the next byte fills its line
  AlignedBuffer<unsigned char> scratch_{kBytes};
};

template <typename Driver>
std::string ClauseOf(const std::string& text) {
  const EngineSubject wrong = {
      .make_driver = [](Transformer& engine) { return std::make_unique<Driver>(engine); }};
  const auto finding = RunEngineScriptChecked(ParseEngineScript(text, "test"), wrong).finding;
  return finding ? finding->clause : "nothing";
}

TEST(EngineCheckedRunTest, FindsWhatReadsOrWritesMemoryOfNobody) {
  const std::string text = "engine tiny-mha-4x4-f32 cache=simple max=9\nprefill cuts=2 tokens=1\n";
  EXPECT_EQ(ClauseOf<EngineDriver>(text), "nothing");
  EXPECT_EQ(ClauseOf<OverrunningDriver>(text), "memory");
  const EngineSubject careless = {
      .make_driver = [](Transformer& e) { return std::make_unique<CarelessDriver>(e); }};
  EXPECT_FALSE(RunEngineScript(ParseEngineScript(text, "test"), careless).finding);
  EXPECT_NE(ClauseOf<CarelessDriver>(text), "nothing");
}

}  // namespace
}  // namespace lockstep
