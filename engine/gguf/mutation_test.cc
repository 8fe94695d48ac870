// Thousands of images damaged with an understanding of the format: only Error is ever thrown,
// memory stays bounded, and what is accepted keeps every promise (test_checks.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "caches/digest.h"
#include "caches/random.h"
#include "engine/gguf/mutate.h"
#include "engine/gguf/raw_image.h"
#include "engine/gguf/test_checks.h"

namespace lockstep {
namespace {

constexpr uint64_t kSeed = 20240607;
constexpr uint64_t kImages = 500;
constexpr uint64_t kMutantsPerImage = 10;

// Every refusal of the parser, by words of its message. A refusal that no mutant reaches is one
// that this test does not test.
constexpr const char* kRefusals[] = {
    "does not begin with 'GGUF'",
    "big-endian",
    "is not supported, only 2 to 3",
    "tensor count: ",
    "metadata count: ",
    "bytes follow the metadata",
    ": key: needs",
    "value type: value type id",
    "value: needs",
    "is no bool",
    "array length: ",
    "array element type: arrays of arrays",
    "array element type: value type id",
    "array element: needs",
    "the key occurs twice",
    "is no power of two",
    "is no unsigned integer",
    ": name: needs",
    "the tensor occurs twice",
    "number of dimensions: ",
    "is 0",
    "more elements than 63 bits count",
    "whole number of blocks",
    "more bytes than 63 bits count",
    "is no multiple of the alignment",
    "of a data section of",
    "run into tensor",
};

class Outcomes {
 public:
  void Add(const ParseResult& result) {
    digest_.AddText(result.error);
    if (result.file != nullptr) {
      ++accepted_;
      digest_.AddU64(result.file->tensors().size());
      digest_.AddU64(result.file->metadata().size());
      return;
    }
    ++refused_;
    for (const char* words : kRefusals) {
      if (result.error.find(words) != std::string::npos) reached_.insert(words);
    }
  }

  int accepted() const { return accepted_; }
  int refused() const { return refused_; }
  const std::set<std::string>& reached() const { return reached_; }
  Digest Finish() const { return digest_.Finish(); }

 private:
  int accepted_ = 0;
  int refused_ = 0;
  std::set<std::string> reached_;
  DigestBuilder digest_;
};

// The mutants of image number `index`, each from its own stream: a failure is repeated by running
// that one alone.
void RunImage(uint64_t index, Outcomes& outcomes) {
  Random random = Random(kSeed).Split(index);
  std::vector<raw::Field> fields;
  const std::vector<std::byte> sound = Build(raw::RandomImage(random), &fields);
  EXPECT_EQ(Parse(sound).error, "");
  for (uint64_t i = 0; i < kMutantsPerImage; ++i) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", image " << index << ", mutant " << i);
    Random mutation = random.Split(i);
    std::vector<std::byte> mutant = sound;
    for (uint32_t times = 1 + mutation.Below(3); times > 0; --times) {
      Mutate(mutant, fields, mutation);
    }
    outcomes.Add(Parse(mutant));
  }
}

TEST(MutationTest, OnlyErrorsAreThrown) {
  Outcomes outcomes;
  for (uint64_t index = 0; index < kImages; ++index) RunImage(index, outcomes);
  EXPECT_GT(outcomes.accepted(), 400);
  EXPECT_GT(outcomes.refused(), 2000);
  for (const char* words : kRefusals) EXPECT_TRUE(outcomes.reached().contains(words)) << words;
}

TEST(MutationTest, TheSameSeedDoesTheSame) {
  Outcomes first, again, other;
  for (uint64_t index = 0; index < 20; ++index) {
    RunImage(index, first);
    RunImage(index, again);
    RunImage(index + 1, other);
  }
  EXPECT_EQ(first.Finish(), again.Finish());
  EXPECT_NE(first.Finish(), other.Finish());
}

}  // namespace
}  // namespace lockstep
