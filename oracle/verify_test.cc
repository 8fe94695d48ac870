// `lockstep verify` on small synthetic models: that it holds, that it is not vacuous, and that
// every planted fault is found at its place.
#include "oracle/verify.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string_view>

#include "caches/error.h"
#include "caches/registry.h"
#include "engine/adapter.h"
#include "engine/synthetic.h"
#include "oracle/faulty_cache.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::HasSubstr;
using Verdict = VerifyCell::Verdict;

// 3 layers, 9 heads over 3 KV heads of 32: no two numbers that a mix-up would hide.
constexpr const char* kModel = "tiny-gqa-9x3-q8_0";

VerifyOptions OptionsFor(const std::string& preset) {
  VerifyOptions options;
  options.model = Model::Load(MakeSyntheticModel(SyntheticPreset(preset), 1));
  options.prompt = {5, 17, 3, 90, 41, 8, 8};
  options.decode_steps = 5;
  return options;
}

const VerifyCell& Cell(const VerifyResult& result, const std::string& cache,
                       const std::string& path) {
  for (const VerifyCell& cell : result.cells) {
    if (cell.cache == cache && cell.write_path == path) return cell;
  }
  throw std::runtime_error("no cell " + cache + " " + path);
}

TEST(VerifyTest, EveryCacheHoldsOnBothPathsAndAgainstItsModel) {
  const VerifyResult result = Verify(OptionsFor(kModel));
  EXPECT_EQ(result.outcome, VerifyOutcome::kHolds) << result.verdict;
  EXPECT_EQ(result.steps, 8) << "prefill, 5 decode steps, 2 done again";
  const KvGeometry geometry = OptionsFor(kModel).model->config().geometry(1);
  for (const CacheSpec& spec : AllCaches()) {
    if (!Misfit(spec, geometry).empty()) {
      EXPECT_EQ(Cell(result, spec.name, "-").verdict, Verdict::kNotApplicable) << spec.name;
      continue;
    }
    const std::string path = spec.grants_host_slots ? "direct" : "direct, refused";
    EXPECT_EQ(Cell(result, spec.name, path).verdict, Verdict::kHolds) << spec.name;
    EXPECT_EQ(Cell(result, spec.name, "legacy").verdict, Verdict::kHolds) << spec.name;
  }
}

TEST(VerifyTest, CountersProveWhichPathRan) {
  const VerifyResult result = Verify(OptionsFor(kModel));
  const int64_t layers = 3, steps = 8;
  EXPECT_EQ(Cell(result, "simple", "direct").result.counts,
            (PathCounts{layers * steps, 0, layers * steps, 0}));
  EXPECT_EQ(Cell(result, "simple", "legacy").result.counts,
            (PathCounts{0, layers * steps, 0, layers * steps}));
  // The prefill of 7 crosses a block boundary, the 7 decode steps do not.
  EXPECT_EQ(Cell(result, "paged/4", "direct").result.counts,
            (PathCounts{layers * 7, layers, layers * 7, layers}));
  EXPECT_EQ(Cell(result, "paged/16", "direct").result.counts,
            (PathCounts{layers * steps, 0, layers * steps, 0}));
}

TEST(VerifyTest, CachesOfOneRowTypeShareTheirDigests) {
  const VerifyResult result = Verify(OptionsFor(kModel));
  const SideResult& simple = Cell(result, "simple", "direct").result;
  for (const char* cache : {"paged/1", "paged/2", "paged/4", "paged/16"}) {
    EXPECT_EQ(Cell(result, cache, "direct").result.logits, simple.logits) << cache;
    EXPECT_EQ(Cell(result, cache, "direct").result.cache, simple.cache) << cache;
  }
  const SideResult& quantized = Cell(result, "quantized/q8_0+q8_0/w0", "legacy").result;
  EXPECT_NE(quantized.logits, simple.logits) << "quantized rows read like F32 rows: not quantized";
}

TEST(VerifyTest, ACacheThatDoesNotFitTheModelIsNamedNotSkippedSilently) {
  const VerifyResult result = Verify(OptionsFor("tiny-mha-4x4-f32"));
  EXPECT_EQ(result.outcome, VerifyOutcome::kHolds);
  const VerifyCell& cell = Cell(result, "quantized/q8_0+q8_0/w0", "-");
  EXPECT_EQ(cell.verdict, Verdict::kNotApplicable);
  EXPECT_THAT(cell.reason, HasSubstr("a multiple of 32, the model's is 8"));
}

