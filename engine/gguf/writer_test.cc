// What the writer writes, the reader reads back; and the bytes are those of the format.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "engine/gguf.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

std::vector<std::byte> Bytes(size_t count, int first = 0) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(first + static_cast<int>(i));
  return bytes;
}

std::vector<std::byte> BytesOf(std::string_view text) {
  const std::byte* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

TEST(GgufWriterTest, EmptyImageIsTheHeaderAlone) {
  const std::vector<std::byte> image = GgufWriter().Finish();
  const std::string_view header("GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
  EXPECT_EQ(image, BytesOf(header));
  const auto file = GgufFile::FromBytes(image, "empty");
  EXPECT_EQ(file->version(), 3u);
  EXPECT_TRUE(file->metadata().empty());
  EXPECT_TRUE(file->tensors().empty());
}

// Written out by hand from the format's description, so that reader and writer cannot share a
// misunderstanding.
TEST(GgufWriterTest, BytesAreThoseOfTheFormat) {
  GgufWriter writer;
  writer.AddBool("b", true);
  writer.AddInt32s("ints", std::array<int32_t, 2>{-2, 1});
  writer.AddTensor("t", GgmlType::kF16, {3, 2}, Bytes(12, 0x41));
  std::string expected;
  const auto add = [&](std::string_view bytes) { expected += bytes; };
  using namespace std::string_view_literals;
  add("GGUF"
      "\3\0\0\0"
      "\1\0\0\0\0\0\0\0"
      "\2\0\0\0\0\0\0\0"sv);
  add("\1\0\0\0\0\0\0\0"
      "b"
      "\7\0\0\0"
      "\1"sv);
  add("\4\0\0\0\0\0\0\0"
      "ints"
      "\11\0\0\0"
      "\5\0\0\0"
      "\2\0\0\0\0\0\0\0"sv);
  add("\xfe\xff\xff\xff"
      "\1\0\0\0"sv);
  add("\1\0\0\0\0\0\0\0"
      "t"
      "\2\0\0\0"
      "\3\0\0\0\0\0\0\0"
      "\2\0\0\0\0\0\0\0"sv);
  add("\1\0\0\0"
      "\0\0\0\0\0\0\0\0"sv);
  expected.resize((expected.size() + 31) / 32 * 32);
  add("ABCDEFGHIJKL"sv);
  expected.resize((expected.size() + 31) / 32 * 32);
  EXPECT_EQ(writer.Finish(), BytesOf(expected));
}

TEST(GgufWriterTest, MetadataOfEveryTypeRoundTrips) {
  const std::string binary("\0\xff\n", 3);
  const std::vector<std::string> strings = {"", "a", binary, std::string(1000, 'x')};
  constexpr std::array<int32_t, 3> kInts = {std::numeric_limits<int32_t>::min(), 0,
                                            std::numeric_limits<int32_t>::max()};
  constexpr std::array<float, 4> kFloats = {-0.0f, std::numeric_limits<float>::denorm_min(),
                                            std::numeric_limits<float>::max(),
                                            -std::numeric_limits<float>::infinity()};
  GgufWriter writer;
  writer.AddUint32("zero", 0);
  writer.AddUint32("most", std::numeric_limits<uint32_t>::max());
  writer.AddFloat32("third", 1.0f / 3.0f);
  writer.AddBool("yes", true);
  writer.AddBool("no", false);
  writer.AddString("text", binary);
  writer.AddString("nothing", "");
  writer.AddStrings("strings", strings);
  writer.AddStrings("no strings", {});
  writer.AddInt32s("ints", kInts);
  writer.AddInt32s("no ints", {});
  writer.AddFloat32s("floats", kFloats);
  writer.AddFloat32s("no floats", {});
  const auto file = GgufFile::FromBytes(writer.Finish(), "image");

  EXPECT_EQ(file->metadata().size(), 13u);
  EXPECT_EQ(file->RequireInt("zero", 0, 0), 0);
  EXPECT_EQ(file->RequireInt("most", 0, 0xffffffff), 0xffffffff);
  EXPECT_EQ(file->RequireFloat("third"), double{1.0f / 3.0f});
  EXPECT_EQ(file->FindBool("yes"), true);
  EXPECT_EQ(file->FindBool("no"), false);
  EXPECT_EQ(file->RequireString("text"), binary);
  EXPECT_EQ(file->RequireString("nothing"), "");
  EXPECT_EQ(file->RequireStrings("strings"), strings);
  EXPECT_TRUE(file->RequireStrings("no strings").empty());
  EXPECT_THAT(file->FindInts("ints").value(), ElementsAreArray(kInts));
  EXPECT_TRUE(file->FindInts("no ints").value().empty());
  EXPECT_THAT(file->FindFloats("floats").value(), ElementsAreArray(kFloats));
  EXPECT_TRUE(std::signbit(file->FindFloats("floats").value()[0]));
  EXPECT_TRUE(file->FindFloats("no floats").value().empty());
}

TEST(GgufWriterTest, TensorsOfEveryTypeRoundTrip) {
  GgufWriter writer;
  writer.AddTensor("f32", GgmlType::kF32, {1}, Bytes(4, 1));
  writer.AddTensor("f16", GgmlType::kF16, {33, 1}, Bytes(66, 2));
  writer.AddTensor("bf16", GgmlType::kBF16, {2, 3, 5}, Bytes(60, 3));
  writer.AddTensor("q8_0", GgmlType::kQ8_0, {64, 3}, Bytes(6 * 34, 4));
  writer.AddTensor("q4_0", GgmlType::kQ4_0, {32, 1, 2, 2}, Bytes(4 * 18, 5));
  const auto file = GgufFile::FromBytes(writer.Finish(), "image");

  ASSERT_EQ(file->tensors().size(), 5u);
  const auto expect = [&](size_t index, std::string_view name, GgmlType type,
                          std::vector<int64_t> shape, const std::vector<std::byte>& data) {
    const GgufTensor& tensor = file->tensors()[index];
    EXPECT_EQ(tensor.name, name);
    EXPECT_EQ(tensor.type, type);
    EXPECT_EQ(tensor.shape, shape);
    EXPECT_THAT(std::vector(tensor.data.begin(), tensor.data.end()), ElementsAreArray(data));
    EXPECT_EQ((tensor.data.data() - file->bytes().data()) % 32, 0);
    EXPECT_EQ(file->FindTensor(name), &tensor);
    EXPECT_EQ(&file->RequireTensor(name, shape), &tensor);
  };
  expect(0, "f32", GgmlType::kF32, {1}, Bytes(4, 1));
  expect(1, "f16", GgmlType::kF16, {33, 1}, Bytes(66, 2));
  expect(2, "bf16", GgmlType::kBF16, {2, 3, 5}, Bytes(60, 3));
  expect(3, "q8_0", GgmlType::kQ8_0, {64, 3}, Bytes(6 * 34, 4));
  expect(4, "q4_0", GgmlType::kQ4_0, {32, 1, 2, 2}, Bytes(4 * 18, 5));
  EXPECT_EQ(file->tensors()[4].elements(), 128);
}

TEST(GgufWriterDeathTest, MisuseIsCaught) {
  GgufWriter writer;
  writer.AddUint32("key", 1);
  writer.AddTensor("t", GgmlType::kF32, {1}, Bytes(4));
  EXPECT_DEATH(writer.AddBool("key", true), "'key' is added twice");
  EXPECT_DEATH(writer.AddUint32("general.alignment", 64), "alignment is fixed");
  EXPECT_DEATH(writer.AddString(std::string(65536, 'k'), ""), "a key of 65536 bytes");
  EXPECT_DEATH(writer.AddTensor("t", GgmlType::kF32, {1}, Bytes(4)), "'t' is added twice");
  EXPECT_DEATH(writer.AddTensor("u", GgmlType::kF32, {2}, Bytes(4)), "needs 8 bytes, not 4");
  EXPECT_DEATH(writer.AddTensor("u", GgmlType::kQ8_0, {31}, Bytes(34)), "rows of 31 elements");
  EXPECT_DEATH(writer.AddTensor("u", GgmlType::kF32, {}, Bytes(4)), "has 0 dimensions");
  EXPECT_DEATH(writer.AddTensor("u", GgmlType::kF32, {1, 1, 1, 1, 1}, Bytes(4)), "5 dimensions");
  EXPECT_DEATH(writer.AddTensor("u", GgmlType::kF32, {1, 0}, {}), "a dimension of 0");
  EXPECT_DEATH(writer.AddTensor("u", static_cast<GgmlType>(15), {256}, Bytes(292)), "type id 15");
  writer.Finish();
  EXPECT_DEATH(writer.Finish(), "called twice");
  EXPECT_DEATH(writer.AddBool("late", true), "after Finish");
  EXPECT_DEATH(writer.AddTensor("late", GgmlType::kF32, {1}, Bytes(4)), "after Finish");
}

TEST(GgufTypesTest, TraitsAreThoseOfTheFormats) {
  const auto expect = [](GgmlType type, std::string_view name, int64_t elements, int64_t bytes) {
    const std::optional<GgmlTypeTraits> traits = TraitsOf(type);
    ASSERT_TRUE(traits);
    EXPECT_EQ(traits->name, name);
    EXPECT_EQ(traits->block_elements, elements);
    EXPECT_EQ(traits->block_bytes, bytes);
  };
  expect(GgmlType::kF32, "f32", 1, 4);
  expect(GgmlType::kF16, "f16", 1, 2);
  expect(GgmlType::kBF16, "bf16", 1, 2);
  expect(GgmlType::kQ8_0, "q8_0", 32, 34);  // one F16 scale, 32 signed bytes
  expect(GgmlType::kQ4_0, "q4_0", 32, 18);  // one F16 scale, 16 bytes of nibbles
  expect(GgmlType::kQ4_1, "q4_1", 32, 20);  // and one F16 low
  expect(GgmlType::kQ5_0, "q5_0", 32, 22);  // 32 fifth bits more than Q4_0
  expect(GgmlType::kQ5_1, "q5_1", 32, 24);
  expect(GgmlType::kQ2_K, "q2_k", 256, 16 + 64 + 4);  // bytes of scales, 2 bits, two F16
  expect(GgmlType::kQ3_K, "q3_k", 256, 32 + 64 + 12 + 2);
  expect(GgmlType::kQ4_K, "q4_k", 256, 4 + 12 + 128);
  expect(GgmlType::kQ5_K, "q5_k", 256, 4 + 12 + 32 + 128);
  expect(GgmlType::kQ6_K, "q6_k", 256, 128 + 64 + 16 + 2);
  expect(GgmlType::kIQ4_NL, "iq4_nl", 32, 18);
  expect(GgmlType::kIQ4_XS, "iq4_xs", 256, 2 + 2 + 4 + 128);
  int supported = 0;
  for (uint32_t id = 0; id < 100; ++id) supported += TraitsOf(static_cast<GgmlType>(id)) ? 1 : 0;
  EXPECT_EQ(supported, 15);
}

}  // namespace
}  // namespace lockstep
