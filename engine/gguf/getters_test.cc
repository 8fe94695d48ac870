// Typed metadata: every kind through every getter, and the edges of each range.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "caches/error.h"
#include "engine/gguf/raw_image.h"
#include "engine/gguf/test_checks.h"

namespace lockstep {
namespace {

using raw::ArrayEntry;
using raw::Entry;
using raw::Number;
using raw::Text;
using testing::ElementsAre;
using Kind = GgufValueType;

constexpr int64_t kLow = std::numeric_limits<int64_t>::min();
constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();
constexpr uint64_t kMaxU64 = std::numeric_limits<uint64_t>::max();

std::shared_ptr<const GgufFile> FileWith(std::vector<std::string> metadata) {
  raw::Image image;
  image.metadata = std::move(metadata);
  const ParseResult result = Parse(Build(image));
  EXPECT_EQ(result.error, "");
  return result.file;
}

std::string Message(const std::function<void()>& get) {
  try {
    get();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

// One key of every kind, named after it.
std::vector<std::string> EveryKind() {
  return {
      Entry("u8", Kind::kUint8, Number(uint8_t{255})),
      Entry("i8", Kind::kInt8, Number(int8_t{-128})),
      Entry("u16", Kind::kUint16, Number(uint16_t{65535})),
      Entry("i16", Kind::kInt16, Number(int16_t{-32768})),
      Entry("u32", Kind::kUint32, Number(uint32_t{0xffffffff})),
      Entry("i32", Kind::kInt32, Number(int32_t{-2147483647 - 1})),
      Entry("u64", Kind::kUint64, Number(kMaxU64)),
      Entry("i64", Kind::kInt64, Number(kLow)),
      Entry("f32", Kind::kFloat32, Number(0.1f)),
      Entry("f64", Kind::kFloat64, Number(0.1)),
      Entry("bool", Kind::kBool, "\1"),
      Entry("string", Kind::kString, Text("text")),
      ArrayEntry("u8s", Kind::kUint8, 2, Number(uint8_t{0}) + Number(uint8_t{255})),
      ArrayEntry("i8s", Kind::kInt8, 1, Number(int8_t{-128})),
      ArrayEntry("u16s", Kind::kUint16, 1, Number(uint16_t{65535})),
      ArrayEntry("i16s", Kind::kInt16, 1, Number(int16_t{-32768})),
      ArrayEntry("u32s", Kind::kUint32, 1, Number(uint32_t{0xffffffff})),
      ArrayEntry("i32s", Kind::kInt32, 1, Number(int32_t{-1})),
      ArrayEntry("u64s", Kind::kUint64, 2, Number(uint64_t{kHigh}) + Number(uint64_t{1} << 63)),
      ArrayEntry("i64s", Kind::kInt64, 2, Number(kLow) + Number(kHigh)),
      ArrayEntry("f32s", Kind::kFloat32, 2, Number(0.1f) + Number(-1.0f)),
      ArrayEntry("f64s", Kind::kFloat64, 1, Number(0.1)),
      ArrayEntry("bools", Kind::kBool, 3, std::string("\1\0\1", 3)),
      ArrayEntry("strings", Kind::kString, 2, Text("a") + Text("b")),
  };
}

TEST(GettersTest, IntegersOfEveryWidth) {
  const auto file = FileWith(EveryKind());
  EXPECT_EQ(file->RequireInt("u8", 0, 255), 255);
  EXPECT_EQ(file->RequireInt("i8", -128, 127), -128);
  EXPECT_EQ(file->RequireInt("u16", 0, 65535), 65535);
  EXPECT_EQ(file->RequireInt("i16", -32768, 0), -32768);
  EXPECT_EQ(file->RequireInt("u32", 0, 0xffffffff), 0xffffffff);
  EXPECT_EQ(file->RequireInt("i32", kLow, 0), -2147483648);
  EXPECT_EQ(file->RequireInt("i64", kLow, kHigh), kLow);
  EXPECT_EQ(file->FindInt("u8", 0, 255), 255);
  EXPECT_EQ(file->FindInt("absent", 0, 255), std::nullopt);
}

TEST(GettersTest, IntegersOutsideTheirRange) {
  const auto file = FileWith({Entry("u", Kind::kUint32, Number(uint32_t{5})),
                              Entry("i", Kind::kInt32, Number(int32_t{-5})),
                              Entry("huge", Kind::kUint64, Number(kMaxU64)),
                              Entry("2to63", Kind::kUint64, Number(uint64_t{1} << 63))});
  const auto get = [&](std::string_view key, int64_t low, int64_t high) {
    const std::string required = Message([&] { file->RequireInt(key, low, high); });
    EXPECT_EQ(required, Message([&] { file->FindInt(key, low, high); }));
    return required;
  };
  EXPECT_EQ(get("u", 5, 5), "accepted");
  EXPECT_EQ(get("u", 1, 4), "dir/test.gguf: metadata key 'u': 5 is not in the range 1 to 4");
  EXPECT_EQ(get("u", 6, 9), "dir/test.gguf: metadata key 'u': 5 is not in the range 6 to 9");
  EXPECT_EQ(get("i", -5, -5), "accepted");
  EXPECT_EQ(get("i", -4, 9), "dir/test.gguf: metadata key 'i': -5 is not in the range -4 to 9");
  EXPECT_EQ(get("i", -9, -6), "dir/test.gguf: metadata key 'i': -5 is not in the range -9 to -6");
  // Neither may turn into -1 or the least integer.
  EXPECT_EQ(get("huge", -1, 1),
            "dir/test.gguf: metadata key 'huge': 18446744073709551615 is not in the range -1 to 1");
  EXPECT_THAT(get("huge", kLow, kHigh), testing::HasSubstr("18446744073709551615 is not in"));
  EXPECT_THAT(get("2to63", kLow, kHigh), testing::HasSubstr("9223372036854775808 is not in"));
}

TEST(GettersTest, OtherValues) {
  const auto file = FileWith(EveryKind());
  EXPECT_EQ(file->RequireFloat("f32"), double{0.1f});
  EXPECT_EQ(file->RequireFloat("f64"), 0.1);
  EXPECT_EQ(file->FindFloat("f64"), 0.1);
  EXPECT_EQ(file->FindBool("bool"), true);
  EXPECT_EQ(file->RequireString("string"), "text");
  EXPECT_EQ(file->FindString("string"), "text");
  EXPECT_THAT(file->RequireStrings("strings"), ElementsAre("a", "b"));
  EXPECT_THAT(file->FindStrings("strings").value(), ElementsAre("a", "b"));
  EXPECT_THAT(file->FindFloats("f32s").value(), ElementsAre(0.1f, -1.0));
  EXPECT_THAT(file->FindFloats("f64s").value(), ElementsAre(0.1));
  EXPECT_THAT(file->FindInts("u8s").value(), ElementsAre(0, 255));
  EXPECT_THAT(file->FindInts("i8s").value(), ElementsAre(-128));
  EXPECT_THAT(file->FindInts("u16s").value(), ElementsAre(65535));
  EXPECT_THAT(file->FindInts("i16s").value(), ElementsAre(-32768));
  EXPECT_THAT(file->FindInts("u32s").value(), ElementsAre(0xffffffff));
  EXPECT_THAT(file->FindInts("i32s").value(), ElementsAre(-1));
  EXPECT_THAT(file->FindInts("i64s").value(), ElementsAre(kLow, kHigh));
  const auto& bools = std::get<std::vector<bool>>(file->metadata().at("bools"));
  EXPECT_EQ(bools, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(Message([&] { file->FindInts("u64s"); }),
            "dir/test.gguf: metadata key 'u64s': element 1 is 9223372036854775808, more than 63 "
            "bits hold");
}

// A getter accepts its own kinds and refuses every other by name: a score array of bytes is not
// read as floats, a layer count that is a string is not a number.
TEST(GettersTest, EveryOtherKindIsRefused) {
  const auto file = FileWith(EveryKind());
  struct Getter {
    std::string wanted;
    std::vector<std::string> own;
    std::function<void(const std::string&)> get;
  };
  const std::vector<std::string> ints = {"u8", "i8", "u16", "i16", "u32", "i32", "i64"};
  const Getter getters[] = {
      {"an integer", ints, [&](const std::string& k) { file->RequireInt(k, kLow, kHigh); }},
      {"an integer", ints, [&](const std::string& k) { file->FindInt(k, kLow, kHigh); }},
      {"a float", {"f32", "f64"}, [&](const std::string& k) { file->RequireFloat(k); }},
      {"a float", {"f32", "f64"}, [&](const std::string& k) { file->FindFloat(k); }},
      {"a bool", {"bool"}, [&](const std::string& k) { file->FindBool(k); }},
      {"a string", {"string"}, [&](const std::string& k) { file->RequireString(k); }},
      {"a string", {"string"}, [&](const std::string& k) { file->FindString(k); }},
      {"an array of strings", {"strings"}, [&](const std::string& k) { file->RequireStrings(k); }},
      {"an array of strings", {"strings"}, [&](const std::string& k) { file->FindStrings(k); }},
      {"an array of floats", {"f32s", "f64s"}, [&](const std::string& k) { file->FindFloats(k); }},
      {"an array of integers",
       {"u8s", "i8s", "u16s", "i16s", "u32s", "i32s", "i64s"},
       [&](const std::string& k) { file->FindInts(k); }},
  };
  for (const Getter& getter : getters) {
    for (const auto& [key, value] : file->metadata()) {
      if (key == "u64" || key == "u64s") continue;  // out of range, above
      const std::string message = Message([&, k = key] { getter.get(k); });
      if (std::ranges::find(getter.own, key) != getter.own.end()) {
        EXPECT_EQ(message, "accepted") << getter.wanted;
      } else {
        EXPECT_THAT(message,
                    testing::StartsWith("dir/test.gguf: metadata key '" + key + "': is a"));
        EXPECT_THAT(message, testing::EndsWith(", not " + getter.wanted));
      }
    }
  }
  EXPECT_EQ(Message([&] { file->FindFloats("u8s"); }),
            "dir/test.gguf: metadata key 'u8s': is an array of unsigned integers, not an array of "
            "floats");
  EXPECT_EQ(Message([&] { file->RequireInt("bool", 0, 1); }),
            "dir/test.gguf: metadata key 'bool': is a bool, not an integer");
}

TEST(GettersTest, AbsentKeys) {
  const auto file = FileWith({});
  EXPECT_EQ(Message([&] { file->RequireInt("absent", 0, 1); }),
            "dir/test.gguf: metadata key 'absent': is missing");
  EXPECT_THAT(Message([&] { file->RequireFloat("absent"); }), testing::EndsWith("is missing"));
  EXPECT_THAT(Message([&] { file->RequireString("absent"); }), testing::EndsWith("is missing"));
  EXPECT_THAT(Message([&] { file->RequireStrings("absent"); }), testing::EndsWith("is missing"));
  EXPECT_EQ(file->FindInt("absent", 0, 1), std::nullopt);
  EXPECT_EQ(file->FindFloat("absent"), std::nullopt);
  EXPECT_EQ(file->FindBool("absent"), std::nullopt);
  EXPECT_EQ(file->FindString("absent"), std::nullopt);
  EXPECT_EQ(file->FindStrings("absent"), std::nullopt);
  EXPECT_EQ(file->FindFloats("absent"), std::nullopt);
  EXPECT_EQ(file->FindInts("absent"), std::nullopt);
}

TEST(GettersTest, FloatsThatAreNoNumbers) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto file = FileWith({
      Entry("nan", Kind::kFloat32, Number(kNan)),
      Entry("inf", Kind::kFloat64, Number(-double{kInfinity})),
      ArrayEntry("nans", Kind::kFloat32, 2, Number(0.0f) + Number(kNan)),
      ArrayEntry("infs", Kind::kFloat32, 1, Number(kInfinity)),
  });
  EXPECT_EQ(Message([&] { file->RequireFloat("nan"); }),
            "dir/test.gguf: metadata key 'nan': nan is not finite");
  EXPECT_EQ(Message([&] { file->FindFloat("inf"); }),
            "dir/test.gguf: metadata key 'inf': -inf is not finite");
  EXPECT_EQ(Message([&] { file->FindFloats("nans"); }),
            "dir/test.gguf: metadata key 'nans': element 1 is no number");
  EXPECT_THAT(file->FindFloats("infs").value(), ElementsAre(kInfinity));
}

}  // namespace
}  // namespace lockstep