// On models with windows, in all layers and in every second one: each ring on both paths and
// against its model, with the logits of the caches that keep all rows. A ring that forgets what a
// layer sees is refused by name.
TEST(VerifyTest, RingsHoldWhereTheModelLooksBackNoFurther) {
  for (const char* model : {"tiny-mistral-6x2-q8_0", "tiny-gemma2-5x1-q8_0"}) {
    VerifyOptions options = OptionsFor(model);
    options.prompt.resize(20, 7);
    options.decode_steps = 24;
    options.caches = {"simple", "ring/model+3", "ring/w6-0+1", "ring/w64+3"};
    if (std::string(model).find("mistral") != std::string::npos) {
      options.caches.emplace_back("ring/w7-5+2");
    }
    options.caches.emplace_back("ring/w4-0+3");
    const VerifyResult result = Verify(options);
    EXPECT_EQ(result.outcome, VerifyOutcome::kHolds) << result.verdict;
    const SideResult& simple = Cell(result, "simple", "direct").result;
    for (const std::string& cache : options.caches) {
      if (!Misfit(ParseCacheSpec(cache), options.model->config().geometry(1)).empty()) {
        EXPECT_THAT(Cell(result, cache, "-").reason, HasSubstr("rows for a query, layer"));
        continue;
      }
      const VerifyCell& direct = Cell(result, cache, "direct");
      EXPECT_EQ(direct.verdict, Verdict::kHolds) << cache;
      EXPECT_EQ(Cell(result, cache, "legacy").verdict, Verdict::kHolds) << cache;
      EXPECT_GT(direct.result.counts.granted, 0) << cache;
      if (cache != "ring/w6-0+1") {  // of which fewer steps are done again
        EXPECT_EQ(direct.result.logits, simple.logits) << cache;
      }
      // Prefill steps of three rows go over the end of a ring of eleven.
      const bool wraps = direct.result.counts.refused > 0;
      EXPECT_FALSE(wraps && cache == "ring/w64+3");
      EXPECT_FALSE(!wraps && cache == "ring/model+3" && options.caches.size() == 6);
    }
    EXPECT_EQ(Cell(result, "ring/w4-0+3", "-").verdict, Verdict::kNotApplicable);
  }
}

// With adapters as well: what a device is asked for and the host does proves nothing of the device.
TEST(VerifyTest, OnADeviceEveryCacheWithRowsThereIsWrittenThere) {
  for (const bool adapted : {false, true}) {
    VerifyOptions options = OptionsFor(kModel);
    options.device = "host-executor";
    options.caches = {"cuda", "cuda-quantized/q8_0+q4_0/w4", "hybrid/1", "simple"};
    if (adapted) {
      options.adapters = {{MakeSyntheticAdapter(options.model->config(), {.rank = 3}, 1), 0.5f}};
    }
    const VerifyResult result = Verify(options);
    EXPECT_EQ(result.outcome, VerifyOutcome::kHolds) << result.verdict;
    for (const std::string cache : {"cuda", "cuda-quantized/q8_0+q4_0/w4", "hybrid/1"}) {
      const PathCounts& counts = Cell(result, cache, "direct, device").result.counts;
      const int64_t layers = cache == "hybrid/1" ? 1 : 3;
      EXPECT_EQ(counts.granted, layers * result.steps) << cache;
      EXPECT_GT(counts.on_device, 0) << cache;
      EXPECT_EQ(Cell(result, cache, "legacy, device").result.counts.granted, 0) << cache;
    }
    EXPECT_EQ(Cell(result, "simple", "direct").result.counts.on_device, 0);
  }
}

TEST(VerifyTest, OnADeviceAHostCacheAloneIsInconclusive) {
  VerifyOptions options = OptionsFor(kModel);
  options.device = "host-executor";
  options.caches = {"simple"};
  const VerifyResult result = Verify(options);
  EXPECT_EQ(result.outcome, VerifyOutcome::kInconclusive);
  EXPECT_THAT(result.verdict, HasSubstr("none of them took the direct path on host-executor"));
}

TEST(VerifyTest, WithoutADirectPathTheVerdictIsInconclusive) {
  VerifyOptions options = OptionsFor(kModel);
  options.caches = {"quantized/q8_0+q8_0/w0"};
  const VerifyResult result = Verify(options);
  EXPECT_EQ(result.outcome, VerifyOutcome::kInconclusive);
  EXPECT_THAT(result.verdict, HasSubstr("none of them took the direct path"));
}

TEST(VerifyTest, WrongUseIsAnErrorBeforeAnyWork) {
  VerifyOptions options = OptionsFor(kModel);
  options.caches = {"paged/0"};
  EXPECT_THROW(Verify(options), Error);
  options.caches = {};
  options.plant = "no-such-plant:layer=1";
  EXPECT_THROW(Verify(options), Error);
  options.plant = "skip-commit:layer=1";
  options.device = "host-executor";
  EXPECT_THROW(Verify(options), Error);
  options.device = "no-such-device";
  options.plant = "";
  EXPECT_THROW(Verify(options), Error);
  options.device = "";
  options.prompt.clear();
  EXPECT_THROW(Verify(options), Error);
  options.prompt.assign(static_cast<size_t>(options.model->config().context_length), 1);
  EXPECT_THROW(Verify(options), Error);
}

