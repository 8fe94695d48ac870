// The determinism matrix: that it holds, that each control is seen on its axis, that a control
// planted as the subject is a difference on that axis and on no other, and that nothing counts as
// proved without a control.
#include "oracle/matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <numeric>
#include <set>
#include <sstream>

#include "caches/error.h"
#include "caches/test_paths.h"
#include "engine/synthetic.h"
#include "oracle/decorators.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Verdict = MatrixCell::Verdict;

MatrixModel SmallModel(const std::string& preset, int32_t prompt_tokens) {
  MatrixModel model;
  model.name = preset;
  model.model = Model::Load(MakeSyntheticModel(SyntheticPreset(preset), 1));
  for (int32_t i = 0; i < prompt_tokens; ++i) model.prompt.push_back((11 + 29 * i) % 280);
  return model;
}

// Rows of three quantized blocks, and a prefill that 7 and 16 both cut with a rest.
const MatrixModel& TestModel() {
  static const MatrixModel model = SmallModel("tiny-gqa-9x3-q8_0", 21);
  return model;
}

std::vector<CacheSpec> TestCaches() {
  return {ParseCacheSpec("simple"), ParseCacheSpec("paged/4"),
          ParseCacheSpec("quantized/q8_0+q4_0/w4"), ParseCacheSpec("cuda")};
}

std::vector<DigestLine> TestLines() {
  return {{"scalar", "m", "simple", std::string(32, '1'), std::string(32, '2')},
          {"scalar", "m", "paged/4", std::string(32, '1'), std::string(32, '2')}};
}

// Digests of another build, as ci/compilers hands them in, with one line made to differ.
std::vector<OutsideDigests> Outside(MatrixAxis axis) {
  std::vector<DigestLine> other = TestLines();
  other[1].logits = std::string(32, '3');
  return {
      {.axis = axis, .value = "same", .lines = TestLines(), .expected = TestLines()},
      {.axis = axis, .value = "other", .control = true, .lines = other, .expected = TestLines()}};
}

MatrixOptions TestOptions() {
  MatrixOptions options;
  options.models = {TestModel()};
  options.caches = TestCaches();
  options.decode_steps = 3;
  options.threads = {1, 2, 3};
  for (const MatrixAxis axis : {MatrixAxis::kCompiler, MatrixAxis::kProcess}) {
    const auto outside = Outside(axis);
    options.outside.insert(options.outside.end(), outside.begin(), outside.end());
  }
  return options;
}

const MatrixRow& RowOf(const MatrixResult& result, MatrixAxis axis) {
  for (const MatrixRow& row : result.rows) {
    if (row.axis->axis == axis) return row;
  }
  throw std::runtime_error("no such row");
}

TEST(MatrixTest, EveryAxisIsEqualAndProved) {
  const MatrixResult result = RunMatrix(TestOptions());
  EXPECT_EQ(result.outcome, MatrixOutcome::kEqual) << result.verdict;
  ASSERT_EQ(result.rows.size(), MatrixAxes().size());
  for (const MatrixRow& row : result.rows) {
    EXPECT_TRUE(row.control_caught) << row.axis->name << ": " << row.control_detail;
    for (const MatrixCell& cell : row.cells) {
      if (row.axis->axis == MatrixAxis::kDevice && cell.value == "cuda" &&
          !WhyNoCudaDevice().empty()) {
        EXPECT_EQ(cell.verdict, Verdict::kNotAvailable);
        EXPECT_EQ(cell.detail, WhyNoCudaDevice());
        continue;
      }
      EXPECT_EQ(cell.verdict, Verdict::kEqual)
          << row.axis->name << " " << cell.value << ": " << cell.detail;
      EXPECT_GT(cell.comparisons, 0) << row.axis->name << " " << cell.value;
    }
  }
}

// An adapter changes what is computed, the same way on every axis. Its neighbours in a batch have
// none.
TEST(MatrixTest, AModelWithAnAdapterIsProvedOnEveryAxis) {
  const auto run = [](std::vector<AppliedAdapter> adapters) {
    MatrixOptions options = TestOptions();
    options.models[0].adapters = std::move(adapters);
    options.axes = {MatrixAxis::kWritePath, MatrixAxis::kChunking, MatrixAxis::kBatch,
                    MatrixAxis::kThreads,   MatrixAxis::kIsa,      MatrixAxis::kRollback,
                    MatrixAxis::kSave,      MatrixAxis::kFork,     MatrixAxis::kDevice};
    return RunMatrix(options);
  };
  const MatrixResult plain = run({});
  const MatrixResult adapted =
      run({{.adapter = MakeSyntheticAdapter(TestModel().model->config(), {}, 1)}});
  EXPECT_EQ(adapted.outcome, MatrixOutcome::kEqual) << adapted.verdict;
  for (const MatrixRow& row : adapted.rows) {
    const MatrixRow& other = RowOf(plain, row.axis->axis);
    for (size_t i = 0; i < row.cells.size(); ++i) {
      if (row.cells[i].value == "cuda" && !WhyNoCudaDevice().empty()) continue;
      EXPECT_EQ(row.cells[i].verdict, Verdict::kEqual) << row.axis->name << row.cells[i].detail;
      EXPECT_NE(row.cells[i].digest, other.cells[i].digest) << row.axis->name;
    }
  }
}

