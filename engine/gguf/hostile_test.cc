// Files made to break a loader: each is refused with an error that names the file, the entry and
// the field, without crashing and without allocating more than the file's size bounds.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <ostream>
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
using testing::HasSubstr;
using Kind = GgufValueType;

constexpr uint64_t kMaxU64 = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kTwo63 = uint64_t{1} << 63;

struct HostileCase {
  std::string name;
  Image image;
  std::string where;  // after the file's name
  std::string what;
};

void PrintTo(const HostileCase& hostile, std::ostream* out) { *out << hostile.name; }

// A sound image with one F32 tensor "t" of 4 elements, before `change` spoils it.
Image Spoiled(const std::function<void(Image&)>& change) {
  Image image;
  image.metadata = {Entry("k", Kind::kUint32, Number(uint32_t{7}))};
  image.tensors = {Tensor{}};
  image.data_bytes = 64;
  change(image);
  return image;
}

Image WithTensor(const std::function<void(Tensor&)>& change) {
  return Spoiled([&](Image& image) { change(image.tensors[0]); });
}

// The spoiled entry comes last but one, so that a reader that trusts it runs on into the next.
Image WithEntry(const std::string& entry) {
  return Spoiled([&](Image& image) { image.metadata.insert(image.metadata.begin(), entry); });
}

Image WithAlignment(Kind kind, const std::string& value) {
  return WithEntry(Entry("general.alignment", kind, value));
}

std::vector<HostileCase> HeaderCases() {
  return {
      {"NotGguf", Spoiled([](Image& i) { i.magic = "GGML"; }), "magic", "begin with 'GGUF'"},
      {"BigEndianMagic", Spoiled([](Image& i) { i.magic = "FUGG"; }), "magic", "big-endian"},
      {"BigEndianVersion2", Spoiled([](Image& i) { i.version = 0x02000000; }), "version",
       "big-endian"},
      {"BigEndianVersion3", Spoiled([](Image& i) { i.version = 0x03000000; }), "version",
       "big-endian"},
      {"Version0", Spoiled([](Image& i) { i.version = 0; }), "version", "version 0 is not"},
      {"Version1", Spoiled([](Image& i) { i.version = 1; }), "version", "version 1 is not"},
      {"Version4", Spoiled([](Image& i) { i.version = 4; }), "version", "version 4 is not"},
      {"VersionMax", Spoiled([](Image& i) { i.version = 0xffffffff; }), "version",
       "version 4294967295 is not"},
      {"TensorCount2To63", Spoiled([](Image& i) { i.tensor_count = kTwo63; }), "tensor count",
       "9223372036854775808 items of at least 32 bytes"},
      {"TensorCountMax", Spoiled([](Image& i) { i.tensor_count = kMaxU64; }), "tensor count",
       "18446744073709551615 items"},
      {"TensorCountTimesEntryWraps", Spoiled([](Image& i) { i.tensor_count = kTwo63 / 16; }),
       "tensor count", "items of at least 32 bytes"},
      {"TensorCountOneTooMany", Spoiled([](Image& i) { i.tensor_count = 2, i.data_bytes = 0; }),
       "tensor count", "2 items of at least 32 bytes each, but only 58 bytes follow"},
      {"TensorCountOfMetadataBytes", Spoiled([](Image& i) {
         i.metadata = {Entry("k", Kind::kString, Text(std::string(100, 'x')))};
         i.tensor_count = 2, i.data_bytes = 0;
       }),
       "tensor count",
       "2 entries of at least 32 bytes each, but only 33 bytes follow the metadata"},
      {"MetadataCount2To63", Spoiled([](Image& i) { i.metadata_count = kTwo63; }), "metadata count",
       "9223372036854775808 items of at least 13 bytes"},
      {"MetadataCountMax", Spoiled([](Image& i) { i.metadata_count = kMaxU64; }), "metadata count",
       "18446744073709551615 items"},
      {"MetadataCountOneTooMany",
       Spoiled([](Image& i) { i.metadata_count = 2, i.tensors = {}, i.data_bytes = 0; }),
       "metadata count", "2 items of at least 13 bytes each, but only 17 bytes follow"},
  };
}

