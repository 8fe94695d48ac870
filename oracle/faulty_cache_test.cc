// Each plant does what it says, where it says, and nothing else; without it the decorator is
// transparent.
#include "oracle/faulty_cache.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <numeric>
#include <string>
#include <vector>

#include "caches/error.h"
#include "caches/random.h"
#include "caches/registry.h"
#include "caches/simple_kv_cache.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr KvGeometry kGeometry{.num_layers = 3, .num_kv_heads = 2, .head_dim = 2, .max_length = 16};
constexpr int32_t kStride = 4;

enum class Path { kDirect, kLegacy };

float Element(int32_t layer, int32_t position, int32_t element, int32_t attempt, bool value) {
  const int32_t magnitude = 1000 * (layer + 1) + 10 * position + element + 1;
  return static_cast<float>(magnitude) * (value ? -1.0f : 1.0f) +
         0.25f * static_cast<float>(attempt);
}

// A forward step as the engine does it: layer by layer, direct where granted.
void Step(KvCache& cache, int32_t first, int32_t count, int32_t attempt, Path path) {
  std::vector<int32_t> positions(static_cast<size_t>(count));
  std::iota(positions.begin(), positions.end(), first);
  std::vector<float> keys, values;
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
    keys.clear();
    values.clear();
    for (int32_t p : positions) {
      for (int32_t e = 0; e < kStride; ++e) {
        keys.push_back(Element(layer, p, e, attempt, false));
        values.push_back(Element(layer, p, e, attempt, true));
      }
    }
    std::optional<KvSlot> slot;
    if (path == Path::kDirect) slot = cache.TryReserveSlot(layer, positions);
    if (slot) {
      std::ranges::copy(keys, slot->keys.begin());
      std::ranges::copy(values, slot->values.begin());
      cache.CommitSlot(layer, positions);
    } else {
      cache.Update(layer, positions, keys, values);
    }
  }
}

struct Place {
  int32_t step = -1;  // -1: no difference
  int32_t layer = -1;
  int32_t position = -1;  // -1: the lengths differ
  int32_t element = -1;
  char side = '-';  // 'K', 'V'
  friend bool operator==(const Place&, const Place&) = default;
  friend void PrintTo(const Place& p, std::ostream* out) {
    *out << "step " << p.step << " layer " << p.layer << " position " << p.position << " element "
         << p.element << " " << p.side;
  }
};

// All places where the two differ, in order.
std::vector<Place> Differences(const KvCache& a, const KvCache& b, int32_t step) {
  std::vector<Place> places;
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
    if (a.length(layer) != b.length(layer)) places.push_back({step, layer, -1, -1, '-'});
    KvView view_a, view_b;
    a.View(layer, &view_a);
    b.View(layer, &view_b);
    const KvRows rows_a = DecodeRows(view_a, kStride), rows_b = DecodeRows(view_b, kStride);
    const int32_t common = std::min(view_a.length, view_b.length) * kStride;
    for (int32_t i = 0; i < common; ++i) {
      const auto at = static_cast<size_t>(i);
      if (rows_a.keys[at] != rows_b.keys[at]) {
        places.push_back({step, layer, i / kStride, i % kStride, 'K'});
      }
      if (rows_a.values[at] != rows_b.values[at]) {
        places.push_back({step, layer, i / kStride, i % kStride, 'V'});
      }
    }
  }
  return places;
}

struct Outcome {
  std::vector<Place> places;  // of the first step with a difference
  int64_t fired = 0;
  bool changed = false;
};

// Steps: 0 prefill 0..4; 1..3 decode 5..7; rollback to 6; 4..6 decode 6..8, other rows.
Outcome RunPlant(const Plant& plant, Path path) {
  FaultyCache faulty(std::make_unique<SimpleKvCache>(kGeometry), plant);
  SimpleKvCache clean(kGeometry);
  int32_t step = 0;
  Outcome outcome;
  const auto both = [&](int32_t first, int32_t count, int32_t attempt) {
    Step(faulty, first, count, attempt, path);
    Step(clean, first, count, attempt, path);
    if (outcome.places.empty()) outcome.places = Differences(faulty, clean, step);
    ++step;
  };
  both(0, 5, 0);
  for (int32_t p = 5; p < 8; ++p) both(p, 1, 0);
  faulty.Rollback(6);
  clean.Rollback(6);
  for (int32_t p = 6; p < 9; ++p) both(p, 1, 1);
  outcome.fired = faulty.fired();
  outcome.changed = faulty.changed();
  return outcome;
}

