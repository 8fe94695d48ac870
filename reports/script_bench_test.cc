#include "reports/script_bench.h"

#include <gtest/gtest.h>

#include "caches/registry.h"

namespace lockstep {
namespace {

TEST(ScriptBenchTest, RunsEveryRegisteredCacheAndRepeats) {
  const ScriptBenchOptions options{.caches = {}, .scripts = 12, .operations = 30, .rounds = 2};
  const auto results = RunScriptBench(options);
  ASSERT_EQ(results.size(), AllCaches().size());
  for (const ScriptBenchResult& result : results) {
    EXPECT_TRUE(result.holds) << result.cache;
    EXPECT_GE(result.operations, 12 * 30) << result.cache;
    EXPECT_GT(result.rows, 0) << result.cache;
  }
  EXPECT_EQ(ScriptTableOf(results).rows.size(), results.size());
  EXPECT_EQ(ScriptBenchDigest(RunScriptBench(options)), ScriptBenchDigest(results));
  ScriptBenchOptions other = options;
  other.seed = 2;
  EXPECT_NE(ScriptBenchDigest(RunScriptBench(other)), ScriptBenchDigest(results));
}

}  // namespace
}  // namespace lockstep
