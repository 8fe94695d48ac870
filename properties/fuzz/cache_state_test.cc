#include "properties/fuzz/cache_state.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace lockstep::fuzz {
namespace {

class State {
 public:
  explicit State(const std::string& name, int32_t max_length = 12) : spec_(ParseCacheSpec(name)) {
    cache_ = spec_.make(
        {.geometry = {2, 1, 2, max_length}, .sequences = 4, .shuffle_seed = std::nullopt});
  }

  void Write(KvCache& cache, int32_t first, int32_t count) {
    std::vector<int32_t> positions;
    for (int32_t i = 0; i < count; ++i) positions.push_back(first + i);
    const std::vector<float> rows(static_cast<size_t>(2 * count), 1.0f);
    for (int32_t layer = 0; layer < 2; ++layer) cache.Update(layer, positions, rows, rows);
  }

  KvCache& cache() { return *cache_; }
  uint64_t Feature(int32_t open = 0) { return CacheStateFeature(spec_, *cache_, open); }

 private:
  CacheSpec spec_;
  std::unique_ptr<KvCache> cache_;
};

TEST(CacheStateTest, OpenReservationsAreToldApart) {
  State state("simple");
  EXPECT_NE(state.Feature(0), state.Feature(1));
  EXPECT_NE(state.Feature(1), state.Feature(2));
  EXPECT_EQ(state.Feature(1), state.Feature(1));
}

TEST(CacheStateTest, PlacesInTheRingAreToldApart) {
  State state("quantized/f16+f16/w3");
  state.Write(state.cache(), 0, 4);
  const uint64_t first = state.Feature();
  state.Write(state.cache(), 4, 1);
  EXPECT_NE(state.Feature(), first);
  state.Write(state.cache(), 5, 2);
  EXPECT_NE(state.Feature(), first) << "the same place, the second time around";
}

// A ring of 12 rows, of which up to 9 are shown.
TEST(CacheStateTest, PlacesInTheRingOfALayerThatForgetsAreToldApart) {
  State state("ring/w6+3", 40);
  const auto grow_to = [&](int32_t length) {
    for (int32_t p = state.cache().length(0); p < length; ++p) state.Write(state.cache(), p, 1);
    return state.Feature();
  };
  std::vector<uint64_t> first;
  for (int32_t length = 9; length < 21; ++length) first.push_back(grow_to(length));
  for (size_t i = 0; i < first.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(first[i], first[j]) << i + 9 << " and " << j + 9;
  }

  // The same length, and other rows behind it.
  State back("ring/w6+3", 40);
  for (int32_t p = 0; p < 12; ++p) back.Write(back.cache(), p, 1);
  back.cache().Rollback(10);
  EXPECT_NE(back.Feature(), first[1]);
}

TEST(CacheStateTest, LayersOfOtherLengthsAreToldApart) {
  State state("simple");
  state.Write(state.cache(), 0, 2);
  const uint64_t equal = state.Feature();
  const std::vector<float> row(2, 1.0f);
  state.cache().Update(1, std::vector<int32_t>{2}, row, row);
  EXPECT_NE(state.Feature(), equal);
}

// The same lengths and numbers of blocks; what is shared and where the holes are differs.
TEST(CacheStateTest, SharedBlocksAndHolesAreToldApart) {
  State state("paged/2");
  state.Write(state.cache(), 0, 4);
  const uint64_t alone = state.Feature();
  auto fork = state.cache().Fork();
  const uint64_t shared = state.Feature();
  EXPECT_NE(shared, alone);
  auto second = state.cache().Fork();
  EXPECT_NE(state.Feature(), shared) << "three holders";
  second.reset();
  fork->Rollback(0);
  EXPECT_EQ(state.Feature(), alone) << "a fork without rows holds no block";

  // The first sequence takes blocks 0 and 1, the fork 2 and 3; then the first gives its own back.
  State holes("paged/2");
  auto behind = holes.cache().Fork();
  holes.Write(holes.cache(), 0, 4);
  holes.Write(*behind, 0, 4);
  holes.cache().Rollback(0);
  State packed("paged/2");
  auto before = packed.cache().Fork();
  packed.Write(*before, 0, 4);
  EXPECT_NE(holes.Feature(), packed.Feature());
}

}  // namespace
}  // namespace lockstep::fuzz