Place FirstPlace(const char* text, Path path) {
  const Outcome outcome = RunPlant(ParsePlant(text), path);
  EXPECT_GT(outcome.fired, 0) << text;
  return outcome.places.empty() ? Place{} : outcome.places.front();
}

class FaultyCachePathTest : public ::testing::TestWithParam<Path> {};
INSTANTIATE_TEST_SUITE_P(, FaultyCachePathTest, ::testing::Values(Path::kDirect, Path::kLegacy),
                         [](const auto& test) {
                           return test.param == Path::kDirect ? "Direct" : "Legacy";
                         });

TEST_P(FaultyCachePathTest, FlipChangesExactlyOneByteOfOneElementOnce) {
  for (const char side : {'K', 'V'}) {
    const std::string kind = side == 'K' ? "flip-k" : "flip-v";
    for (int32_t byte = 0; byte < 4; ++byte) {
      const auto plant =
          ParsePlant(kind + ":layer=2,position=3,element=1,step=2,byte=" + std::to_string(byte));
      const Outcome outcome = RunPlant(plant, GetParam());
      EXPECT_THAT(outcome.places, ::testing::ElementsAre(Place{2, 2, 3, 1, side}));
      EXPECT_EQ(outcome.fired, 1);
      EXPECT_TRUE(outcome.changed);
    }
  }
}

TEST(FaultyCacheTest, FlipXorsOneByteOfTheElement) {
  SimpleKvCache inner(kGeometry);
  Step(inner, 0, 1, 0, Path::kLegacy);
  FaultyCache faulty(inner, ParsePlant("flip-v:layer=1,position=0,element=3,byte=1,step=0"));
  Step(faulty, 1, 1, 0, Path::kDirect);
  KvView view;
  inner.View(1, &view);
  EXPECT_EQ(std::bit_cast<uint32_t>(DecodeRows(view, kStride).values[3]),
            std::bit_cast<uint32_t>(Element(1, 0, 3, 0, true)) ^ 0xff00u);
}

TEST_P(FaultyCachePathTest, FlipWaitsUntilTheRowExists) {
  const Outcome outcome =
      RunPlant(ParsePlant("flip-k:layer=0,position=5,element=0,step=1"), GetParam());
  EXPECT_THAT(outcome.places, ::testing::ElementsAre(Place{2, 0, 5, 0, 'K'}));
  const Outcome never =
      RunPlant(ParsePlant("flip-k:layer=0,position=15,element=0,step=1"), GetParam());
  EXPECT_TRUE(never.places.empty());
  EXPECT_EQ(never.fired, 0);
}

TEST_P(FaultyCachePathTest, FaultsAppearAtTheirPlace) {
  const Path path = GetParam();
  EXPECT_EQ(FirstPlace("swap-kv:layer=1", path), (Place{0, 1, 0, 0, 'K'}));
  EXPECT_EQ(FirstPlace("swap-kv:layer=1,step=2", path), (Place{2, 1, 6, 0, 'K'}));
  EXPECT_EQ(FirstPlace("write-past:layer=2,step=1", path), (Place{1, 2, -1, -1, '-'}));
  EXPECT_EQ(FirstPlace("off-by-one:layer=0", path), (Place{0, 0, 0, 0, 'K'}));
  EXPECT_EQ(FirstPlace("off-by-one:layer=1,step=3", path), (Place{3, 1, 6, 0, 'K'}));
  EXPECT_EQ(FirstPlace("stale-row:layer=1", path), (Place{4, 1, 6, 0, 'K'}));
  EXPECT_EQ(FirstPlace("stale-view:layer=2", path), (Place{0, 2, 4, 0, 'K'}));
}

TEST(FaultyCacheTest, FaultsOfOnePathAppearOnThatPathAlone) {
  EXPECT_EQ(FirstPlace("skip-commit:layer=1", Path::kDirect), (Place{0, 1, -1, -1, '-'}));
  EXPECT_EQ(FirstPlace("skip-commit:layer=2,step=3", Path::kDirect), (Place{3, 2, -1, -1, '-'}));
  EXPECT_EQ(RunPlant(ParsePlant("skip-commit:layer=1"), Path::kLegacy).fired, 0);
  EXPECT_EQ(FirstPlace("drop-update:layer=0", Path::kLegacy), (Place{0, 0, -1, -1, '-'}));
  EXPECT_EQ(RunPlant(ParsePlant("drop-update:layer=0"), Path::kDirect).fired, 0);
}

