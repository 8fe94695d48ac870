// Mistakes that show in the rows themselves, or that bring rows from elsewhere, made on real rows.
#include "golden/cause.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "caches/codec.h"
#include "caches/random.h"
#include "golden/traced_steps.h"

namespace lockstep {
namespace {

const TracedModel& Traced() {
  static const TracedModel traced("tiny-gqa-9x3-q8_0");
  return traced;
}

constexpr int32_t kLayer = 1;

const RecordingTrace::Entry& Entry(Stage stage) {
  return EntryOf(Traced().steps[1], kLayer, stage);
}

std::vector<float> Rows(Stage stage) { return Entry(stage).rows; }

// What stands in a row of 96 elements that begins at `begin`.
constexpr int64_t kWidth = 96;

CauseVerdict Classify(Stage stage, std::vector<float> is, std::span<const KnownRow> known = {},
                      bool with_mistakes = true) {
  ClassifiedPlace place(Traced(), Entry(stage), std::move(is));
  std::vector<CauseCandidate> candidates;
  const MistakeMaker maker(Traced().model);
  if (with_mistakes) candidates = maker.Mistakes(TracedInputs(Traced().steps[1], kLayer, stage));
  return ClassifyCause(place.place, candidates, known);
}

void ExpectCause(const CauseVerdict& verdict, Cause cause) {
  EXPECT_EQ(CauseName(verdict.cause), CauseName(cause)) << verdict.evidence;
}

TEST(CauseTest, NamesAreReadBack) {
  for (Cause cause : AllCauses()) EXPECT_EQ(FindCause(CauseName(cause)), cause);
  EXPECT_EQ(AllCauses().back(), Cause::kUnknown);
  EXPECT_EQ(AllCauses().size(), static_cast<size_t>(Cause::kUnknown) + 1);
  EXPECT_FALSE(FindCause("bad luck"));
}

TEST(CauseTest, AFewUlpsOfASumAreItsOrder) {
  std::vector<float> is = Rows(Stage::kAttention);
  for (size_t i = 0; i < is.size(); i += 3)
    is[i] = std::nextafter(is[i], i % 2 == 0 ? 9.0f : -9.0f);
  ExpectCause(Classify(Stage::kAttention, is), Cause::kReductionOrder);
  // A cache keeps rows and adds nothing up.
  is = Rows(Stage::kCacheKey);
  for (size_t i = 0; i < is.size(); i += 3) is[i] = std::nextafter(is[i], 9.0f);
  ExpectCause(Classify(Stage::kCacheKey, is), Cause::kUnknown);
}

TEST(CauseTest, ZerosAndPoisonWereNeverWritten) {
  std::vector<float> is = Rows(Stage::kCacheValue);
  std::fill_n(is.begin() + kWidth, kWidth, 0.0f);
  ExpectCause(Classify(Stage::kCacheValue, is), Cause::kUnwritten);
  std::fill_n(is.begin() + kWidth, kWidth, std::bit_cast<float>(0xffffffffu));
  ExpectCause(Classify(Stage::kCacheValue, is), Cause::kUnwritten);
}

TEST(CauseTest, ABitOrAByteIsTurned) {
  std::vector<float> is = Rows(Stage::kCacheKey);
  is[100] = std::bit_cast<float>(std::bit_cast<uint32_t>(is[100]) ^ (1u << 20));
  const CauseVerdict verdict = Classify(Stage::kCacheKey, is);
  ExpectCause(verdict, Cause::kSingleBit);
  EXPECT_EQ(verdict.evidence, "bit 20 of element 4 in row 1 is turned");
  is[100] = std::bit_cast<float>(std::bit_cast<uint32_t>(Rows(Stage::kCacheKey)[100]) ^ 0xff00u);
  ExpectCause(Classify(Stage::kCacheKey, is), Cause::kSingleBit);
  // Bits of two bytes are no such accident.
  is[100] = std::bit_cast<float>(std::bit_cast<uint32_t>(Rows(Stage::kCacheKey)[100]) ^ 0x010100u);
  ExpectCause(Classify(Stage::kCacheKey, is), Cause::kUnknown);
}

TEST(CauseTest, AConstantRatioIsAScale) {
  std::vector<float> is = Rows(Stage::kQuery);
  for (float& value : is) value *= 0.5f;
  CauseVerdict verdict = Classify(Stage::kQuery, is);
  ExpectCause(verdict, Cause::kWrongScale);
  EXPECT_THAT(verdict.evidence, ::testing::HasSubstr("throughout: 0.5, a power of two"));
  is = Rows(Stage::kQuery);
  for (float& value : is) value *= std::sqrt(32.0f);
  verdict = Classify(Stage::kQuery, is);
  ExpectCause(verdict, Cause::kWrongScale);
  EXPECT_THAT(verdict.evidence, ::testing::HasSubstr("the root of the head dimension"));
  is = Rows(Stage::kCacheKey);
  for (size_t i = 0; i < is.size(); ++i) is[i] *= 1.0f + static_cast<float>(i / 32) / 64;
  verdict = Classify(Stage::kCacheKey, is);
  ExpectCause(verdict, Cause::kWrongScale);
}

TEST(CauseTest, ARatioOfEachHeadIsASoftmaxOverOtherRows) {
  std::vector<float> is = Rows(Stage::kAttention);
  for (size_t i = 0; i < is.size(); ++i) is[i] *= 0.5f + static_cast<float>(i / 32) / 64;
  ExpectCause(Classify(Stage::kAttention, is), Cause::kMask);
}

TEST(CauseTest, RowsFromElsewhereAreKnownByTheirPlace) {
  const std::vector<float> keys = Rows(Stage::kCacheKey);
  const std::vector<float> values = Rows(Stage::kCacheValue);
  const auto with_row = [&](const std::vector<float>& row) {
    std::vector<float> is = keys;
    std::copy_n(row.begin(), kWidth, is.begin() + 2 * kWidth);
    return is;
  };
  // Position 7's row at position 8.
  CauseVerdict verdict =
      Classify(Stage::kCacheKey, with_row({keys.begin() + kWidth, keys.begin() + 2 * kWidth}));
  ExpectCause(verdict, Cause::kShiftedRow);
  EXPECT_EQ(verdict.evidence, "3 of 3 heads that differ equal the row of position 7");

  const std::vector<float> stale(
      EntryOf(Traced().steps[0], 2, Stage::kCacheKey).rows.begin(),
      EntryOf(Traced().steps[0], 2, Stage::kCacheKey).rows.begin() + kWidth);
  const std::vector<float> value(values.begin() + 2 * kWidth, values.begin() + 3 * kWidth);
  const std::vector<KnownRow> known = {
      {Cause::kStaleRow, "what step 0 left there", stale, 2},
      {Cause::kKvSwapped, "V of the same row", value, 2},
      {Cause::kOtherSequence, "sequence 3", std::vector<float>(kWidth, 1.5f)}};
  ExpectCause(Classify(Stage::kCacheKey, with_row(stale), known), Cause::kStaleRow);
  ExpectCause(Classify(Stage::kCacheKey, with_row(value), known), Cause::kKvSwapped);
  ExpectCause(Classify(Stage::kCacheKey, with_row(known[2].values), known), Cause::kOtherSequence);
  // At home a row is no stranger.
  const std::vector<KnownRow> home = {{Cause::kShiftedRow, "position 8", stale, -1, 2}};
  ExpectCause(Classify(Stage::kCacheKey, with_row(stale), home), Cause::kUnknown);
  // A row that may be found in one place alone is not looked for in others.
  const std::vector<KnownRow> elsewhere = {{Cause::kStaleRow, "what step 0 left", stale, 1}};
  ExpectCause(Classify(Stage::kCacheKey, with_row(stale), elsewhere), Cause::kUnknown);
}

TEST(CauseTest, HeadsMayBeTakenForOthers) {
  std::vector<float> is = Rows(Stage::kAttention);
  for (size_t row = 0; row < 4; ++row) {
    for (size_t i = 0; i < 32; ++i) std::swap(is[row * 288 + i], is[row * 288 + 96 + i]);
  }
  ExpectCause(Classify(Stage::kAttention, is), Cause::kHeadMapping);
}

TEST(CauseTest, OtherAnglesKeepTheLengthsOfPairs) {
  std::vector<float> is = Rows(Stage::kKeyRope);
  for (size_t i = 0; i + 1 < is.size(); i += 2) {
    const double angle = 0.01 * static_cast<double>(1 + i % 32);
    const double a = is[i], b = is[i + 1];
    is[i] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
    is[i + 1] = static_cast<float>(a * std::sin(angle) + b * std::cos(angle));
  }
  ExpectCause(Classify(Stage::kKeyRope, is), Cause::kRopeFrequencies);
}

TEST(CauseTest, OtherCodesOfABlockAreQuantization) {
  const std::vector<float> exact = Rows(Stage::kKeyRope);
  std::vector<std::byte> stored(static_cast<size_t>(RowBytes(RowType::kQ8_0, kWidth)));
  std::vector<float> right(static_cast<size_t>(kWidth));
  EncodeRow(RowType::kQ8_0, std::span(exact).first(kWidth), stored);
  DecodeRow(RowType::kQ8_0, stored, right);
  std::vector<float> is = right;
  for (const size_t block : {size_t{0}, size_t{2}}) {
    stored[block * 34 + 2 + 7] = std::byte{
        static_cast<unsigned char>(static_cast<unsigned char>(stored[block * 34 + 2 + 7]) ^ 1u)};
  }
  DecodeRow(RowType::kQ8_0, stored, is);
  const std::vector<double> should(right.begin(), right.end());
  CausePlace place{.stage = Stage::kCacheKey,
                   .width = kWidth,
                   .head_dim = 32,
                   .row_type = RowType::kQ8_0,
                   .is = is,
                   .should = should};
  ExpectCause(ClassifyCause(place, {}, {}), Cause::kQuantization);
  is = right;
  std::swap_ranges(is.begin(), is.begin() + 16, is.begin() + 16);
  ExpectCause(ClassifyCause(place, {}, {}), Cause::kQuantization);
  place.row_type = RowType::kF32;
  ExpectCause(ClassifyCause(place, {}, {}), Cause::kUnknown);
}

TEST(CauseTest, TheLastElementsAloneAreATail) {
  std::vector<float> is = Rows(Stage::kFfnHidden);
  const auto width = static_cast<size_t>(Entry(Stage::kFfnHidden).width);
  Random random(5);
  for (size_t row = 0; row < 4; ++row) {
    for (size_t i = width - 5; i < width; ++i) {
      is[row * width + i] = static_cast<float>(random.Below(1000)) + 3;
    }
  }
  ExpectCause(Classify(Stage::kFfnHidden, is), Cause::kTruncatedTail);
}

// What nobody made on purpose has no name.
TEST(CauseTest, AnUnrelatedChangeIsUnknown) {
  for (int stage = 0; stage <= static_cast<int>(Stage::kFfnOut); ++stage) {
    if (stage == static_cast<int>(Stage::kEmbedding)) continue;
    if (stage == static_cast<int>(Stage::kFfnRouter)) continue;  // of models with experts alone
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(std::string(StageName(static_cast<Stage>(stage))));
      Random random(seed);
      std::vector<float> is = Rows(static_cast<Stage>(stage));
      for (int change = 0; change < 9; ++change) {
        float& value = is[random.Below(static_cast<uint32_t>(is.size() / 2))];
        value = value * 1.25f + static_cast<float>(random.Below(1000)) / 256 - 1.9f;
      }
      ExpectCause(Classify(static_cast<Stage>(stage), is), Cause::kUnknown);
      // All of it.
      for (float& value : is) value += static_cast<float>(random.Below(1000)) / 512 - 0.9f;
      ExpectCause(Classify(static_cast<Stage>(stage), is), Cause::kUnknown);
    }
  }
}

}  // namespace
}  // namespace lockstep
