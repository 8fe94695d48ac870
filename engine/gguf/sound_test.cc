// What the format allows is accepted, up to each limit that hostile_test.cc tries from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "caches/error.h"
#include "engine/gguf/raw_image.h"
#include "engine/gguf/test_checks.h"

namespace lockstep {
namespace {

using raw::ArrayEntry;
using raw::Entry;
using raw::Image;
using raw::Number;
using raw::Tensor;
using raw::Text;
using testing::ElementsAre;
using testing::HasSubstr;
using Kind = GgufValueType;

std::shared_ptr<const GgufFile> Accepted(const Image& image) {
  const ParseResult result = Parse(Build(image));
  EXPECT_EQ(result.error, "");
  return result.file;
}

// Offset of a tensor's data in the data section that raw::Build fills with 0, 1, 2, ...
int FirstByte(const GgufTensor& tensor) { return static_cast<int>(tensor.data[0]); }

TEST(SoundFileTest, VersionsTwoAndThree) {
  for (const uint32_t version : {2u, 3u}) {
    Image image;
    image.version = version;
    image.tensors = {{}};
    image.data_bytes = 16;
    const auto file = Accepted(image);
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(file->version(), version);
  }
}

TEST(SoundFileTest, EveryLegalAlignment) {
  for (uint32_t alignment = 8; alignment <= 65536; alignment *= 2) {
    Image image;
    image.metadata = {Entry("general.alignment", Kind::kUint32, Number(alignment))};
    image.tensors = {{.offset = alignment}, {.name = "u"}};
    image.alignment = alignment;
    image.data_bytes = alignment + 16;
    // The tensor named second lies first; a short alignment makes them meet exactly.
    if (alignment == 8) image.tensors[1].shape = {2};
    const auto file = Accepted(image);
    ASSERT_NE(file, nullptr) << alignment;
    EXPECT_EQ(FirstByte(file->tensors()[0]), static_cast<int>(alignment & 0xff));
    EXPECT_EQ(file->tensors()[0].data.data() - file->tensors()[1].data.data(), alignment);
  }
}

TEST(SoundFileTest, AlignmentOfAnyUnsignedWidth) {
  for (const std::string& entry :
       {Entry("general.alignment", Kind::kUint8, Number(uint8_t{64})),
        Entry("general.alignment", Kind::kUint64, Number(uint64_t{64}))}) {
    Image image;
    image.metadata = {entry};
    image.tensors = {{.offset = 64}};
    image.alignment = 64;
    image.data_bytes = 80;
    const auto file = Accepted(image);
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(FirstByte(file->tensors()[0]), 64);
  }
}

TEST(SoundFileTest, GapsAndAnyOrderOfTensors) {
  Image image;
  image.tensors = {{.name = "c", .offset = 128}, {.name = "a"}, {.name = "b", .offset = 64}};
  image.data_bytes = 200;
  const auto file = Accepted(image);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(FirstByte(*file->FindTensor("a")), 0);
  EXPECT_EQ(FirstByte(*file->FindTensor("b")), 64);
  EXPECT_EQ(FirstByte(*file->FindTensor("c")), 128);
  EXPECT_EQ(file->tensors()[0].name, "c");
  EXPECT_EQ(file->FindTensor("d"), nullptr);
}

TEST(SoundFileTest, TensorsThatMeetExactlyAndFillTheFile) {
  Image image;
  image.tensors = {{.shape = {8}}, {.name = "u", .shape = {8}, .offset = 32}};
  image.data_bytes = 64;
  EXPECT_NE(Accepted(image), nullptr);
}

TEST(SoundFileTest, EmptyNamesStringsAndArrays) {
  Image image;
  image.metadata = {Entry("", Kind::kString, Text("")), ArrayEntry("u8", Kind::kUint8, 0, ""),
                    ArrayEntry("bool", Kind::kBool, 0, ""),
                    ArrayEntry("strings", Kind::kString, 2, Text("") + Text(""))};
  image.tensors = {{.name = ""}};
  image.data_bytes = 16;
  const auto file = Accepted(image);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->RequireString(""), "");
  EXPECT_THAT(file->FindInts("u8"), testing::Optional(testing::IsEmpty()));
  EXPECT_THAT(file->RequireStrings("strings"), ElementsAre("", ""));
  EXPECT_NE(file->FindTensor(""), nullptr);
}

TEST(SoundFileTest, LongestKey) {
  Image image;
  image.metadata = {Entry(std::string(65535, 'k'), Kind::kBool, Number(uint8_t{1}))};
  EXPECT_NE(Accepted(image), nullptr);
}

TEST(SoundFileTest, UnknownTypeTakesAllUpToTheNextTensorOrTheEnd) {
  Image image;
  image.tensors = {{.name = "odd", .shape = {7}, .type = 9999},
                   {.name = "plain", .offset = 96},
                   {.name = "last", .shape = {1}, .type = 4, .offset = 128}};
  image.data_bytes = 150;
  const auto file = Accepted(image);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->FindTensor("odd")->data.size(), 96u);
  EXPECT_EQ(file->FindTensor("plain")->data.size(), 16u);
  EXPECT_EQ(file->FindTensor("last")->data.size(), 22u);
}

