// Damage of every kind to a sound image: it is refused with an Error or read as another sound file,
// never anything else. Run with sanitizers, every access is checked.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/gguf/raw_image.h"
#include "engine/gguf/test_checks.h"

namespace lockstep {
namespace {

using raw::ArrayEntry;
using raw::Entry;
using raw::Image;
using raw::Number;
using raw::Text;
using Kind = GgufValueType;

// Every kind of entry once, small, without anything that a reader may ignore at the end.
Image SmallImage() {
  Image image;
  image.metadata = {
      Entry("general.alignment", Kind::kUint32, Number(uint32_t{8})),
      Entry("u8", Kind::kUint8, Number(uint8_t{3})),
      Entry("f", Kind::kFloat32, Number(0.5f)),
      Entry("b", Kind::kBool, "\1"),
      Entry("s", Kind::kString, Text("text")),
      ArrayEntry("bs", Kind::kBool, 2, std::string("\0\1", 2)),
      ArrayEntry("is", Kind::kInt16, 2, Number(int16_t{-1}) + Number(int16_t{1})),
      ArrayEntry("ss", Kind::kString, 2, Text("a") + Text("")),
  };
  image.tensors = {{.name = "f32", .shape = {2, 3}},
                   {.name = "q8", .shape = {32}, .type = 8, .offset = 24},
                   {.name = "odd", .shape = {5}, .type = 9999, .offset = 64},
                   {.name = "f16", .shape = {4}, .type = 1, .offset = 72}};
  image.alignment = 8;
  image.data_bytes = 80;
  return image;
}

TEST(DamageTest, EveryPrefixIsRefused) {
  const std::vector<std::byte> image = Build(SmallImage());
  ASSERT_NE(Parse(image).file, nullptr);
  for (size_t size = 0; size < image.size(); ++size) {
    const ParseResult result = Parse({image.begin(), image.begin() + static_cast<long>(size)});
    EXPECT_EQ(result.file, nullptr) << "of " << size << " bytes";
  }
}

// What follows the last tensor is nobody's, except a tensor's of unknown type.
TEST(DamageTest, BytesAfterTheEndAreIgnored) {
  std::vector<std::byte> image = Build(SmallImage());
  image.resize(image.size() + 100, std::byte{0xff});
  const ParseResult result = Parse(image);
  ASSERT_NE(result.file, nullptr);
  EXPECT_EQ(result.file->tensors().size(), 4u);
}

TEST(DamageTest, EverySingleByteChanged) {
  const std::vector<std::byte> image = Build(SmallImage());
  const size_t header = image.size() - 80;
  int refused = 0, accepted = 0;
  for (size_t at = 0; at < header; ++at) {
    const int original = static_cast<int>(image[at]);
    for (const int value :
         {0, 1, 2, 9, 0x7f, 0x80, 0xff, original ^ 0x20, original + 1, original - 1}) {
      if ((value & 0xff) == original) continue;
      std::vector<std::byte> damaged = image;
      damaged[at] = static_cast<std::byte>(value);
      ++(Parse(damaged).file == nullptr ? refused : accepted);
    }
  }
  // Most bytes are counts, lengths, types and offsets; what is accepted are names and values.
  EXPECT_GT(refused, 2500);
  EXPECT_GT(accepted, 300);
}

}  // namespace
}  // namespace lockstep
