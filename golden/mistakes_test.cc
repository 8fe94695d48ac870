// Every mistake that a stage allows, made on real rows, is named by its cause, whether what should
// be there is known to the bit or within rounding.
#include "golden/mistakes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "golden/traced_steps.h"

namespace lockstep {
namespace {

std::vector<float> AsFloats(std::span<const double> values) {
  std::vector<float> floats;
  for (double value : values) floats.push_back(static_cast<float>(value));
  return floats;
}

std::string Name(const CauseVerdict& verdict) {
  return std::string(CauseName(verdict.cause)) + ": " + verdict.evidence;
}

// With rows that `mistaken` computed, the cause is the one given.
struct Mistake {
  std::string preset;
  Stage stage;
  Cause cause;
  ReferenceOptions options = {};
  std::function<void(const TracedModel&, MistakeInputs*)> change = {};
};

class MistakeTest : public ::testing::Test {
 protected:
  static const TracedModel& Traced(const std::string& preset) {
    static std::map<std::string, std::unique_ptr<TracedModel>> kept;
    auto& traced = kept[preset];
    if (!traced) traced = std::make_unique<TracedModel>(preset);
    return *traced;
  }

  static ReferenceRows Compute(const TracedModel& traced, const MistakeInputs& inputs,
                               ReferenceOptions options) {
    const std::shared_ptr<const GgufFile> file(traced.model, &traced.model->file());
    const ReferenceTransformer reference(file, options);
    ReferenceRows all;
    if (inputs.stage.stage != Stage::kAttention) return reference.Expected(inputs.stage);
    StageInputs stage = inputs.stage;
    stage.visible = inputs.visible;
    stage.keys = inputs.views[0].keys;
    stage.values = inputs.views[0].values;
    return reference.Expected(stage);
  }

