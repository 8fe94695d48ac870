// Tests of what the contract's tests share: rows that could be exchanged unseen, comparisons that
// compare nothing and lists of caches that are empty make every test above them pass.
#include "caches/contract/fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "caches/storage_test_util.h"

namespace lockstep::contract {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

// Every row has something of its own: K and V, layers, positions, versions cannot be exchanged.
TEST(FixtureTest, NoTwoRowsAreEqual) {
  std::set<std::vector<uint32_t>> contract_rows, storage_rows;
  size_t rows = 0;
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
    for (int32_t position = 0; position < kGeometry.max_length; ++position) {
      for (int version : {1, 2, 3}) {
        for (Half half : {Half::kKeys, Half::kValues}) {
          contract_rows.insert(Bits(Row(kGeometry, layer, position, version, half)));
          storage_rows.insert(Bits(
              storage_test::Rows(kGeometry, layer, {{position}}, version, half == Half::kKeys)));
          ++rows;
        }
      }
    }
  }
  EXPECT_THAT(contract_rows, SizeIs(rows));
  EXPECT_THAT(storage_rows, SizeIs(rows));
}

// One row of one half of one layer is enough for a difference, and so is a length.
TEST(FixtureTest, ADifferenceIsSeenInEveryRow) {
  const auto cache = ParseCacheSpec("simple").make({.geometry = kGeometry});
  Model model(kGeometry);
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
    Update(cache.get(), layer, Range(0, 3), 1);
    model.Write(layer, Range(0, 3), 1);
  }
  ASSERT_EQ(Difference(*cache, model), "");
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
    for (int32_t position = 0; position < 3; ++position) {
      for (const bool keys : {true, false}) {
        auto k = Row(kGeometry, layer, position, 1, Half::kKeys);
        auto v = Row(kGeometry, layer, position, 1, Half::kValues);
        (keys ? k : v).back() += 1.0f;
        cache->Update(layer, {{position}}, k, v);
        EXPECT_THAT(Difference(*cache, model), HasSubstr(keys ? "K position" : "V position"));
        Update(cache.get(), layer, {position}, 1);
      }
    }
    Update(cache.get(), layer, {3}, 1);
    EXPECT_THAT(Difference(*cache, model), HasSubstr("length 4"));
    model.Write(layer, Range(3, 4), 1);
  }
  EXPECT_EQ(Difference(*cache, model), "");
}

// The lists that tests run over hold what their names say, and every registered cache is in one of
// each pair.
TEST(FixtureTest, ListsOfCachesAreWhatTheySay) {
  const size_t all = EveryCache().size();
  const auto forgets = [](const CacheSpec& spec) { return spec.undo_rows > 0; };
  EXPECT_EQ(std::ranges::count_if(EveryCache(), forgets), 2);
  EXPECT_EQ(std::ssize(EveryCache()) - 2,
            std::ssize(AllCaches()) - std::ranges::count_if(AllCaches(), forgets));
  EXPECT_EQ(SlotCaches().size() + SlotlessCaches().size(), all);
  for (const auto& caches :
       {SlotCaches(), SlotlessCaches(), BlockCaches(), WindowCaches(), QuantizedCaches()}) {
    EXPECT_THAT(caches, Not(SizeIs(0)));
    EXPECT_LT(caches.size(), all);
  }
  for (const CacheSpec& spec : WindowCaches()) EXPECT_THAT(spec.name, Not(HasSubstr("/w0")));
  for (const CacheSpec& spec : BlockCaches()) EXPECT_THAT(spec.name, HasSubstr("paged/"));
  size_t windows = 0;
  for (const CacheSpec& spec : AllCaches()) {
    windows += spec.name.find("quantized/") != spec.name.npos && !spec.name.ends_with("/w0");
  }
  EXPECT_THAT(WindowCaches(), SizeIs(windows));
}

}  // namespace
}  // namespace lockstep::contract