std::vector<HostileCase> MetadataCases() {
  const std::string key = "metadata key 'h': ";
  return {
      {"KeyLength2To48", WithEntry(Text("h", uint64_t{1} << 48)), "metadata entry 0: key",
       "needs 281474976710656 bytes at byte 32"},
      {"KeyLengthWraps", WithEntry(Text("h", kMaxU64 - 7)), "metadata entry 0: key",
       "needs 18446744073709551608 bytes at byte 32"},
      {"KeyTooLong", WithEntry(Entry(std::string(65536, 'h'), Kind::kBool, Number(uint8_t{1}))),
       "metadata entry 0: key", "65536 bytes long, of at most 65535"},
      {"KeyTwice", WithEntry(Entry("k", Kind::kBool, Number(uint8_t{1}))), "metadata key 'k'",
       "occurs twice"},
      {"KeyNotPrintable", WithEntry(Entry(std::string_view("\0\x1b[2J\xff", 6), Kind{13}, "")),
       "metadata key '\\x00\\x1b[2J\\xff': value type", "13 is unknown"},
      {"KeyLongInMessage", WithEntry(Entry(std::string(60000, 'h'), Kind{13}, "")),
       "metadata key '" + std::string(80, 'h') + "...': value type", "13 is unknown"},
      {"ValueType13", WithEntry(Entry("h", Kind{13}, "")), key + "value type",
       "value type id 13 is unknown"},
      {"ValueTypeMax", WithEntry(Entry("h", Kind{0xffffffff}, "")), key + "value type",
       "value type id 4294967295 is unknown"},
      {"Bool2", WithEntry(Entry("h", Kind::kBool, "\2")), key + "value", "byte 2 at byte 37"},
      {"BoolMax", WithEntry(Entry("h", Kind::kBool, "\xff")), key + "value", "byte 255"},
      {"BoolInArray", WithEntry(ArrayEntry("h", Kind::kBool, 3, std::string_view("\1\0\3", 3))),
       key + "value", "byte 3 at byte 51"},
      {"StringLength2To48", WithEntry(Entry("h", Kind::kString, Text("value", uint64_t{1} << 48))),
       key + "value", "needs 281474976710656 bytes at byte 45"},
      {"StringLengthWraps", WithEntry(Entry("h", Kind::kString, Text("value", kMaxU64 - 7))),
       key + "value", "needs 18446744073709551608 bytes at byte 45"},
      {"StringLengthMax", WithEntry(Entry("h", Kind::kString, Text("value", kMaxU64))),
       key + "value", "needs 18446744073709551615 bytes"},
      {"ArrayOfArrays", WithEntry(ArrayEntry("h", Kind::kArray, 1, "")), key + "array element type",
       "arrays of arrays"},
      {"ArrayElementType13", WithEntry(ArrayEntry("h", Kind{13}, 0, "")),
       key + "array element type", "value type id 13 is unknown"},
      {"ArrayElementTypeMax", WithEntry(ArrayEntry("h", Kind{0xffffffff}, 0, "")),
       key + "array element type", "is unknown"},
      {"StringInArray2To48",
       WithEntry(ArrayEntry("h", Kind::kString, 2, Text("a") + Text("b", uint64_t{1} << 48))),
       key + "array element", "needs 281474976710656 bytes"},
  };
}

// Array lengths that no file can hold, for each element type and its size.
std::vector<HostileCase> ArrayLengthCases() {
  struct Element {
    Kind kind;
    uint64_t bytes;
  };
  constexpr Element kElements[] = {
      {Kind::kUint8, 1},  {Kind::kInt8, 1},    {Kind::kUint16, 2},  {Kind::kInt16, 2},
      {Kind::kUint32, 4}, {Kind::kInt32, 4},   {Kind::kUint64, 8},  {Kind::kInt64, 8},
      {Kind::kBool, 1},   {Kind::kFloat32, 4}, {Kind::kFloat64, 8}, {Kind::kString, 8},
  };
  std::vector<HostileCase> cases;
  for (const auto& [kind, bytes] : kElements) {
    // Times `bytes`, 2^64 / bytes wraps to 0; for one byte, 2^64 - 1 is as near as a count gets.
    const uint64_t wraps = kMaxU64 / bytes - (bytes == 1 ? 1 : 0) + 1;
    for (const uint64_t count : {uint64_t{1} << 32, kTwo63 + 1, wraps}) {
      cases.push_back({fmt::format("ArrayLength{}OfType{}", count, static_cast<uint32_t>(kind)),
                       WithEntry(ArrayEntry("h", kind, count, "")),
                       "metadata key 'h': array length",
                       fmt::format("{} items of at least {} bytes each", count, bytes)});
    }
  }
  return cases;
}