// Whatever its family does, each axis has a control that it shows.
TEST(MatrixTest, EveryFamilyIsProvedOnEveryAxis) {
  for (const char* preset : {"tiny-mistral-6x2-q8_0", "tiny-fused-4x1-f16", "tiny-gemma2-5x1-q8_0",
                             "tiny-gemma3-3x1-f16", "tiny-qwen2moe-3x1-f16"}) {
    MatrixOptions options = TestOptions();
    options.models = {SmallModel(preset, 21)};
    options.caches = {ParseCacheSpec("simple"), ParseCacheSpec("paged/4"), ParseCacheSpec("cuda")};
    options.axes = {MatrixAxis::kWritePath, MatrixAxis::kChunking, MatrixAxis::kBatch,
                    MatrixAxis::kThreads,   MatrixAxis::kIsa,      MatrixAxis::kRollback,
                    MatrixAxis::kDevice};
    const MatrixResult result = RunMatrix(options);
    EXPECT_EQ(result.outcome, MatrixOutcome::kEqual) << preset << ": " << result.verdict;
    for (const MatrixRow& row : result.rows) {
      EXPECT_TRUE(row.control_caught) << preset << ", " << row.axis->name;
    }
  }
}

// That a device has no kernels for a model is no difference, and proves nothing either.
TEST(MatrixTest, AModelWithoutKernelsOnTheDeviceIsNotAvailableThere) {
  MatrixOptions options = TestOptions();
  SyntheticSpec spec = SyntheticPreset("tiny-mqa-4x1-f16");
  spec.head_dim = 272;
  options.models = {SmallModel("tiny-mqa-4x1-f16", 21)};
  options.models[0].model = Model::Load(MakeSyntheticModel(spec, 1));
  options.axes = {MatrixAxis::kDevice};
  const MatrixResult alone = RunMatrix(options);
  for (const MatrixCell& cell : alone.rows[0].cells) {
    EXPECT_EQ(cell.verdict, Verdict::kNotAvailable) << cell.value;
    if (cell.value == "cuda") continue;  // a machine may have none
    EXPECT_THAT(cell.detail, HasSubstr("272 elements of a head"));
  }
  options.models.push_back(TestModel());
  const MatrixResult both = RunMatrix(options);
  EXPECT_EQ(both.outcome, MatrixOutcome::kEqual) << both.verdict;
  EXPECT_TRUE(both.rows[0].control_caught);
}

TEST(MatrixTest, CellsOfTheSameRunsHaveTheSameDigest) {
  MatrixOptions options = TestOptions();
  options.axes = {MatrixAxis::kChunking, MatrixAxis::kFork};
  const MatrixResult result = RunMatrix(options);
  const Digest first = result.rows[0].cells[0].digest;
  for (const MatrixRow& row : result.rows) {
    for (const MatrixCell& cell : row.cells) EXPECT_EQ(cell.digest, first) << cell.value;
  }
}

TEST(MatrixTest, AxesAreTabledInTheirOrder) {
  for (size_t i = 0; i < MatrixAxes().size(); ++i) {
    EXPECT_EQ(static_cast<size_t>(MatrixAxes()[i].axis), i);
    EXPECT_EQ(&ParseMatrixAxis(MatrixAxes()[i].name), &MatrixAxes()[i]);
  }
  EXPECT_THROW(ParseMatrixAxis("weather"), Error);
}

TEST(MatrixTest, EveryAxisHasAControl) {
  std::set<MatrixAxis> controlled;
  for (const MatrixControl& control : MatrixControls()) {
    controlled.insert(control.axis);
    EXPECT_EQ(&ParseMatrixControl(control.name), &control) << "names are unique";
  }
  for (const MatrixAxisInfo& info : MatrixAxes()) {
    EXPECT_TRUE(controlled.contains(info.axis)) << info.name;
  }
  EXPECT_THROW(ParseMatrixControl("weather"), Error);
}

TEST(MatrixTest, EveryAxisNamesATestThatExists) {
  for (const MatrixAxisInfo& info : MatrixAxes()) {
    const std::string test(info.test);
    const size_t colon = test.find(": ");
    const size_t dot = test.find('.', colon);
    ASSERT_TRUE(colon != test.npos && dot != test.npos) << test;
    std::ifstream in(SourceDir() + "/" + test.substr(0, colon));
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const std::string suite = test.substr(colon + 2, dot - colon - 2);
    EXPECT_THAT(text, HasSubstr("(" + suite + ", " + test.substr(dot + 1) + ")")) << test;
  }
}

