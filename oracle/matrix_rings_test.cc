// The matrix over caches that forget rows (caches/CONTRACT.md, W1): its controls too read rows by
// their positions.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "caches/registry.h"
#include "engine/synthetic.h"
#include "oracle/matrix.h"

namespace lockstep {
namespace {

// Long enough for a ring to forget many rows.
MatrixModel WindowedModel() {
  MatrixModel model;
  model.name = "tiny-mistral-6x2-q8_0";
  model.model = Model::Load(MakeSyntheticModel(SyntheticPreset(model.name), 1));
  for (int32_t i = 0; i < 41; ++i) model.prompt.push_back((11 + 29 * i) % 280);
  return model;
}

TEST(MatrixRingsTest, EveryAxisOfTheHostIsEqualAndProvedByRingsAlone) {
  MatrixOptions options;
  options.models = {WindowedModel()};
  options.caches = {ParseCacheSpec("ring/model+3"), ParseCacheSpec("ring/w7-5+4")};
  options.decode_steps = 3;
  options.axes = {MatrixAxis::kWritePath, MatrixAxis::kCache, MatrixAxis::kChunking,
                  MatrixAxis::kRollback,  MatrixAxis::kSave,  MatrixAxis::kFork};
  const MatrixResult result = RunMatrix(options);
  ASSERT_EQ(result.rows.size(), options.axes.size());
  for (const MatrixRow& row : result.rows) {
    EXPECT_TRUE(row.control_caught) << row.axis->name << ": " << row.control_detail;
    for (const MatrixCell& cell : row.cells) {
      const bool never = cell.value == "direct, refused";  // rings grant slots
      EXPECT_EQ(cell.verdict,
                never ? MatrixCell::Verdict::kNotAvailable : MatrixCell::Verdict::kEqual)
          << row.axis->name << " " << cell.value << ": " << cell.detail;
    }
  }
}

// Rows of two bytes have one write path: there nothing is to compare, elsewhere everything.
TEST(MatrixRingsTest, RowsOfTwoBytesAreEqualOnEveryOtherAxis) {
  MatrixOptions options;
  options.models = {WindowedModel()};
  options.caches = {ParseCacheSpec("ring/f16+bf16/model+3")};
  options.decode_steps = 3;
  options.axes = {MatrixAxis::kChunking, MatrixAxis::kRollback, MatrixAxis::kSave,
                  MatrixAxis::kFork};
  const MatrixResult result = RunMatrix(options);
  ASSERT_EQ(result.rows.size(), options.axes.size());
  for (const MatrixRow& row : result.rows) {
    EXPECT_TRUE(row.control_caught) << row.axis->name << ": " << row.control_detail;
    for (const MatrixCell& cell : row.cells) {
      EXPECT_EQ(cell.verdict, MatrixCell::Verdict::kEqual)
          << row.axis->name << " " << cell.value << ": " << cell.detail;
    }
  }
}

}  // namespace
}  // namespace lockstep