TEST(FaultyCacheTest, RefusedReserveChangesThePathAndNoBit) {
  const Outcome outcome = RunPlant(ParsePlant("refuse-reserve:layer=1"), Path::kDirect);
  EXPECT_TRUE(outcome.places.empty());
  EXPECT_EQ(outcome.fired, 7);
  FaultyCache faulty(std::make_unique<SimpleKvCache>(kGeometry),
                     ParsePlant("refuse-reserve:layer=1,step=1"));
  CountingCache counting(faulty);
  Step(counting, 0, 2, 0, Path::kDirect);
  Step(counting, 2, 1, 0, Path::kDirect);
  EXPECT_EQ(counting.layer(1).reserve_granted, 1);
  EXPECT_EQ(counting.layer(1).reserve_refused, 1);
  EXPECT_EQ(counting.layer(2).reserve_refused, 0);
  EXPECT_THROW(faulty.TryReserveSlot(3, {}), std::out_of_range);
}

TEST(FaultyCacheTest, KeepRowKeepsOneRowTooMany) {
  FaultyCache faulty(std::make_unique<SimpleKvCache>(kGeometry), ParsePlant("keep-row"));
  Step(faulty, 0, 4, 0, Path::kDirect);
  faulty.Rollback(4);
  EXPECT_EQ(faulty.fired(), 0);
  EXPECT_THROW(faulty.Rollback(5), std::out_of_range);
  EXPECT_THROW(faulty.Rollback(-1), std::out_of_range);
  faulty.Rollback(2);
  EXPECT_EQ(faulty.current_length(), 3);
  EXPECT_EQ(faulty.fired(), 1);
}

TEST(FaultyCacheTest, EveryKnownPlantFiresOnSomePath) {
  for (const PlantInfo& info : KnownPlants()) {
    Plant plant;
    plant.kind = info.kind;
    plant.layer = 1;
    const Outcome direct = RunPlant(plant, Path::kDirect);
    const Outcome legacy = RunPlant(plant, Path::kLegacy);
    EXPECT_GT(direct.fired + legacy.fired, 0) << info.name;
    EXPECT_TRUE(direct.changed || legacy.changed) << info.name;
  }
}

TEST(FaultyCacheTest, DoesNothingBeforeItsStep) {
  for (const PlantInfo& info : KnownPlants()) {
    Plant plant;
    plant.kind = info.kind;
    plant.step = 7;  // the run has steps 0..6
    for (const Path path : {Path::kDirect, Path::kLegacy}) {
      const Outcome outcome = RunPlant(plant, path);
      EXPECT_EQ(outcome.fired, 0) << info.name;
      EXPECT_TRUE(outcome.places.empty()) << info.name;
    }
  }
}

TEST(FaultyCacheTest, ForksGoOnFromTheSameState) {
  FaultyCache faulty(std::make_unique<SimpleKvCache>(kGeometry),
                     ParsePlant("flip-k:layer=0,position=0,element=0,step=2"));
  Step(faulty, 0, 2, 0, Path::kDirect);
  Step(faulty, 2, 1, 0, Path::kDirect);
  const auto fork = faulty.Fork();
  Step(*fork, 3, 1, 0, Path::kDirect);
  EXPECT_EQ(static_cast<FaultyCache&>(*fork).fired(), 1);
  EXPECT_EQ(faulty.fired(), 0);
}