class MatrixControlTest : public testing::TestWithParam<MatrixControl> {};

// As the subject, a control is a difference on its own axis.
TEST_P(MatrixControlTest, IsFoundWhenItIsPlanted) {
  MatrixOptions options = TestOptions();
  options.planted = &GetParam();
  options.axes = {GetParam().axis};
  const MatrixResult result = RunMatrix(options);
  EXPECT_EQ(result.outcome, MatrixOutcome::kDiffers) << result.verdict;
  EXPECT_EQ(result.first_difference, GetParam().axis);
  const MatrixRow& row = RowOf(result, GetParam().axis);
  EXPECT_TRUE(std::ranges::any_of(row.cells, [](const MatrixCell& cell) {
    return cell.verdict == Verdict::kDiffers && !cell.detail.empty();
  }));
}

class AgreeingControlTest : public testing::TestWithParam<MatrixControl> {};

// Those that agree somewhere: not where every value of the axis is another table or process, or
// where the control is made by other builds.
std::vector<MatrixControl> AgreeingControls() {
  std::vector<MatrixControl> some;
  for (const MatrixControl& control : MatrixControls()) {
    const bool elsewhere = control.kernels == nullptr && control.wrap == nullptr;
    const bool everywhere =
        control.axis == MatrixAxis::kIsa || control.axis == MatrixAxis::kProcess;
    if (!elsewhere && !everywhere) some.push_back(control);
  }
  return some;
}

std::string ControlName(const testing::TestParamInfo<MatrixControl>& tested) {
  std::string name(tested.param.name);
  std::ranges::replace(name, '-', '_');
  return name;
}

// It depends on its axis and on nothing else: somewhere on the axis it agrees with the reference.
TEST_P(AgreeingControlTest, AgreesWhereItsAxisDoesNotVary) {
  const MatrixControl& control = GetParam();
  MatrixOptions options = TestOptions();
  options.caches = {ParseCacheSpec("simple"), ParseCacheSpec("paged/1")};
  options.planted = &control;
  options.axes = {control.axis};
  const MatrixResult result = RunMatrix(options);
  EXPECT_TRUE(std::ranges::any_of(result.rows[0].cells, [](const MatrixCell& cell) {
    return cell.verdict != Verdict::kDiffers;
  }));
}

INSTANTIATE_TEST_SUITE_P(Controls, MatrixControlTest,
                         testing::ValuesIn(MatrixControls().begin(), MatrixControls().end()),
                         ControlName);
INSTANTIATE_TEST_SUITE_P(Controls, AgreeingControlTest, testing::ValuesIn(AgreeingControls()),
                         ControlName);

// What depends on the rank in a batch differs at every rank but the first: the sequence under test
// really stands where the cell says.
TEST(MatrixTest, TheSequenceStandsInItsPlaceOfTheBatch) {
  MatrixOptions options = TestOptions();
  options.axes = {MatrixAxis::kBatch};
  options.planted = &ParseMatrixControl("token-order");
  const MatrixResult result = RunMatrix(options);
  std::vector<std::string> differing;
  for (const MatrixCell& cell : result.rows[0].cells) {
    if (cell.verdict == Verdict::kDiffers) differing.push_back(cell.value);
  }
  EXPECT_THAT(differing, testing::ElementsAre("middle of 3", "last of 3"));
}

TEST(MatrixTest, WithoutAControlNothingIsProved) {
  MatrixOptions options = TestOptions();
  options.axes = {MatrixAxis::kChunking};
  options.controls = {};
  const MatrixResult result = RunMatrix(options);
  EXPECT_EQ(result.outcome, MatrixOutcome::kUnproved);
  for (const MatrixCell& cell : result.rows[0].cells) EXPECT_EQ(cell.verdict, Verdict::kUnproved);
}

TEST(MatrixTest, AControlThatIsNotSeenProvesNothing) {
  MatrixOptions options = TestOptions();
  options.axes = {MatrixAxis::kChunking};
  const MatrixControl blind = {.axis = MatrixAxis::kChunking,
                               .name = "blind",
                               .what = "nothing depends on anything",
                               .kernels = [] { return &SelectKernels("scalar"); }};
  options.controls = {&blind, 1};
  const MatrixResult result = RunMatrix(options);
  EXPECT_EQ(result.outcome, MatrixOutcome::kUnproved) << result.verdict;
  EXPECT_FALSE(result.rows[0].control_caught);
}

// A cache that is right in everything that is read from it, and wrong in one other thing.
class OddCache final : public ForwardingCache {
 public:
  enum class Oddity : uint8_t { kNeverGrants, kOtherBytes, kThrows };