std::vector<HostileCase> AlignmentCases() {
  const std::string where = "metadata key 'general.alignment'";
  std::vector<HostileCase> cases;
  for (const uint32_t alignment : {0u, 1u, 2u, 3u, 4u, 7u, 9u, 24u, 33u, 1u << 17, 1u << 30,
                                   1u << 31, 0xffffffe0u, 0xffffffffu}) {
    cases.push_back({fmt::format("Alignment{}", alignment),
                     WithAlignment(Kind::kUint32, Number(alignment)), where,
                     fmt::format("{} is no power of two from 8 to 65536", alignment)});
  }
  cases.push_back({"Alignment2To63", WithAlignment(Kind::kUint64, Number(kTwo63)), where,
                   "9223372036854775808 is no power of two from 8"});
  cases.push_back({"AlignmentNegative", WithAlignment(Kind::kInt32, Number(int32_t{-32})), where,
                   "is no unsigned integer"});
  cases.push_back({"AlignmentFloat", WithAlignment(Kind::kFloat32, Number(32.0f)), where,
                   "is no unsigned integer"});
  cases.push_back(
      {"AlignmentText", WithAlignment(Kind::kString, Text("32")), where, "is no unsigned integer"});
  return cases;
}

std::vector<HostileCase> ShapeCases() {
  const std::string tensor = "tensor 't': ";
  const auto dimensions = [](uint32_t count) {
    return WithTensor([&](Tensor& t) { t.dimensions = count; });
  };
  const auto shape = [](std::vector<uint64_t> dims, uint32_t type = 0) {
    return WithTensor([&](Tensor& t) { t.shape = dims, t.type = type; });
  };
  constexpr uint64_t kTwo31 = uint64_t{1} << 31, kTwo33 = uint64_t{1} << 33;
  const std::string count = "number of dimensions";
  return {
      {"NoDimensions", dimensions(0), tensor + count, "0 is not in the range 1 to 4"},
      {"FiveDimensions", shape({1, 1, 1, 1, 1}), tensor + count, "5 is not in the range 1 to 4"},
      {"DimensionsMax", dimensions(0xffffffff), tensor + count, "4294967295 is not in the range"},
      {"EmptyDimension", shape({0}), tensor + "shape", "dimension 0 is 0"},
      {"EmptyLastDimension", shape({4, 1, 1, 0}), tensor + "shape", "dimension 3 is 0"},
      {"EmptyDimensionAfterHugeOnes", shape({kTwo33, kTwo31, 0}), tensor + "shape",
       "dimension 1 of 2147483648 makes more elements"},
      {"ProductIs2To64", shape({kTwo33, kTwo31}), tensor + "shape",
       "dimension 1 of 2147483648 makes more elements"},
      {"ProductIs2To63", shape({kTwo31, kTwo31, 2}), tensor + "shape",
       "dimension 2 of 2 makes more elements"},
      {"ProductWrapsToFour", shape({kTwo63 + 4, 2}), tensor + "shape", "dimension 0 of"},
      {"NegativeDimension", shape({kMaxU64}), tensor + "shape", "dimension 0 of 184467"},
      {"TwoNegativeDimensions", shape({kMaxU64, kMaxU64}), tensor + "shape", "dimension 0 of"},
      {"BytesAre2To63", shape({kTwo31, uint64_t{1} << 30}), tensor + "shape",
       "more bytes than 63 bits count"},
      {"BytesWrapToSixteen", shape({(uint64_t{1} << 62) + 4}), tensor + "shape",
       "more bytes than 63 bits count"},
      {"RowsWrapToSixteenBytes", shape({4, (uint64_t{1} << 60) + 1}), tensor + "shape",
       "more bytes than 63 bits count"},
      {"BlockBytesOverflow", shape({uint64_t{1} << 62}, 2), tensor + "offset", "needs 2594"},
      {"Q8RowOf31", shape({31, 32}, 8), tensor + "shape",
       "rows of 31 elements are no whole number of blocks, which hold 32 in type q8_0"},
      {"Q8RowOf33", shape({33}, 8), tensor + "shape", "rows of 33 elements"},
      {"Q4RowOf16", shape({16, 2}, 2), tensor + "shape", "hold 32 in type q4_0"},
      {"Q6KRowOf128", shape({128, 2}, 14), tensor + "shape", "hold 256 in type q6_k"},
  };
}

