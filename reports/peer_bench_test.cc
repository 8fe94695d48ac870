#include "reports/peer_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "caches/error.h"
#include "engine/synthetic.h"
#include "reports/peer/process.h"

namespace lockstep {
namespace {

using internal::LineProcess;
using testing::HasSubstr;

// A driver that answers at once: half a second for everything, and logits that change in batches of
// seven and with the second thread.
constexpr const char* kFakeDriver = R"(
echo '{"library":"fake 1.0","llama":"none"}'
while read -r what n batch threads stride; do
  case "$what:$batch:$threads" in
    bits:1:1) echo '{"digests":["a","b"]}' ;;
    bits:7:1) echo '{"digests":["a","c"]}' ;;
    bits:*) echo '{"digests":["x","y"]}' ;;
    *) echo '{"seconds":0.5}' ;;
  esac
done
)";

std::shared_ptr<const Model> TinyModel() {
  return Model::Load(MakeSyntheticModel(SyntheticPreset("tiny-gqa-9x3-q8_0"), 1));
}

PeerBenchOptions TinyOptions(const std::string& driver) {
  PeerBenchOptions options;
  options.model_path = "model.gguf";
  options.command = {"sh", "-c", driver, "driver"};
  options.prefills = {5};
  options.depths = {3};
  options.decode_tokens = 2;
  options.rounds = 3;
  options.bits_tokens = 14;
  options.limits = {.read_bytes = int64_t{1} << 20, .seconds = 1e-5, .attempts = 1};
  return options;
}

TEST(PeerBenchTest, PairsAndBitsAreThoseOfBothSides) {
  const PeerBenchResult result = RunPeerBench(TinyModel(), TinyOptions(kFakeDriver));
  EXPECT_EQ(result.peer, "fake 1.0, none");
  ASSERT_EQ(result.points.size(), 4u);
  for (const PeerPoint& point : result.points) {
    ASSERT_EQ(point.rounds.size(), 3u);
    for (const PeerRound& round : point.rounds) {
      EXPECT_DOUBLE_EQ(round.theirs, 0.5);
      EXPECT_GT(round.ours, 0);
      EXPECT_GT(round.limit, 0);
    }
  }
  ASSERT_EQ(result.bits.size(), 3u);
  EXPECT_EQ(result.bits[0].theirs_changed, 1);
  EXPECT_EQ(result.bits[1].theirs_changed, 2);
  EXPECT_TRUE(result.ours_is_invariant());
  for (const ChangedBits& bits : result.bits) EXPECT_EQ(bits.ours_compared, 2) << bits.how;
}

TEST(PeerBenchTest, ReportsSayRatioAndChangedBits) {
  PeerBenchResult result = RunPeerBench(TinyModel(), TinyOptions(kFakeDriver));
  for (PeerRound& round : result.points[0].rounds) {
    round.ours = 0.25;
    round.limit = 0.125;
  }
  const Table table = PeerTable(result);
  EXPECT_EQ(table.rows[0][2], "20.0 [20.0, 20.0]");
  EXPECT_EQ(table.rows[0][3], "10.0 [10.0, 10.0]");
  EXPECT_EQ(table.rows[0][4], "2.00");
  EXPECT_EQ(table.rows[0][5], "2.00 to 2.00");
  EXPECT_EQ(table.rows[0][6], "40.0 [40.0, 40.0]");
  EXPECT_EQ(table.rows[0][7], "50.0 %");
  EXPECT_EQ(table.rows[0][8], "25.0 %");
  const std::string page = PeerMarkdown(result, "the command", "the model");
  EXPECT_THAT(page, HasSubstr("fake 1.0"));
  EXPECT_THAT(page, HasSubstr("other load while ours ran"));
  EXPECT_THAT(page, HasSubstr("| 0 of 2 | 1 of 2 |"));
  EXPECT_THAT(PeerJson(result, "the command", "the model"), HasSubstr("\"changed_bits\""));
  result.bits[0].ours_changed = 1;
  EXPECT_FALSE(result.ours_is_invariant());
}

TEST(PeerBenchTest, DriversThatFailAreErrors) {
  const auto fails = [](const std::string& driver, const char* part) {
    try {
      RunPeerBench(TinyModel(), TinyOptions(driver));
      ADD_FAILURE() << driver;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(part));
    }
  };
  fails("exit 1", "ended before it answered");
  fails("echo hello", "answered hello");
  fails("echo '{}'; read line; echo '{\"error\":\"no model\"}'", "no model");
}

TEST(LineProcessTest, AnswersAreLinesAndSilenceIsAnError) {
  LineProcess echo({"cat"}, 10);
  EXPECT_EQ(echo.Ask("one"), "one");
  const std::string two(10'000, 'x');
  EXPECT_EQ(echo.Ask(two), two);
  LineProcess silent({"sleep", "10"}, 1);
  EXPECT_THROW(silent.Ask("anything"), Error);
  LineProcess absent({"/absent/program"}, 10);
  EXPECT_THROW(absent.ReadLine(), Error);
}

}  // namespace
}  // namespace lockstep
