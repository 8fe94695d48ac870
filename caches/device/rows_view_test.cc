// What queries on a device read of a cache there, against what its host side and another cache
// show.
#include "caches/codec.h"
#include "caches/device/rows_cache_test_util.h"
#include "caches/registry.h"

namespace lockstep {
namespace {

using device_test::AllKindsAndOrders;
using device_test::kGeometry;
using device_test::kSteps;
using device_test::kStride;
using device_test::Step;
using device_test::TestName;
using storage_test::Range;
using storage_test::Write;

class DeviceViewTest : public device_test::DeviceCacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, DeviceViewTest, AllKindsAndOrders(), TestName);

// Rows that a kernel would read by a DeviceKvView, for one query: [length, kv_stride] each.
KvRows ReadByView(const DeviceKvView& view, int32_t query, size_t index, int32_t length,
                  DeviceStream& stream) {
  std::vector<int32_t> exact_rows(static_cast<size_t>(view.exact_rows.size));
  const auto bytes_of = [&](Global<const uint8_t> memory) {
    std::vector<std::byte> bytes(static_cast<size_t>(memory.size));
    stream.Download(reinterpret_cast<const std::byte*>(memory.data), bytes.data(), memory.size);
    return bytes;
  };
  const auto halves_of = [&](Global<const uint16_t> memory) {
    return bytes_of({reinterpret_cast<const uint8_t*>(memory.data), memory.size * 2});
  };
  stream.Download(reinterpret_cast<const std::byte*>(view.exact_rows.data), exact_rows.data(),
                  view.exact_rows.size * 4);
  const auto keys = bytes_of(view.keys), values = bytes_of(view.values);
  const auto exact_keys = halves_of(view.exact_keys), exact_values = halves_of(view.exact_values);
  stream.Synchronize();
  KvRows rows;
  const auto add = [&](RowType type, const std::vector<std::byte>& from, int64_t row,
                       std::vector<float>* to) {
    const auto bytes = static_cast<size_t>(RowBytes(type, kStride));
    const size_t elements = to->size();
    to->resize(elements + static_cast<size_t>(kStride));
    DecodeRow(type, std::span(from).subspan(static_cast<size_t>(row) * bytes, bytes),
              std::span(*to).subspan(elements));
  };
  for (int32_t p = 0; p < length; ++p) {
    int64_t exact = -1;
    if (query - p < view.window) {
      exact = exact_rows[index * static_cast<size_t>(view.window) +
                         static_cast<size_t>(p % view.window)];
    }
    add(exact < 0 ? view.key_type : RowType::kF16, exact < 0 ? keys : exact_keys,
        exact < 0 ? p : exact, &rows.keys);
    add(exact < 0 ? view.value_type : RowType::kF16, exact < 0 ? values : exact_values,
        exact < 0 ? p : exact, &rows.values);
  }
  return rows;
}

// The rows that each query of a step may see [0, query], of the view on the device against the
// host's view of another cache.
void ExpectViewIs(const DeviceKvView& view, const std::vector<int32_t>& queries,
                  const KvCache& expected, DeviceStream& stream) {
  EXPECT_EQ(view.length, expected.length(0));
  KvView host;
  for (size_t i = 0; i < queries.size(); ++i) {
    const int32_t visible = queries[i] + 1;
    const KvRows got = ReadByView(view, queries[i], i, visible, stream);
    expected.ViewForQuery(0, queries[i], &host);
    KvRows want = DecodeRows(host, kStride);
    want.keys.resize(static_cast<size_t>(visible * kStride));
    want.values.resize(static_cast<size_t>(visible * kStride));
    ASSERT_TRUE(storage_test::SameBits(got.keys, want.keys)) << "query " << queries[i];
    ASSERT_TRUE(storage_test::SameBits(got.values, want.values)) << "query " << queries[i];
  }
}

TEST_P(DeviceViewTest, Q1_ViewOnDeviceIsTheHostsForEveryQuery) {
  const auto cache = Make(), twin = Twin();
  DeviceKv* kv = cache->device_kv(0);
  int32_t version = 0;
  for (const Step& step : kSteps) {
    SCOPED_TRACE(fmt::format("step {}", ++version));
    if (step.rollback >= 0) {
      cache->Rollback(step.rollback);
      twin->Rollback(step.rollback);
    }
    const auto slot = kv->TryReserveDeviceSlot(0, step.positions, engine_.stream());
    ASSERT_TRUE(slot);
    engine_.Store(*slot, 0, version);
    Write(twin.get(), 0, step.positions, version);
    // As they will read once they are committed, the gap before them included.
    ExpectViewIs(kv->ViewOnDevice(0, step.positions, engine_.stream()), step.positions, *twin,
                 engine_.stream());
    kv->CommitDeviceSlot(0, step.positions, engine_.stream());
    ExpectViewIs(kv->ViewOnDevice(0, step.positions, engine_.stream()), step.positions, *twin,
                 engine_.stream());
    const auto all = Range(0, cache->length(0));
    ExpectViewIs(kv->ViewOnDevice(0, all, engine_.stream()), all, *twin, engine_.stream());
    if (testing::Test::HasFailure()) return;
  }
}

TEST(DeviceViewTestItself, Q1_NoViewIsOfQueriesInsideAndOutsideAReservation) {
  const auto device = MakeHostExecutor();
  const auto stream = device->NewStream();
  const auto cache = ParseCacheSpec("cuda-quantized/q8_0+q8_0/w4")
                         .make({.geometry = kGeometry, .sequences = 1, .device = device});
  DeviceKv* kv = cache->device_kv(0);
  const std::vector<int32_t> before = {0, 1}, next = {2, 3}, both = {1, 2};
  ASSERT_TRUE(kv->TryReserveDeviceSlot(0, before, *stream));
  kv->CommitDeviceSlot(0, before, *stream);
  ASSERT_TRUE(kv->TryReserveDeviceSlot(0, next, *stream));
  kv->ViewOnDevice(0, before, *stream);
  kv->ViewOnDevice(0, next, *stream);
  EXPECT_DEATH(kv->ViewOnDevice(0, both, *stream), "one of them in the open reservation");
}

}  // namespace
}  // namespace lockstep