  static void Expect(const Mistake& mistake) {
    SCOPED_TRACE(mistake.preset + ", " + std::string(StageName(mistake.stage)) + ", " +
                 std::string(CauseName(mistake.cause)));
    const TracedModel& traced = Traced(mistake.preset);
    const int32_t layer =
        mistake.stage >= Stage::kFinalNorm ? traced.model->config().num_layers : 1;
    const TracedStep& step = traced.steps[1];
    const MistakeInputs right = TracedInputs(step, layer, mistake.stage);
    MistakeInputs wrong = right;
    if (mistake.change) mistake.change(traced, &wrong);
    const ReferenceRows mistaken = Compute(traced, wrong, mistake.options);
    const MistakeMaker maker(traced.model);
    const ReferenceRows expected = maker.Expected(right);
    std::vector<float> is = AsFloats(mistaken.values);
    // What the mistake does not touch is as the engine computed it.
    for (size_t i = 0; i < is.size(); ++i) {
      if (mistaken.values[i] == expected.values[i]) {
        is[i] = EntryOf(step, layer, mistake.stage).rows[i];
      }
    }
    const std::vector<CauseCandidate> candidates = maker.Mistakes(right);

    ClassifiedPlace known(traced, EntryOf(step, layer, mistake.stage), is);
    const CauseVerdict exact = ClassifyCause(known.place, candidates, {});
    EXPECT_EQ(CauseName(exact.cause), CauseName(mistake.cause)) << exact.evidence;

    known.place.should = expected.values;
    known.place.bounds = expected.bounds;
    const CauseVerdict approximate = ClassifyCause(known.place, candidates, {});
    EXPECT_EQ(CauseName(approximate.cause), CauseName(mistake.cause)) << approximate.evidence;
  }
};

constexpr const char* kGqa = "tiny-gqa-9x3-q8_0";
constexpr const char* kBias = "tiny-bias-6x2-f16";
constexpr const char* kNorms = "tiny-bias-qknorm-6x2-q8_0";

TEST_F(MistakeTest, OfNorms) {
  for (Stage stage : {Stage::kAttnNorm, Stage::kFfnNorm, Stage::kFinalNorm}) {
    Expect({kGqa, stage, Cause::kMissingNormWeight, {.fault = ReferenceFault::kNoNormWeight}});
    Expect({kGqa, stage, Cause::kWrongEpsilon, {.fault = ReferenceFault::kEpsOutside}});
  }
}

TEST_F(MistakeTest, OfProjections) {
  for (Stage stage : {Stage::kQuery, Stage::kKey, Stage::kValue}) {
    Expect({kBias, stage, Cause::kMissingBias, {.fault = ReferenceFault::kNoBias}});
    Expect({kGqa, stage, Cause::kQuantization, {.fault = ReferenceFault::kTruncatedCodes}});
    Expect({kGqa, stage, Cause::kQuantization, {.quantize_activations = false}});
  }
  const auto set_stage = [](Stage stage) {
    return [stage](const TracedModel&, MistakeInputs* inputs) { inputs->stage.stage = stage; };
  };
  Expect({kBias, Stage::kKey, Cause::kKvSwapped, {}, set_stage(Stage::kValue)});
  Expect({kBias, Stage::kValue, Cause::kKvSwapped, {}, set_stage(Stage::kKey)});
}

TEST_F(MistakeTest, OfRotations) {
  for (Stage stage : {Stage::kQueryRope, Stage::kKeyRope}) {
    Expect({kGqa, stage, Cause::kRopePairing, {.fault = ReferenceFault::kRopeHalves}});
    Expect({kGqa, stage, Cause::kWrongPosition, {.fault = ReferenceFault::kRopeNextPosition}});
    Expect({kNorms, stage, Cause::kMissingNorm, {.fault = ReferenceFault::kNoHeadNorm}});
    const auto at = [](std::vector<int32_t> positions) {
      return [positions](const TracedModel&, MistakeInputs* inputs) {
        static std::vector<int32_t> kept;
        kept = positions;
        inputs->stage.positions = kept;
      };
    };
    // The step has positions 6 to 9.
    Expect({kNorms, stage, Cause::kWrongPosition, {}, at({4, 5, 6, 7})});
    Expect({kNorms, stage, Cause::kWrongPosition, {}, at({0, 1, 2, 3})});
    Expect({kNorms, stage, Cause::kWrongPosition, {}, at({6, 6, 6, 6})});
    Expect({kNorms, stage, Cause::kRotatedTwice, {}, at({12, 14, 16, 18})});
    Expect({kNorms, stage, Cause::kNotRotated, {}, at({0, 0, 0, 0})});
  }
  Expect({kGqa, Stage::kKeyRope, Cause::kNotRotated, {.fault = ReferenceFault::kRopeUnrotatedKey}});
}

TEST_F(MistakeTest, OfSums) {
  Expect({kGqa, Stage::kFfnOut, Cause::kMissingResidual, {.fault = ReferenceFault::kNoResidual}});
  Expect({kGqa,
          Stage::kAttnOut,
          Cause::kMissingResidual,
          {},
          [](const TracedModel&, MistakeInputs* inputs) {
            static const std::vector<float> zeros(4096);
            inputs->stage.stream = std::span(zeros).first(inputs->stage.stream.size());
          }});
  Expect(
      {kGqa, Stage::kFfnHidden, Cause::kGateUpSwapped, {.fault = ReferenceFault::kGateUpSwapped}});
  Expect({kGqa, Stage::kLogits, Cause::kQuantization, {.fault = ReferenceFault::kTruncatedCodes}});
}

TEST_F(MistakeTest, OfAttention) {
  Expect({kGqa, Stage::kAttention, Cause::kHeadMapping, {.fault = ReferenceFault::kHeadModulo}});
  Expect({kGqa, Stage::kAttention, Cause::kWrongScale, {.fault = ReferenceFault::kNoScale}});
  const auto see = [](std::vector<int32_t> visible) {
    return [visible](const TracedModel&, MistakeInputs* inputs) { inputs->visible = visible; };
  };
  Expect({kGqa, Stage::kAttention, Cause::kMask, {}, see({6, 7, 8, 9})});
  Expect({kGqa, Stage::kAttention, Cause::kMask, {}, see({8, 9, 10, 10})});
  Expect({kGqa, Stage::kAttention, Cause::kMask, {}, see({10, 10, 10, 10})});
  Expect({kGqa, Stage::kAttention, Cause::kMask, {}, see({1, 2, 3, 4})});
  const auto view = [](auto change) {
    return [change](const TracedModel& traced, MistakeInputs* inputs) {
      change(&inputs->views[0], traced.model->config().kv_dim());
    };
  };
  Expect({kGqa, Stage::kAttention, Cause::kKvSwapped, {}, view([](KvRows* rows, int64_t) {
            std::swap(rows->keys, rows->values);
          })});
  Expect({kGqa, Stage::kAttention, Cause::kKvSwapped, {}, view([](KvRows* rows, int64_t) {
            rows->values = rows->keys;
          })});
  Expect({kGqa, Stage::kAttention, Cause::kUnwritten, {}, view([](KvRows* rows, int64_t stride) {
            std::fill_n(rows->keys.begin() + 3 * stride, stride, 0.0f);
            std::fill_n(rows->values.begin() + 3 * stride, stride, 0.0f);
          })});
  Expect({kGqa, Stage::kAttention, Cause::kShiftedRow, {}, view([](KvRows* rows, int64_t stride) {
            for (auto* side : {&rows->keys, &rows->values}) {
              std::copy_n(side->begin() + 4 * stride, stride, side->begin() + 5 * stride);
            }
          })});
}

// One row at position 0's angle: unrotated, unless rows before it were rotated.
TEST_F(MistakeTest, ALoneQueryThatWasRotatedBeforeHasLostItsPosition) {
  const TracedModel& traced = Traced(kGqa);
  const TracedStep& step = traced.steps[1];
  MistakeInputs inputs = TracedInputs(step, 1, Stage::kQueryRope);
  const RecordingTrace::Entry& entry = EntryOf(step, 1, Stage::kQueryRope);
  const auto width = static_cast<size_t>(entry.width);
  inputs.stage.positions = inputs.stage.positions.first(1);
  inputs.stage.input = inputs.stage.input.first(width);
  const std::vector<float> is(inputs.stage.input.begin(), inputs.stage.input.end());
  const std::vector<double> should(entry.rows.begin(), entry.rows.begin() + entry.width);
  const CausePlace place{.stage = Stage::kQueryRope,
                         .width = entry.width,
                         .head_dim = traced.model->config().head_dim,
                         .is = is,
                         .should = should};
  const MistakeMaker maker(traced.model);
  EXPECT_EQ(ClassifyCause(place, maker.Mistakes(inputs), {}).cause, Cause::kNotRotated);
  inputs.rotated_before = true;
  EXPECT_EQ(ClassifyCause(place, maker.Mistakes(inputs), {}).cause, Cause::kWrongPosition);
}

// Without a mistake, the double reference and the engine are the same function.
TEST_F(MistakeTest, RightRowsAreWithinTheirBounds) {
  const TracedModel& traced = Traced(kNorms);
  const MistakeMaker maker(traced.model);
  for (const TracedStep& step : traced.steps) {
    for (const RecordingTrace::Entry& entry : step.trace) {
      const MistakeInputs inputs = TracedInputs(step, entry.layer, entry.stage);
      const ReferenceRows expected = maker.Expected(inputs);
      ClassifiedPlace known(traced, entry, entry.rows);
      known.place.should = expected.values;
      known.place.bounds = expected.bounds;
      const CauseVerdict verdict = ClassifyCause(known.place, maker.Mistakes(inputs), {});
      EXPECT_EQ(verdict.cause, Cause::kReductionOrder) << Name(verdict);
    }
  }
}

TEST_F(MistakeTest, InputsOfAnUntracedStageAreNone) {
  const TracedStep& step = Traced(kGqa).steps[0];
  EXPECT_FALSE(InputsOf(step.trace, step.tokens, step.positions, 7, Stage::kKey));
  EXPECT_FALSE(InputsOf({}, step.tokens, step.positions, 0, Stage::kKey));
}

}  // namespace
}  // namespace lockstep
