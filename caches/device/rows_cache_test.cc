// Caches with rows on a device, written there (caches/device_kv.h): the device's side has to do
// what the host's side does, bit for bit, in any order that the device may choose.
#include <stdexcept>

#include "caches/device/rows_cache_test_util.h"
#include "caches/hybrid_kv_cache.h"
#include "caches/simple_kv_cache.h"

namespace lockstep {
namespace {

using device_test::AllKindsAndOrders;
using device_test::DeviceCacheTest;
using device_test::Engine;
using device_test::kGeometry;
using device_test::kSteps;
using device_test::kStride;
using device_test::Seen;
using device_test::Step;
using device_test::TestName;
using storage_test::Range;
using storage_test::Write;

INSTANTIATE_TEST_SUITE_P(Caches, DeviceCacheTest, AllKindsAndOrders(), TestName);

TEST_P(DeviceCacheTest, EveryWayOfWritingGivesTheSame) {
  const auto direct = Make(), legacy = Make(), from_host = Make(), twin = Twin();
  int32_t version = 0;
  for (const Step& step : kSteps) {
    ++version;
    for (KvCache* cache : {direct.get(), legacy.get(), from_host.get(), twin.get()}) {
      if (step.rollback >= 0) cache->Rollback(step.rollback);
    }
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      Write(from_host.get(), layer, step.positions, version);
      Write(twin.get(), layer, step.positions, version);
      if (layer >= layers()) {
        Write(direct.get(), layer, step.positions, version);
        Write(legacy.get(), layer, step.positions, version);
        continue;
      }
      ASSERT_TRUE(engine_.WriteDirect(direct.get(), layer, step.positions, version));
      engine_.Update(legacy.get(), layer, step.positions, version);
    }
    const auto expected = Seen(*twin);
    ASSERT_EQ(Seen(*from_host), expected) << "step " << version;
    ASSERT_EQ(Seen(*legacy), expected) << "step " << version;
    ASSERT_EQ(Seen(*direct), expected) << "step " << version;
  }
  EXPECT_EQ(DigestOfCache(*direct->Fork()), DigestOfCache(*twin));
}

// Positions in any order, twice in one launch and in two [U2].
TEST_P(DeviceCacheTest, UpdatesOnTheDeviceTakeAnyPositions) {
  const auto cache = Make(), twin = Twin();
  std::vector<int32_t> many;
  for (int32_t i = 0; i < 24; ++i) many.push_back((i * 7) % 10);
  int32_t version = 0;
  for (const std::vector<int32_t>& positions :
       {std::vector<int32_t>{4, 1, 4, 4, 9}, {9, 9}, many, {20, 3, 20}, {}}) {
    engine_.Update(cache.get(), 0, positions, ++version);
    Write(twin.get(), 0, positions, version);
    ASSERT_EQ(Seen(*cache), Seen(*twin)) << "update " << version;
  }
}

TEST_P(DeviceCacheTest, MoreRowsThanALaunchTakesLastOnesWin) {
  KvGeometry geometry = kGeometry;
  geometry.max_length = 60;
  const auto cache = ParseCacheSpec(kind().name).make({.geometry = geometry, .device = device_});
  const auto twin = ParseCacheSpec(kind().host).make({.geometry = geometry});
  std::vector<int32_t> positions = Range(0, 59);
  positions.push_back(3);  // in the second launch, and in the first
  engine_.Update(cache.get(), 0, positions, 1);
  Write(twin.get(), 0, positions, 1);
  EXPECT_EQ(Seen(*cache), Seen(*twin));
  Write(cache.get(), 0, positions, 2);
  Write(twin.get(), 0, positions, 2);
  EXPECT_EQ(Seen(*cache), Seen(*twin));
}

// The decisions of SimpleKvCache; with a window also the limit of a step.
TEST_P(DeviceCacheTest, R2_GrantsWhatSimpleGrants) {
  const auto cache = Make();
  SimpleKvCache simple(kGeometry);
  DeviceKv* kv = cache->device_kv(0);
  const auto before = Seen(*cache);
  for (int32_t first = -1; first <= 24; ++first) {
    for (int32_t end = first; end <= 25; ++end) {
      const auto run = Range(first, end);
      EXPECT_EQ(kv->TryReserveDeviceSlot(0, run, engine_.stream()).has_value(),
                simple.TryReserveSlot(0, run).has_value())
          << first << " to " << end;
    }
  }
  for (const std::vector<int32_t>& positions :
       {std::vector<int32_t>{0, 2}, {1, 0}, {3, 3}, {INT32_MAX}, {INT32_MAX - 1, INT32_MAX}}) {
    EXPECT_FALSE(kv->TryReserveDeviceSlot(0, positions, engine_.stream()));
  }
  for (int32_t layer : {-1, kGeometry.num_layers, INT32_MIN}) {
    EXPECT_THROW(kv->TryReserveDeviceSlot(layer, {}, engine_.stream()), std::out_of_range);
    EXPECT_THROW(kv->CommitDeviceSlot(layer, {}, engine_.stream()), std::out_of_range);
    EXPECT_THROW(cache->device_kv(layer), std::out_of_range);
  }
  EXPECT_EQ(Seen(*cache), before);
  EXPECT_FALSE(cache->TryReserveSlot(0, Range(0, 1))) << "R3";
}

TEST_P(DeviceCacheTest, U4_RefusesInTheOrderOfTheContract) {
  const auto cache = Make();
  DeviceKv* kv = cache->device_kv(0);
  const auto update = [&](int32_t layer, const std::vector<int32_t>& positions, int64_t elements) {
    kv->UpdateOnDevice(layer, positions, {nullptr, elements}, {nullptr, elements},
                       engine_.stream());
  };
  EXPECT_THROW(update(7, {99}, 1), std::out_of_range);
  EXPECT_THROW(update(0, {99}, 1), std::invalid_argument);
  EXPECT_THROW(update(0, {24}, kStride), std::out_of_range);
  EXPECT_THROW(update(0, {-1}, kStride), std::out_of_range);
  if (cache->view_depends_on_query()) {
    const std::vector<int32_t> many(25, 0);
    EXPECT_THROW(update(0, many, 25 * kStride), std::invalid_argument);
  }
  EXPECT_EQ(cache->current_length(), 0);
}

// Rows of a reservation show nowhere on the host until they are committed, in no query of the step
// before either [R5].
TEST_P(DeviceCacheTest, R5_AnOpenReservationShowsNowhere) {
  for (int32_t before_rows : {2, 9}) {
    for (int32_t first : {before_rows, before_rows + 3}) {
      const auto cache = Make(), twin = Twin();
      Write(cache.get(), 0, Range(0, before_rows), 1);
      Write(twin.get(), 0, Range(0, before_rows), 1);
      const auto before = Seen(*cache);
      const auto run = Range(first, first + 5);
      DeviceKv* kv = cache->device_kv(0);
      const auto slot = kv->TryReserveDeviceSlot(0, run, engine_.stream());
      ASSERT_TRUE(slot);
      engine_.Store(*slot, 0, 2);
      EXPECT_EQ(Seen(*cache), before);
      EXPECT_EQ(Seen(*cache), Seen(*twin));
      engine_.stream().Synchronize();
      EXPECT_EQ(Seen(*cache), before) << "the rows are written, and not committed";
      kv->CommitDeviceSlot(0, run, engine_.stream());
      Write(twin.get(), 0, run, 2);
      EXPECT_EQ(Seen(*cache), Seen(*twin));
    }
  }
}

TEST_P(DeviceCacheTest, AbandonedReservationsLeaveNoTrace) {
  const auto cache = Make(), twin = Twin();
  DeviceKv* kv = cache->device_kv(0);
  const auto abandon = [&](const std::vector<int32_t>& run) {
    const auto slot = kv->TryReserveDeviceSlot(0, run, engine_.stream());
    ASSERT_TRUE(slot);
    engine_.Store(*slot, 0, 77);
  };
  for (KvCache* c : {cache.get(), twin.get()}) Write(c, 0, Range(0, 6), 1);
  abandon(Range(6, 9));
  abandon(Range(8, 12));  // replaces it [R6]
  EXPECT_THROW(kv->CommitDeviceSlot(0, Range(6, 9), engine_.stream()), std::logic_error);
  for (KvCache* c : {cache.get(), twin.get()}) Write(c, 0, {7}, 2);  // cancels it, over a gap [U6]
  EXPECT_THROW(kv->CommitDeviceSlot(0, Range(8, 12), engine_.stream()), std::logic_error);
  EXPECT_EQ(Seen(*cache), Seen(*twin));
  abandon(Range(8, 10));
  for (KvCache* c : {cache.get(), twin.get()}) c->Rollback(5);  // cancels it [B2]
  EXPECT_THROW(kv->CommitDeviceSlot(0, Range(8, 10), engine_.stream()), std::logic_error);
  EXPECT_EQ(Seen(*cache), Seen(*twin));
  for (KvCache* c : {cache.get(), twin.get()}) Write(c, 0, {11}, 3);
  EXPECT_EQ(Seen(*cache), Seen(*twin)) << "gap rows are zero, not what was abandoned [V2]";
  abandon(Range(12, 13));
  EXPECT_THROW(cache->Rollback(13), std::out_of_range);
  kv->CommitDeviceSlot(0, Range(12, 13), engine_.stream());  // the refusal kept it [B1]
  Write(twin.get(), 0, {12}, 77);
  EXPECT_EQ(Seen(*cache), Seen(*twin));
  abandon(Range(13, 14));
  EXPECT_EQ(Seen(*cache->Fork()), Seen(*twin));
  EXPECT_THROW(kv->CommitDeviceSlot(0, Range(13, 14), engine_.stream()), std::logic_error) << "B4";
}

TEST_P(DeviceCacheTest, C2_CommitsWithoutAReservation) {
  const auto cache = Make();
  DeviceKv* kv = cache->device_kv(0);
  Write(cache.get(), 0, Range(0, 4), 1);
  const auto before = Seen(*cache);
  kv->CommitDeviceSlot(0, {}, engine_.stream());
  kv->CommitDeviceSlot(0, Range(1, 4), engine_.stream());
  EXPECT_THROW(kv->CommitDeviceSlot(0, Range(3, 5), engine_.stream()), std::logic_error);
  EXPECT_THROW(kv->CommitDeviceSlot(0, std::vector<int32_t>{-1}, engine_.stream()),
               std::logic_error);
  EXPECT_EQ(Seen(*cache), before);
  ASSERT_TRUE(kv->TryReserveDeviceSlot(0, Range(4, 6), engine_.stream()));
  EXPECT_THROW(cache->CommitSlot(0, Range(4, 6)), std::logic_error) << "it is no host slot";
  EXPECT_NO_THROW(kv->CommitDeviceSlot(0, Range(4, 6), engine_.stream()));
  EXPECT_EQ(cache->length(0), 6);
}

// The host waits by itself, for work that was enqueued after the last call as well.
TEST_P(DeviceCacheTest, HostCallsWaitForTheEnginesStream) {
  const auto cache = Make(), twin = Twin();
  DeviceKv* kv = cache->device_kv(0);
  int32_t version = 0;
  for (int32_t p = 0; p < 8; ++p) {
    const auto slot = kv->TryReserveDeviceSlot(0, Range(p, p + 1), engine_.stream());
    ASSERT_TRUE(slot);
    if (p % 2 == 0) {
      engine_.Store(*slot, 0, ++version);
      kv->CommitDeviceSlot(0, Range(p, p + 1), engine_.stream());
      Write(twin.get(), 0, {p}, version);
    } else {  // a step that fails after its kernels were enqueued
      engine_.Store(*slot, 0, 99);
      cache->Rollback(p);
      twin->Rollback(p);
      Write(cache.get(), 0, {p}, ++version);
      Write(twin.get(), 0, {p}, version);
    }
    ASSERT_EQ(Seen(*cache), Seen(*twin)) << p;
  }
  // A stream that is gone has nothing to wait for.
  {
    Engine other(*device_);
    ASSERT_TRUE(other.WriteDirect(cache.get(), 0, Range(8, 9), 5));
  }
  Write(twin.get(), 0, {8}, 5);
  EXPECT_EQ(Seen(*cache), Seen(*twin));
}

// H1: which layers lie on the device changes no bit, and files do not know.
TEST(HybridTest, H1_WhereALayerLiesChangesNothing) {
  const auto make = [](int32_t layers) {
    return std::make_unique<HybridKvCache>(
        HybridKvOptions{.geometry = kGeometry, .device_layers = layers});
  };
  const auto none = make(0), one = make(1), all = make(9);
  EXPECT_EQ(none->device_kv(0), nullptr);
  EXPECT_NE(one->device_kv(0), nullptr);
  EXPECT_EQ(one->device_kv(1), nullptr);
  EXPECT_NE(all->device_kv(1), nullptr);
  for (KvCache* cache : {none.get(), one.get(), all.get()}) {
    storage_test::WriteAll(cache, Range(0, 9), 1);
    cache->Rollback(5);
    Write(cache, 1, {8}, 2);
    cache->Rollback(7);
  }
  EXPECT_EQ(Seen(*one), Seen(*none));
  EXPECT_EQ(Seen(*all), Seen(*none));
  EXPECT_EQ(one->current_length(), 7);
  EXPECT_EQ(one->length(0), 5);
  EXPECT_THROW(make(-1), std::invalid_argument);
}

// H1: a rollback that one half cannot do is done by neither.
TEST(HybridTest, H1_RollbackIsAllOrNothingOverBothHalves) {
  for (int32_t longer : {0, 1}) {
    HybridKvCache cache({.geometry = kGeometry, .device_layers = 1});
    Write(&cache, longer, Range(0, 6), 1);
    Write(&cache, 1 - longer, Range(0, 3), 1);
    const auto before = Seen(cache);
    EXPECT_THROW(cache.Rollback(7), std::out_of_range);
    EXPECT_EQ(Seen(cache), before);
    cache.Rollback(6);
    EXPECT_EQ(Seen(cache), before);
    cache.Rollback(4);
    EXPECT_EQ(cache.length(longer), 4);
    EXPECT_EQ(cache.length(1 - longer), 3);
    cache.Rollback(2);
    EXPECT_EQ(cache.length(0), 2);
    EXPECT_EQ(cache.length(1), 2);
  }
}

}  // namespace
}  // namespace lockstep