struct PlantCase {
  std::string plant;
  Difference::Kind kind;
  int32_t step;
  int32_t layer;
  std::string place;
  int32_t position;
  int64_t element;
};

class VerifyPlantTest : public testing::TestWithParam<PlantCase> {};

TEST_P(VerifyPlantTest, IsFoundAtItsPlace) {
  const PlantCase& c = GetParam();
  VerifyOptions options = OptionsFor(kModel);
  options.caches = {"simple", "paged/16"};
  options.plant = c.plant;
  const VerifyResult result = Verify(options);
  EXPECT_EQ(result.outcome, VerifyOutcome::kDiffers) << result.verdict;
  for (const char* cache : {"simple", "paged/16"}) {
    const VerifyCell& cell = Cell(result, cache, "direct");
    ASSERT_TRUE(cell.difference) << cache;
    const Difference& found = *cell.difference;
    SCOPED_TRACE(found.Sentence());
    EXPECT_EQ(found.kind, c.kind);
    EXPECT_EQ(found.step, c.step);
    EXPECT_EQ(found.layer, c.layer);
    EXPECT_EQ(found.place, c.place);
    EXPECT_EQ(found.position, c.position);
    EXPECT_EQ(found.element, c.element);
    EXPECT_EQ(Cell(result, cache, "legacy").verdict, Verdict::kHolds) << "the oracle was blamed";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plants, VerifyPlantTest,
    testing::Values(
        PlantCase{"flip-k:layer=2,position=3,element=5,byte=0,step=2",
                  Difference::Kind::kBetweenSteps, 2, 2, "K row", 3, 5},
        PlantCase{"flip-v:layer=1,position=6,element=95,byte=3,step=4",
                  Difference::Kind::kBetweenSteps, 4, 1, "V row", 6, 95},
        PlantCase{"flip-k:layer=0,position=0,element=0,byte=2,step=1",
                  Difference::Kind::kBetweenSteps, 1, 0, "K row", 0, 0},
        PlantCase{"skip-commit:layer=1", Difference::Kind::kException, 0, 1, "exception", -1, -1},
        PlantCase{"swap-kv:layer=2", Difference::Kind::kStage, 0, 2, "cache_key", 0, 0}),
    [](const auto& param_info) {
      std::string name = param_info.param.plant;
      for (char& ch : name) {
        if (std::isalnum(static_cast<unsigned char>(ch)) == 0) ch = '_';
      }
      return name;
    });

// The fields that a kind of plant has, filled with a place inside the run.
std::string AnyPlace(const PlantInfo& info) {
  const std::map<std::string_view, int> values = {
      {"layer", 1}, {"position", 2}, {"element", 3}, {"byte", 1}, {"step", 1}};
  std::string text(info.name);
  for (const PlantField& field : info.fields) {
    text += fmt::format("{}{}={}", text.size() == info.name.size() ? ":" : ",", field.name,
                        values.at(field.name));
  }
  return text;
}

// Direct equals legacy also where both are wrong: then the model has to see it.
TEST(VerifyTest, ACacheThatIsWrongOnBothPathsDiffersFromItsModel) {
  VerifyOptions options = OptionsFor(kModel);
  options.caches = {"simple"};
  CacheSpec wrong = ParseCacheSpec("paged/16");
  wrong.name = "wrong";
  wrong.make = [make = wrong.make](const CacheOptions& cache) {
    return std::make_unique<FaultyCache>(make(cache), ParsePlant("swap-kv:layer=1"));
  };
  options.own = {wrong};
  const VerifyResult result = Verify(options);
  EXPECT_EQ(Cell(result, "wrong", "direct").verdict, Verdict::kHolds);
  EXPECT_EQ(Cell(result, "wrong", "legacy").verdict, Verdict::kDiffers);
  EXPECT_EQ(Cell(result, "simple", "legacy").verdict, Verdict::kHolds);
  EXPECT_EQ(result.outcome, VerifyOutcome::kDiffers) << result.verdict;
}

// Whatever kinds there are: a new one joins by itself.
TEST(VerifyTest, EveryKindOfPlantIsFound) {
  for (const PlantInfo& info : KnownPlants()) {
    VerifyOptions options = OptionsFor(kModel);
    options.caches = {"simple", "quantized/q8_0+q8_0/w0"};
    options.plant = AnyPlace(info);
    const VerifyResult result = Verify(options);
    EXPECT_EQ(result.outcome, VerifyOutcome::kDiffers) << options.plant << ": " << result.verdict;
  }
}

}  // namespace
}  // namespace lockstep
