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

TEST(DeviceCheckTest, AGpuThatCannotBeUsedIsAFailure) {
  const TemporaryFolder folder;
  const std::string rows = folder.File("rows"), file = folder.File("report.json");
  std::ofstream(rows) << "tests\tFAILED\t1.5\tcaches_device_test\nbuild\tok\t9\tfor cuda\n";
  const ProcessResult result = RunLockstepCommand(
      {"device-check", "--rows", rows, "--json-file", file}, {"CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("caches_device_test"));
  EXPECT_THAT(result.out, HasSubstr("device-check: 3 rows, 2 failed, 0 skipped"));
  const auto object = nlohmann::json::parse(std::ifstream(file));
  EXPECT_EQ(object["device"], "none");
  EXPECT_EQ(object["failed"], 2);
  EXPECT_EQ(object["rows"][2]["part"], "device");
  // The tests may have passed, on no GPU at all.
  std::ofstream(rows) << "tests\tok\t1.5\tcaches_device_test\n";
  EXPECT_EQ(
      RunLockstepCommand({"device-check", "--rows", rows}, {"CUDA_VISIBLE_DEVICES="}).exit_code, 1);
}

TEST(DeviceCheckTest, UnknownPartsAndVerdictsAreRefused) {
  for (const bool simulate : {true, false}) {
    std::vector<std::string> args = {"device-check", "--skip", "limit"};
    if (simulate) args.emplace_back("--simulate");
    const ProcessResult result = RunLockstepCommand(args, {"CUDA_VISIBLE_DEVICES="});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("--skip: 'limit' is no part (parts: device, limits, "));
  }
  const TemporaryFolder folder;
  const std::string rows = folder.File("rows");
  std::ofstream(rows) << "tests\tfailed\t1.5\tcaches_device_test\n";
  const ProcessResult result = RunLockstepCommand({"device-check", "--simulate", "--rows", rows});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("'failed' is no verdict"));
}

TEST(DeviceCheckTest, WithoutAGpuItSaysSo) {
  const ProcessResult result = RunLockstepCommand({"device-check"}, {"CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("device-check: skipped: "));
}

}  // namespace
}  // namespace lockstep::cli
