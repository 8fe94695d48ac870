// Random scripts of prefill, decode, speculation, rollback, fork, batch and failure through the
// engine: chunks, batches, threads, kernels and write paths change no bit, on every cache.
#include "properties/engine_script_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "caches/device.h"
#include "caches/quantized_kv_cache.h"
#include "caches/registry.h"
#include "engine/kernels.h"
#include "engine/trace.h"
#include "engine/transformer.h"
#include "properties/engine_state.h"

namespace lockstep {
namespace {

constexpr int32_t kOperations = 24;

// The shortest script that shows what a script finds, and what it finds.
std::string Report(const EngineScript& script) {
  const EngineScript shrunk = ShrinkEngineScript(script);
  const EngineFinding finding = RunEngineScript(shrunk).finding.value();
  return "[" + finding.clause + "] after operation " + std::to_string(finding.op + 1) + ": " +
         finding.what + "\n" + EngineScriptText(shrunk);
}

// What has to be reached whatever the cache is.
constexpr EngineClass kAlways[] = {
    EngineClass::kPrefillStep,     EngineClass::kDecodeStep,      EngineClass::kAcceptNone,
    EngineClass::kAcceptAll,       EngineClass::kBatchOfTwo,      EngineClass::kBatchOfThree,
    EngineClass::kOverflowRefused, EngineClass::kCancelled,       EngineClass::kAfterFailure,
    EngineClass::kClearedReused,   EngineClass::kRollbackRefused, EngineClass::kDirect,
    EngineClass::kLegacy,          EngineClass::kRefused,         EngineClass::kAdapted,
    EngineClass::kAdaptersSwitched};

// Every registered cache, through every table that this machine has, on every write path.
class EngineCampaignTest : public testing::TestWithParam<std::string> {};

TEST_P(EngineCampaignTest, NothingChangesABit) {
  constexpr int32_t kPaths[] = {0, 1, 3};  // direct, legacy, refused at layer 1
  const int per_table = std::max(9, 27 / static_cast<int>(AvailableKernels().size()));
  EngineCounts counts;
  uint64_t seed = 1;
  for (const KernelTable* table : AvailableKernels()) {
    EngineCounts of_table;
    for (int i = 0; i < per_table; ++i, ++seed) {
      EngineScript script = GenerateEngineScript(
          seed, kOperations,
          {.caches = {GetParam()}, .isa = std::string(table->name), .devices = false});
      script.threads = 1;
      for (int32_t s = 0; s < kEngineSequences; ++s) {
        script.ops.insert(script.ops.begin(), {.kind = EngineOpKind::kPath,
                                               .sequences = {s},
                                               .count = kPaths[i % std::ssize(kPaths)]});
      }
      const EngineRun run = RunEngineScript(script);
      ASSERT_FALSE(run.finding) << Report(script);
      of_table += run.counts;
    }
    EXPECT_GT(of_table[EngineClass::kDirect], 0) << table->name;
    EXPECT_GT(of_table[EngineClass::kLegacy], 0) << table->name;
    EXPECT_GT(of_table[EngineClass::kRefused], 0) << table->name;
    counts += of_table;
  }
  for (const EngineClass c : kAlways) EXPECT_GT(counts[c], 0) << EngineClassName(c);
  // A parity of a path with itself proves nothing: both have to have run.
  EXPECT_EQ(counts.granted > 0, ParseCacheSpec(GetParam()).grants_host_slots);
  EXPECT_GT(counts.updated, 0);
}

std::vector<std::string> CacheNames() {
  std::vector<std::string> names;
  for (const CacheSpec& spec : AllCaches()) names.push_back(spec.name);
  return names;
}

std::string TestNameOf(std::string name) {
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(AllCaches, EngineCampaignTest, testing::ValuesIn(CacheNames()),
                         [](const auto& i) { return TestNameOf(i.param); });

// Every registered cache with rows on a device, with an engine there: on the executor in order, in
// others and with several threads, and on a GPU where there is one.
class EngineDeviceCampaignTest
    : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(EngineDeviceCampaignTest, NothingChangesABit) {
  const auto& [cache, device] = GetParam();
  if (device == "cuda" && !WhyNoCudaDevice().empty()) GTEST_SKIP() << WhyNoCudaDevice();
  constexpr int32_t kPaths[] = {0, 1, 3};  // direct, legacy, refused at layer 1
  constexpr int32_t kScripts = 18;
  EngineCounts counts;
  for (int32_t i = 0; i < kScripts; ++i) {
    EngineScript script = GenerateEngineScript(static_cast<uint64_t>(1000 + i), kOperations,
                                               {.caches = {cache}, .isa = "scalar"});
    script.caches.resize(1);
    script.threads = i % 9 == 8 ? 3 : 1;
    script.device = device == "any order" ? "host-executor/" + std::to_string(i + 1) : device;
    for (int32_t s = 0; s < kEngineSequences; ++s) {
      script.ops.insert(
          script.ops.begin(),
          {.kind = EngineOpKind::kPath, .sequences = {s}, .count = kPaths[i % std::ssize(kPaths)]});
    }
    const EngineRun run = RunEngineScript(script);
    ASSERT_FALSE(run.finding) << Report(script);
    counts += run.counts;
  }
  for (const EngineClass c : kAlways) EXPECT_GT(counts[c], 0) << EngineClassName(c);
  for (const EngineClass c : {EngineClass::kEndBesideFork, EngineClass::kShifted,
                              EngineClass::kStepAfterShift, EngineClass::kRestored}) {
    EXPECT_GT(counts[c], 0) << EngineClassName(c);
  }
  const bool part = ParseCacheSpec(cache).device_layers < INT32_MAX;
  EXPECT_GT(counts[part ? EngineClass::kPartOnDevice : EngineClass::kOnDevice], 100);
  EXPECT_GT(part ? 1 : counts[EngineClass::kGraphStep], 0);
  EXPECT_GT(counts.granted, 0) << "no slot on the device";
}

std::vector<std::string> DeviceCacheNames() {
  std::vector<std::string> names;
  for (const CacheSpec& spec : AllCaches()) {
    if (spec.device_layers > 0) names.push_back(spec.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(DeviceCaches, EngineDeviceCampaignTest,
                         testing::Combine(testing::ValuesIn(DeviceCacheNames()),
                                          testing::Values("host-executor", "any order", "cuda")),
                         [](const auto& i) {
                           return TestNameOf(std::get<0>(i.param) + " " + std::get<1>(i.param));
                         });

// Scripts as `lockstep fuzz` makes them, mixed caches and threads included, reach every class.
TEST(EngineScriptRunnerTest, ACampaignReachesEveryClass) {
  EngineCounts counts;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    const EngineScript script = GenerateEngineScript(seed, kOperations);
    const EngineRun run = RunEngineScript(script);
    ASSERT_FALSE(run.finding) << Report(script);
    counts += run.counts;
  }
  for (size_t i = 0; i < kEngineClasses; ++i) {
    const auto c = static_cast<EngineClass>(i);
    EXPECT_GE(counts[c], 3) << EngineClassName(c);
  }
  EXPECT_EQ(counts.operations, 120 * kOperations);
}

// The digest is over logits and rows: what a script is run with plays no part in it.
TEST(EngineScriptRunnerTest, ThreadsTablesAndInternalStepsChangeNoBit) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    EngineScript script = GenerateEngineScript(seed, kOperations);
    script.threads = 1;
    script.blocks = 0;
    const Digest plain = RunEngineScript(script).digest;
    for (const int32_t threads : {2, 3, 7}) {
      EngineScript other = script;
      other.threads = threads;
      EXPECT_EQ(RunEngineScript(other).digest, plain) << threads << " threads, seed " << seed;
    }
    for (const KernelTable* table : AvailableKernels()) {
      EngineScript other = script;
      other.isa = table->name;
      EXPECT_EQ(RunEngineScript(other).digest, plain) << table->name << ", seed " << seed;
    }
    std::erase_if(script.ops, [](const EngineOp& op) { return op.kind == EngineOpKind::kCancel; });
    const Digest whole = RunEngineScript(script).digest;
    for (const int32_t step : {1, 2, 512}) {
      EngineScript other = script;
      other.step = step;
      EXPECT_EQ(RunEngineScript(other).digest, whole) << "steps of " << step << ", seed " << seed;
    }
    for (EngineOp& op : script.ops) {
      if (op.kind == EngineOpKind::kPath) op.count = 0;
    }
    EXPECT_EQ(RunEngineScript(script).digest, whole) << "direct alone, seed " << seed;
  }
}

// Sequences on a device and on the host take turns and share steps, in one engine.
TEST(EngineScriptRunnerTest, DevicesChangeNoBit) {
  for (const char* caches : {"cuda", "cuda-quantized/q8_0+q8_0/w4", "hybrid/1", "cuda,simple"}) {
    SCOPED_TRACE(caches);
    EngineScript script = ParseEngineScript(
        std::string("engine tiny-untied-4x2-q8_0 cache=") + caches +
            " max=24\nprefill cuts=5,3 tokens=3\ndecode n=3\nfork to=2\ndecode seq=2 n=2 tokens=4\n"
            "adapt seq=2 to=3\nspeculate n=4 accept=1 tokens=5\nbatch seq=0,1,2 cuts=1,6,2 "
            "tokens=7\n"
            "decode seq=2 n=2\nshift seq=2 from=1 to=4\npath to=refuse1\ndecode n=2 tokens=2\n"
            "path to=legacy\ndecode n=2\nrollback to=4\npath\ndecode n=3\n",
        "test");
    const EngineRun host = RunEngineScript(script);
    EXPECT_FALSE(host.finding) << host.finding->what;
    for (const char* device : {"host-executor", "host-executor/3"}) {
      script.device = device;
      EngineRun run = RunEngineScript(script);
      EXPECT_FALSE(run.finding) << run.finding->what;
      EXPECT_EQ(run.digest, host.digest) << device;
      EXPECT_GT(run.counts[EngineClass::kOnDevice] + run.counts[EngineClass::kPartOnDevice], 0);
    }
  }
}

// Steps that the cache, not the engine, cuts: registered caches take more rows than scripts write.
TEST(EngineScriptRunnerTest, ACacheThatTakesFewRowsCutsSteps) {
  const EngineSubject subject = {.make_cache = [](const CacheSpec& spec, const KvGeometry& geometry,
                                                  int32_t) {
    return std::make_unique<QuantizedKvCache>(QuantizedKvOptions{.geometry = geometry,
                                                                 .key_type = spec.key_type,
                                                                 .value_type = spec.value_type,
                                                                 .window = spec.window,
                                                                 .max_step_rows = 3,
                                                                 .window_type = spec.window_type});
  }};
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EngineScript script = GenerateEngineScript(
        seed, kOperations, {.caches = {"quantized/q8_0+q4_0/w2"}, .isa = "scalar"});
    script.threads = 1;
    const EngineRun run = RunEngineScript(script, subject);
    EXPECT_FALSE(run.finding) << run.finding->what << '\n' << EngineScriptText(script);
    // The registry's cache takes whole steps, and leaves the same bits; a step that is abandoned
    // at some point has come less far.
    std::erase_if(script.ops, [](const EngineOp& op) { return op.kind == EngineOpKind::kCancel; });
    EXPECT_EQ(RunEngineScript(script, subject).digest, RunEngineScript(script).digest);
  }
}

// A cache that cannot fork, save, or hand out its stored bytes is run without.
TEST(EngineScriptRunnerTest, ASubjectOfCacheScriptsRunsUnderTheEngine) {
  ScriptSubject poor = RegisteredSubject("quantized/f16+f16/w4");
  poor.forks = poor.saves = poor.compares_storage = false;
  EngineCounts counts;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EngineScript script = GenerateEngineScript(seed, kOperations, {.isa = "scalar"});
    script.threads = 1;
    const EngineRun run = RunEngineScript(script, EngineOn(poor));
    EXPECT_FALSE(run.finding) << run.finding->what << '\n' << EngineScriptText(script);
    counts += run.counts;
  }
  EXPECT_GT(counts[EngineClass::kBatchOfThree], 0);
  EXPECT_EQ(counts[EngineClass::kRestored], 0);
  EXPECT_EQ(counts[EngineClass::kEndBesideFork], 0);
  // With another window than it has, it does not pass.
  poor.model.window = 3;
  EXPECT_TRUE(RunEngineScript(GenerateEngineScript(1, kOperations), EngineOn(poor)).finding);
}

// Fails at the last stage: every layer was written, and rows were pushed out of every window.
class ThrowingTrace final : public TraceSink {
 public:
  void OnStage(const StageRows& rows) override {
    if (rows.stage == Stage::kLogits) throw std::runtime_error("late");
  }
};

TEST(EngineScriptRunnerTest, F1_NothingButAWindowRemembersAFailedStep) {
  const auto model = EngineModelOf("tiny-untied-4x2-q8_0", 1)->model;
  Transformer engine(model);
  const std::vector<int32_t> tokens = {5, 60, 7, 80, 9, 110, 11, 120, 13};
  const std::vector<int32_t> positions = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  const auto forward = [&](KvCache& cache, size_t first, size_t count, TraceSink* trace = nullptr) {
    const std::span<const float> logits =
        engine.Forward(std::span(tokens).subspan(first, count),
                       std::span(positions).subspan(first, count), cache, trace);
    return DigestOfFloats(logits);
  };
  for (const CacheSpec& spec : AllCaches()) {
    if (!spec.windows.empty()) continue;  // the model sees all rows
    const auto plain = spec.make({.geometry = model->config().geometry(16)});
    const auto failed = spec.make({.geometry = model->config().geometry(16)});
    forward(*plain, 0, 6);
    forward(*failed, 0, 6);
    ThrowingTrace trace;
    EXPECT_THROW(forward(*failed, 6, 3, &trace), std::runtime_error);
    EXPECT_EQ(failed->current_length(), 6) << spec.name;
    EXPECT_EQ(DigestOfCache(*failed) == DigestOfCache(*plain), spec.window == 0) << spec.name;
    // A window of one row is the query's own.
    EXPECT_EQ(forward(*failed, 6, 1) == forward(*plain, 6, 1), spec.window <= 1) << spec.name;
  }
}

// What no generator makes and a person may write.
TEST(EngineScriptRunnerTest, OddOperationsAreRefusedOrDoNothing) {
  const EngineRun run = RunEngineScript(ParseEngineScript(
      "engine tiny-mha-4x4-f32 cache=simple max=9\n"
      "batch seq=\nprefill cuts=3,4096,2\nrollback to=2147483647\n"
      "speculate n=4096 accept=4096\nfork seq=1 to=1\ncancel seq=0,0 cuts=1,1\n"
      "path to=refuse1000\nprefill\ndecode n=2\nend seq=3\nrestore\nsave\nclear\nrestore\n",
      ""));
  EXPECT_FALSE(run.finding) << run.finding->what;
  EXPECT_EQ(run.counts.steps, 3);
  EXPECT_EQ(run.counts.classes[static_cast<size_t>(EngineClass::kOverflowRefused)], 2);
  EXPECT_EQ(run.counts.classes[static_cast<size_t>(EngineClass::kRepeatedRefused)], 2);
}

// A batch fails for want of a block when the neighbour's window has already lost a row.
TEST(EngineScriptRunnerTest, ANeighboursExhaustedPoolCostsAWindowItsRows) {
  const EngineRun run = RunEngineScript(ParseEngineScript(
      "engine tiny-untied-4x2-q8_0 cache=quantized/f16+f16/w4,paged/4 max=16 blocks=1\n"
      "prefill cuts=6 tokens=3\nbatch seq=0,1 cuts=1,8 tokens=5\ndecode n=1\n",
      ""));
  EXPECT_FALSE(run.finding) << run.finding->what;
  EXPECT_EQ(run.counts.classes[static_cast<size_t>(EngineClass::kExhausted)], 1);
}

TEST(EngineScriptRunnerTest, OtherTokensOrWeightsAreAnotherDigest) {
  EngineScript script = ParseEngineScript(
      "engine tiny-mha-4x4-f32 cache=paged/4 max=16\nprefill cuts=5 tokens=1\ndecode n=2\n", "");
  const EngineRun run = RunEngineScript(script);
  EXPECT_FALSE(run.finding);
  EXPECT_EQ(run.counts.steps, 3);
  EXPECT_EQ(run.counts.tokens, 7);
  script.ops[0].tokens = 2;
  EXPECT_NE(RunEngineScript(script).digest, run.digest);
  script.ops[0].tokens = 1;
  script.seed = 2;
  EXPECT_NE(RunEngineScript(script).digest, run.digest);
}

}  // namespace
}  // namespace lockstep