  OddCache(std::unique_ptr<KvCache> inner, Oddity oddity)
      : ForwardingCache(std::move(inner)), oddity_(oddity) {}

  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override {
    if (oddity_ == Oddity::kThrows) throw std::runtime_error("a broken reservation");
    if (oddity_ == Oddity::kNeverGrants) return std::nullopt;
    return inner().TryReserveSlot(layer, positions);
  }
  std::unique_ptr<KvCache> Fork() override {
    return std::make_unique<OddCache>(inner().Fork(), oddity_);
  }
  Digest StorageDigest() const override {
    Digest digest = inner().StorageDigest();
    if (oddity_ == Oddity::kOtherBytes) digest.low ^= 1;
    return digest;
  }

 private:
  Oddity oddity_;
};

TEST(MatrixTest, PathsBytesAndExceptionsCountToo) {
  using Oddity = OddCache::Oddity;
  const std::pair<Oddity, const char*> cases[] = {
      {Oddity::kNeverGrants, "no slot was granted"},
      {Oddity::kOtherBytes, "the cache's stored bytes differ"},
      {Oddity::kThrows, "it threw: a broken reservation"}};
  for (const auto& [oddity, detail] : cases) {
    MatrixOptions options = TestOptions();
    options.axes = {MatrixAxis::kWritePath};
    const CacheSpec simple = ParseCacheSpec("simple");
    CacheSpec odd = simple;
    odd.make = [&simple, oddity = oddity](const CacheOptions& made) {
      return std::make_unique<OddCache>(simple.make(made), oddity);
    };
    options.caches = {odd};
    const MatrixResult result = RunMatrix(options);
    EXPECT_EQ(result.outcome, MatrixOutcome::kDiffers);
    EXPECT_EQ(result.rows[0].cells[0].value, "direct");
    EXPECT_EQ(result.rows[0].cells[0].verdict, Verdict::kDiffers);
    EXPECT_THAT(result.rows[0].cells[0].detail, HasSubstr(detail));
  }
}

TEST(MatrixTest, OutsideDigestsHaveToBeAllThereAndTheSame) {
  MatrixOptions options = TestOptions();
  options.axes = {MatrixAxis::kCompiler};
  options.outside = Outside(MatrixAxis::kCompiler);
  EXPECT_EQ(RunMatrix(options).outcome, MatrixOutcome::kEqual);

  const auto verdict_of = [&](std::vector<DigestLine> lines) {
    options.outside[0].lines = std::move(lines);
    return RunMatrix(options).rows[0].cells[0].verdict;
  };
  std::vector<DigestLine> lines = TestLines();
  lines[0].rows[0] = '7';
  EXPECT_EQ(verdict_of(lines), Verdict::kDiffers) << "other rows";
  lines = TestLines();
  lines.pop_back();
  EXPECT_EQ(verdict_of(lines), Verdict::kDiffers) << "a line is missing";
  lines = TestLines();
  lines[0].model = "unknown";
  EXPECT_EQ(verdict_of(lines), Verdict::kDiffers) << "a model that nobody here computes";
  EXPECT_EQ(verdict_of({}), Verdict::kDiffers) << "no line at all";
  EXPECT_EQ(verdict_of(TestLines()), Verdict::kEqual);

  options.outside.pop_back();
  EXPECT_EQ(RunMatrix(options).outcome, MatrixOutcome::kUnproved) << "no control was handed in";
}

TEST(MatrixTest, WhatIsNotThereIsSaidAndProvesNothing) {
  MatrixOptions options = TestOptions();
  options.axes = {MatrixAxis::kCompiler};
  options.outside = {{.axis = MatrixAxis::kCompiler, .value = "-", .unavailable = "no compiler"}};
  MatrixResult result = RunMatrix(options);
  EXPECT_EQ(result.outcome, MatrixOutcome::kUnproved);
  EXPECT_EQ(result.rows[0].cells[0].verdict, Verdict::kNotAvailable);
  EXPECT_EQ(result.rows[0].cells[0].detail, "no compiler");

  options.axes = {MatrixAxis::kCompiler, MatrixAxis::kFork};
  EXPECT_EQ(RunMatrix(options).outcome, MatrixOutcome::kEqual) << "the rest is proved";
}

TEST(DigestLineTest, TextGoesThereAndBack) {
  const DigestLine line = TestLines()[0];
  const auto lines = ParseDigestLines("here", line.Text() + "\n\n" + line.Text());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].Text(), line.Text());
  for (const std::string& bad : {line.Text() + " more", line.Text().substr(7),
                                 std::string("scalar m simple 1 2"), std::string("words")}) {
    EXPECT_THROW(ParseDigestLines("here", bad), Error) << bad;
  }
}

}  // namespace
}  // namespace lockstep
