#include "engine/gguf/test_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "caches/error.h"
#include "engine/gguf/allocation_meter.h"
#include "engine/gguf/types.h"

namespace lockstep {
namespace {

void CheckTensor(const GgufFile& file, const GgufTensor& tensor) {
  SCOPED_TRACE(tensor.name);
  EXPECT_EQ(file.FindTensor(tensor.name), &tensor);
  ASSERT_GE(tensor.shape.size(), 1u);
  ASSERT_LE(tensor.shape.size(), 4u);
  EXPECT_GE(std::ranges::min(tensor.shape), 1);
  EXPECT_GE(tensor.elements(), 1);
  ASSERT_GE(tensor.data.data(), file.bytes().data());
  ASSERT_LE(tensor.data.size(), file.bytes().size());
  ASSERT_LE(tensor.data.data() + tensor.data.size(), file.bytes().data() + file.bytes().size());
  EXPECT_GE(tensor.data.size(), 1u);
  EXPECT_EQ((tensor.data.data() - file.bytes().data()) % 8, 0);
  const std::optional<GgmlTypeTraits> traits = TraitsOf(tensor.type);
  if (traits) {
    EXPECT_EQ(tensor.shape[0] % traits->block_elements, 0);
    EXPECT_EQ(static_cast<int64_t>(tensor.data.size()),
              tensor.elements() / traits->block_elements * traits->block_bytes);
    EXPECT_EQ(&file.RequireTensor(tensor.name, tensor.shape), &tensor);
  } else {
    EXPECT_THROW(file.RequireTensor(tensor.name, tensor.shape), Error);
  }
  // Reads every byte, so that a sanitizer sees a region that is not the file's.
  unsigned sum = 0;
  for (std::byte byte : tensor.data) sum += static_cast<unsigned>(byte);
  EXPECT_LE(sum, 255 * tensor.data.size());
}

template <typename Getter>
int Succeeds(const Getter& getter) {
  try {
    getter();
    return 1;
  } catch (const Error&) {
    return 0;
  }
}

// Every kind of value has exactly one getter, except that a value may be out of its range.
void CheckKey(const GgufFile& file, const std::string& key) {
  constexpr int64_t kLow = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();
  const int accepted =
      Succeeds([&] { file.RequireInt(key, kLow, kHigh); }) +
      Succeeds([&] { file.RequireFloat(key); }) + Succeeds([&] { file.RequireString(key); }) +
      Succeeds([&] { file.RequireStrings(key); }) + Succeeds([&] { file.FindBool(key); }) +
      Succeeds([&] { file.FindFloats(key); }) + Succeeds([&] { file.FindInts(key); });
  EXPECT_LE(accepted, 1) << key;
}

}  // namespace

void CheckPromises(const GgufFile& file) {
  std::vector<std::pair<const std::byte*, const std::byte*>> regions;
  for (const GgufTensor& tensor : file.tensors()) {
    CheckTensor(file, tensor);
    regions.emplace_back(tensor.data.data(), tensor.data.data() + tensor.data.size());
  }
  std::ranges::sort(regions);
  for (size_t i = 1; i < regions.size(); ++i) EXPECT_LE(regions[i - 1].second, regions[i].first);
  for (const auto& [key, value] : file.metadata()) CheckKey(file, key);
}

ParseResult Parse(const std::vector<std::byte>& image) {
  ParseResult result;
  std::vector<std::byte> owned(image.begin(), image.end());  // exact capacity, for the sanitizers
  const AllocationMeter meter;
  try {
    result.file = GgufFile::FromBytes(std::move(owned), kTestFile);
  } catch (const Error& error) {
    result.error = error.what();
  }
  EXPECT_LE(meter.peak(), kBytesPerFileByte * image.size() + kBytesPerFile);
  if (result.file != nullptr) {
    CheckPromises(*result.file);
  } else {
    EXPECT_THAT(result.error, testing::StartsWith(std::string(kTestFile) + ": "));
    EXPECT_LE(result.error.size(), 1000u);
  }
  return result;
}

}  // namespace lockstep
