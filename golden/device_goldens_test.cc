// The golden files of this tree, held by the engine on a device: the host executor, or the GPU
// where LOCKSTEP_DEVICE names it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "caches/test_paths.h"
#include "engine/test_models.h"
#include "golden/store.h"
#include "oracle/matrix_controls.h"

namespace lockstep {
namespace {

CheckOptions OnDevice(const std::shared_ptr<Device>& device) {
  CheckOptions check{.tree = {.folder = SourceDir() + "/golden/cases"}};
  check.record.models = TestModelsDirectory();
  check.record.device = device;
  return check;
}

void ExpectHolds(const CheckOptions& check, int64_t equal_min) {
  const std::vector<GoldenStatus> found = CheckGoldens(check);
  for (const GoldenStatus& status : found) {
    EXPECT_TRUE(HoldsWith(status.state))
        << status.scenario << "/" << status.file << " is " << GoldenStateName(status.state) << ": "
        << status.detail << "\nlockstep golden check --device host-executor " << status.scenario;
  }
  EXPECT_GE(std::ranges::count(found, GoldenState::kEqual, &GoldenStatus::state), equal_min);
}

TEST(DeviceGoldensTest, HoldOnTheDevice) { ExpectHolds(OnDevice(NewDefaultDevice()), 77); }

TEST(DeviceGoldensTest, HoldInShuffledOrdersOnTheLegacyPath) {
  CheckOptions check = OnDevice(MakeHostExecutor({.seed = 11, .threads = 2}));
  check.record.legacy = true;
  ExpectHolds(check, 77);
}

TEST(DeviceGoldensTest, WhatNoCacheOnADeviceDoesIsSkipped) {
  CheckOptions check = OnDevice(NewDefaultDevice());
  check.cases = {"gate-pool", "rows-q8_0-q4_0-w4"};
  const std::vector<GoldenStatus> found = CheckGoldens(check);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].state, GoldenState::kSkipped);
  EXPECT_EQ(found[0].detail, "its pool runs out of blocks, and caches on a device have none");
  EXPECT_EQ(found[1].state, GoldenState::kSkipped);
  EXPECT_EQ(found[1].detail, "no cache on a device keeps such rows");
}

const MatrixControl& NudgeOnDevice() {
  return *std::ranges::find(MatrixControls(), MatrixAxis::kDevice, &MatrixControl::axis);
}

TEST(DeviceGoldensTest, OneBitOfACommitOnTheDeviceIsFound) {
  const auto device = NewDefaultDevice();
  CheckOptions check = OnDevice(device);
  check.cases = {"arch-mha-f32", "rows-f16", "rows-q8_0"};
  ExpectHolds(check, 3);
  check.record.subject.make_cache = [&](const CacheSpec& spec, const KvGeometry& geometry,
                                        int32_t) {
    return NudgeOnDevice().wrap(spec.make({.geometry = geometry, .device = device}));
  };
  for (const GoldenStatus& status : CheckGoldens(check)) {
    SCOPED_TRACE(status.scenario);
    ASSERT_EQ(status.state, GoldenState::kChanged);
    EXPECT_EQ(status.changes.front().place.layer, 0);
    EXPECT_EQ(status.changes.front().place.name.substr(0, 9), "cache_key") << status.detail;
  }
}

TEST(DeviceGoldensTest, ARecordingOfWhichNothingRanThereDoesNotHold) {
  CheckOptions check = OnDevice(NewDefaultDevice());
  check.cases = {"arch-mha-f32"};
  check.record.subject.make_cache = [](const CacheSpec& spec, const KvGeometry& geometry, int32_t) {
    return spec.make({.geometry = geometry});  // on another device
  };
  const std::vector<GoldenStatus> found = CheckGoldens(check);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].state, GoldenState::kChanged);
  EXPECT_EQ(found[0].detail, "no layer ran on the device, so nothing was checked");
}

}  // namespace
}  // namespace lockstep