// On every kind: the flipped row differs, and no other row reads otherwise, exact windows included.
TEST(FaultyCacheTest, FlipChangesOneRowOfEveryKindOfCache) {
  const KvGeometry geometry{.num_layers = 2, .num_kv_heads = 1, .head_dim = 32, .max_length = 12};
  for (const CacheSpec& spec : AllCaches()) {
    for (int32_t position = 0; position < 9; ++position) {
      SCOPED_TRACE(fmt::format("{}, position {}", spec.name, position));
      const auto clean = spec.make({.geometry = geometry});
      FaultyCache faulty(spec.make({.geometry = geometry}), {.kind = PlantKind::kFlipK,
                                                             .layer = 1,
                                                             .position = position,
                                                             .element = 5,
                                                             .byte = 3,
                                                             .step = 9});
      Random random(17);
      std::vector<float> keys(32), values(32);
      for (int32_t p = 0; p < 10; ++p) {  // one row a step
        for (int32_t layer = 0; layer < 2; ++layer) {
          for (float& x : keys) x = static_cast<float>(random.Between(-999, 999)) * 0.01f;
          for (float& x : values) x = static_cast<float>(random.Between(-999, 999)) * 0.01f;
          faulty.Update(layer, std::span(&p, 1), keys, values);
          clean->Update(layer, std::span(&p, 1), keys, values);
        }
      }
      EXPECT_EQ(faulty.fired(), 1);
      EXPECT_TRUE(faulty.changed());
      EXPECT_EQ(DigestOfLayer(faulty, 0), DigestOfLayer(*clean, 0));
      KvView view;
      faulty.View(1, &view);
      KvRows rows = DecodeRows(view, 32);
      clean->View(1, &view);
      const KvRows expected = DecodeRows(view, 32);
      EXPECT_EQ(rows.values, expected.values);
      EXPECT_NE(rows.keys, expected.keys);
      const auto row = static_cast<std::ptrdiff_t>(position) * 32;
      std::copy_n(expected.keys.begin() + row, 32, rows.keys.begin() + row);
      EXPECT_EQ(rows.keys, expected.keys);
    }
  }
}

TEST(PlantTest, TextRoundTrips) {
  for (const PlantInfo& info : KnownPlants()) {
    Plant plant;
    plant.kind = info.kind;
    plant.step = 4;
    const auto has = [&](std::string_view name) {
      return std::ranges::any_of(info.fields, [&](const PlantField& f) { return f.name == name; });
    };
    if (has("layer")) plant.layer = 2;
    if (has("position")) plant.position = 3;
    if (has("element")) plant.element = int64_t{1} << 40;
    if (has("byte")) plant.byte = 3;
    EXPECT_EQ(ParsePlant(PlantText(plant)), plant) << PlantText(plant);
  }
  EXPECT_EQ(PlantText(ParsePlant("flip-k:layer=2,position=3,element=5")),
            "flip-k:layer=2,position=3,element=5,byte=0,step=1");
  EXPECT_EQ(PlantText(ParsePlant("skip-commit:layer=1")), "skip-commit:layer=1,step=0");
  EXPECT_EQ(PlantText(ParsePlant("keep-row")), "keep-row:step=0");
}

std::string ErrorOf(const std::string& text) {
  try {
    ParsePlant(text);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(PlantTest, BadTextNamesWhatIsKnown) {
  EXPECT_THAT(ErrorOf("melt:layer=1"),
              AllOf(HasSubstr("plant 'melt:layer=1'"), HasSubstr("there is no plant 'melt'"),
                    HasSubstr("flip-k:layer=N,position=N,element=N[,byte=N,step=N]"),
                    HasSubstr("keep-row[:step=N]"), HasSubstr("refuse-reserve:layer=N[,step=N]")));
  EXPECT_THAT(ErrorOf(""), HasSubstr("there is no plant ''"));
  EXPECT_THAT(ErrorOf("flip-k:layer=1,position=2"), HasSubstr("'element' is missing"));
  EXPECT_THAT(ErrorOf("skip-commit"), HasSubstr("'layer' is missing"));
  EXPECT_THAT(ErrorOf("keep-row:layer=1"), HasSubstr("'layer=1' is no field"));
  for (const char* text :
       {"layer=1x", "layer=", "layer", "layer=-1", "layer=1,layer=1", "layer=4294967296",
        "layer=99999999999999999999", ",layer=1", "layer=1,,step=1", "=1", "layer=1,byte=0"}) {
    EXPECT_THAT(ErrorOf(std::string("skip-commit:") + text), HasSubstr("plant 'skip-commit:"))
        << text;
  }
  EXPECT_THAT(ErrorOf("flip-k:layer=0,position=0,element=0,byte=4"),
              HasSubstr("byte='4' is no number in [0, 3]"));
}

TEST(PlantTest, APlaceOutsideTheCacheIsRefused) {
  SimpleKvCache cache(kGeometry);
  const auto plant = [&](const char* text) { FaultyCache faulty(cache, ParsePlant(text)); };
  EXPECT_NO_THROW(plant("flip-k:layer=2,position=15,element=3,byte=3"));
  EXPECT_THROW(plant("flip-k:layer=3,position=15,element=3"), Error);
  EXPECT_THROW(plant("flip-k:layer=2,position=16,element=3"), Error);
  EXPECT_THROW(plant("flip-k:layer=2,position=15,element=4"), Error);
}

}  // namespace
}  // namespace lockstep
