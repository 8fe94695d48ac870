#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "caches/temporary_folder.h"
#include "ci/lockstep/test_process.h"

namespace lockstep::cli {
namespace {

using testing::HasSubstr;

TEST(DeviceCheckTest, SimulatedItRunsEveryPart) {
  const TemporaryFolder folder;
  const std::string rows = folder.File("rows"), file = folder.File("report.json");
  std::ofstream(rows) << "tests\tok\t1.5\tcaches_device_test\n";
  const ProcessResult result =
      RunLockstepCommand({"device-check", "--simulate", "--rows", rows, "--json-file", file});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("device-check, simulated: 18 rows, 0 failed, 0 skipped"));
  const auto object = nlohmann::json::parse(std::ifstream(file));
  EXPECT_EQ(object["simulated"], true);
  std::set<std::string> parts;
  for (const auto& row : object["rows"]) parts.insert(row["part"]);
  EXPECT_THAT(parts, testing::ElementsAre("device", "limits", "parity-135m", "parity-1b",
                                          "parity-presets", "speed-135m", "speed-1b", "tests"));
  EXPECT_GT(object["rows"][2]["value"], 0.0);
  for (const auto& row : object["rows"]) {
    if (row.contains("unit")) {
      EXPECT_GT(row["value"], 0.0) << row;
    }
  }
}

TEST(DeviceCheckTest, AFailedRowFailsIt) {
  const TemporaryFolder folder;
  const std::string rows = folder.File("rows");
  std::ofstream(rows) << "tests\tFAILED\t1.5\tcaches_device_test\n";
  const ProcessResult result = RunLockstepCommand(
      {"device-check", "--simulate", "--skip", "limits", "--skip", "parity-1b", "--rows", rows});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("1 failed, 2 skipped"));
  std::ofstream(rows) << "tests ok\n";
  EXPECT_EQ(RunLockstepCommand({"device-check", "--simulate", "--rows", rows}).exit_code, 2);
}

TEST(DeviceCheckTest, WithoutAGpuItSaysSo) {
  const ProcessResult result = RunLockstepCommand({"device-check"}, {"CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("device-check: skipped: "));
}

}  // namespace
}  // namespace lockstep::cli