std::vector<HostileCase> OffsetCases() {
  const std::string where = "tensor 't': offset";
  const auto offset = [](uint64_t value) {
    return WithTensor([&](Tensor& t) { t.offset = value; });
  };
  // Two tensors of which the first is spoiled; the data section has 64 bytes.
  const auto two = [](Tensor first, Tensor second) {
    second.name = "u";
    return Spoiled([&](Image& image) { image.tensors = {first, second}; });
  };
  return {
      {"Offset2To40", offset(uint64_t{1} << 40), where,
       "needs 16 bytes at 1099511627776 of a data section of 64 bytes"},
      {"OffsetPlusSizeWraps",
       WithTensor([](Tensor& t) { t.shape = {16}, t.offset = kMaxU64 - 31; }), where,
       "needs 64 bytes at 18446744073709551584"},
      {"OffsetAtEnd", offset(64), where, "needs 16 bytes at 64 of a data section of 64 bytes"},
      {"OffsetMisaligned", offset(16), where, "16 is no multiple of the alignment 32"},
      {"OffsetOdd", offset(1), where, "1 is no multiple of the alignment 32"},
      {"RegionOneByteShort", Spoiled([](Image& i) { i.data_bytes = 15; }), where,
       "needs 16 bytes at 0 of a data section of 15 bytes"},
      {"NoDataSection", Spoiled([](Image& i) { i.data_bytes = 0; }), where,
       "needs 16 bytes at 0 of a data section of 0 bytes"},
      {"UnknownTypeOutside", WithTensor([](Tensor& t) { t.type = 9999, t.offset = 64; }), where,
       "needs 1 bytes at 64 of a data section of 64 bytes"},
      {"SameOffset", two({}, {}), where, "its 16 bytes at 0 run into tensor 'u' at 0"},
      {"RunsIntoNext", two({.shape = {9}}, {.offset = 32}), where,
       "its 36 bytes at 0 run into tensor 'u' at 32"},
      {"RunsIntoNextOutOfOrder", two({.offset = 32}, {.shape = {9}}), "tensor 'u': offset",
       "its 36 bytes at 0 run into tensor 't' at 32"},
      {"UnknownTypeSharesOffset", two({.type = 9999}, {}), where, "run into tensor 'u' at 0"},
      {"SharesOffsetWithUnknownType", two({}, {.type = 9999}), where, "run into tensor 'u' at 0"},
      {"NameTwice", Spoiled([](Image& i) { i.tensors.push_back({.offset = 32}); }), "tensor 't'",
       "occurs twice"},
      {"NameTooLong", WithTensor([](Tensor& t) { t.name = std::string(65536, 't'); }),
       "tensor entry 0: name", "65536 bytes long"},
  };
}

class HostileTest : public testing::TestWithParam<HostileCase> {};

TEST_P(HostileTest, IsRefusedByField) {
  const ParseResult result = Parse(Build(GetParam().image));
  EXPECT_THAT(result.error,
              testing::StartsWith(std::string(kTestFile) + ": " + GetParam().where + ": "));
  EXPECT_THAT(result.error, HasSubstr(GetParam().what));
}

std::string CaseName(const testing::TestParamInfo<HostileCase>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Header, HostileTest, testing::ValuesIn(HeaderCases()), CaseName);
INSTANTIATE_TEST_SUITE_P(Metadata, HostileTest, testing::ValuesIn(MetadataCases()), CaseName);
INSTANTIATE_TEST_SUITE_P(Arrays, HostileTest, testing::ValuesIn(ArrayLengthCases()), CaseName);
INSTANTIATE_TEST_SUITE_P(Alignment, HostileTest, testing::ValuesIn(AlignmentCases()), CaseName);
INSTANTIATE_TEST_SUITE_P(Shapes, HostileTest, testing::ValuesIn(ShapeCases()), CaseName);
INSTANTIATE_TEST_SUITE_P(Offsets, HostileTest, testing::ValuesIn(OffsetCases()), CaseName);

}  // namespace
}  // namespace lockstep