TEST(SoundFileTest, UnsupportedTypesAreRefusedOnUseByName) {
  Image image;
  image.tensors = {{.name = "odd", .type = 9999},
                   {.name = "k", .shape = {256, 2}, .type = 15, .offset = 32}};
  image.data_bytes = 32 + 2 * 292;
  const auto file = Accepted(image);
  ASSERT_NE(file, nullptr);
  const auto message = [&](std::string_view name, std::vector<int64_t> shape) -> std::string {
    try {
      file->RequireTensor(name, shape);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  constexpr const char* kRemedy =
      " (convert the model to F32, F16, BF16, Q4_0 to Q8_0, Q2_K to Q6_K, IQ4_NL or IQ4_XS)";
  EXPECT_EQ(
      message("odd", {4}),
      std::string("dir/test.gguf: tensor 'odd': type with id 9999 is not supported") + kRemedy);
  EXPECT_EQ(message("k", {256, 2}),
            std::string("dir/test.gguf: tensor 'k': type q8_k is not supported") + kRemedy);
}

TEST(SoundFileTest, RequireTensorNamesWhatIsWrong) {
  Image image;
  image.tensors = {{.shape = {2, 3}}};
  image.data_bytes = 24;
  const auto file = Accepted(image);
  ASSERT_NE(file, nullptr);
  const auto message = [&](std::string_view name, std::vector<int64_t> shape) -> std::string {
    try {
      file->RequireTensor(name, shape);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message("t", {2, 3}), "accepted");
  EXPECT_EQ(message("u", {2, 3}), "dir/test.gguf: tensor 'u': is missing");
  EXPECT_EQ(message("t", {3, 2}), "dir/test.gguf: tensor 't': shape is [2, 3], not [3, 2]");
  EXPECT_EQ(message("t", {2}), "dir/test.gguf: tensor 't': shape is [2, 3], not [2]");
  EXPECT_EQ(message("t", {2, 3, 1}), "dir/test.gguf: tensor 't': shape is [2, 3], not [2, 3, 1]");
  EXPECT_EQ(message("t", {}), "dir/test.gguf: tensor 't': shape is [2, 3], not []");
}

// The entries that grow most in memory, many of each: Parse measures what is allocated.
TEST(SoundFileTest, MemoryIsBoundedByTheFileSize) {
  constexpr size_t kMany = 4000;
  Image bytes, bools, strings, keys, tensors;
  bytes.metadata = {ArrayEntry("a", Kind::kUint8, kMany, std::string(kMany, '\1'))};
  bools.metadata = {ArrayEntry("a", Kind::kBool, kMany, std::string(kMany, '\1'))};
  strings.metadata = {ArrayEntry("a", Kind::kString, kMany, std::string(8 * kMany, '\0'))};
  for (size_t i = 0; i < kMany; ++i) {
    const std::string name = {static_cast<char>(i), static_cast<char>(i >> 8)};
    keys.metadata.push_back(Entry(name, Kind::kBool, "\1"));
    tensors.tensors.push_back({.name = name, .shape = {1}, .offset = 32 * i});
  }
  tensors.data_bytes = 32 * kMany;
  for (const Image* image : {&bytes, &bools, &strings, &keys, &tensors}) {
    EXPECT_NE(Accepted(*image), nullptr);
  }
  // The same tensors without their data: refused only after all entries are read.
  tensors.data_bytes = 0;
  EXPECT_THAT(Parse(Build(tensors)).error, HasSubstr("needs 4 bytes at 0"));
}

}  // namespace
}  // namespace lockstep
