#include "properties/script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "caches/error.h"
#include "caches/random.h"
#include "caches/registry.h"
#include "properties/script_builder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kText =
    "cache paged/4 layers=2 heads=1 dim=3 max=13 blocks=5\n"
    "update layer=1 at=0..3,7,7,6 rows=9 extra_keys=-1\n"
    "reserve at=none\n"
    "write rows=3\n"
    "commit at=-1..1,2147483647\n"
    "abandon layer=1\n"
    "rollback to=2\n"
    "clear\nfork\nend\nswitch to=1\nsave\nrestore\n"
    "read layer=1 to=-2147483648\n";

std::string ErrorOf(std::string_view text) {
  try {
    ParseScript(text, "case.script");
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(ScriptTextTest, ReadsAndWritesEveryOperationAndField) {
  const CacheScript script = ParseScript(kText, "case.script");
  EXPECT_EQ(script.cache, "paged/4");
  EXPECT_EQ(script.geometry, (KvGeometry{2, 1, 3, 13}));
  EXPECT_EQ(script.blocks, 5);
  ASSERT_EQ(script.ops.size(), static_cast<size_t>(kScriptOpKinds));
  EXPECT_EQ(script.ops[0].positions, (std::vector<int32_t>{0, 1, 2, 3, 7, 7, 6}));
  EXPECT_EQ(script.ops[0].extra_keys, -1);
  EXPECT_EQ(script.ops[3].positions, (std::vector<int32_t>{-1, 0, 1, INT32_MAX}));
  EXPECT_EQ(ScriptText(script), kText);
}

TEST(ScriptTextTest, CommentsBlankLinesAndCarriageReturnsAreLegal) {
  const CacheScript script =
      ParseScript("# why\n\ncache simple layers=1 heads=1 dim=1 max=2 # one\r\n clear\t# two", "x");
  EXPECT_EQ(script.ops.size(), 1u);
}

TEST(ScriptTextTest, ErrorsNameFileAndLine) {
  const std::string head = "cache simple layers=1 heads=1 dim=1 max=2\n";
  EXPECT_THAT(ErrorOf(""), HasSubstr("has no line 'cache NAME"));
  EXPECT_THAT(ErrorOf("update at=0"), HasSubstr("case.script, line 1"));
  EXPECT_THAT(ErrorOf("cache simple layer=1"), HasSubstr("unknown field 'layer'"));
  EXPECT_THAT(ErrorOf(head + "frobnicate"), HasSubstr("line 2: unknown operation 'frobnicate'"));
  EXPECT_THAT(ErrorOf(head + "update at=3..1"), HasSubstr("'3..1' is no rising range"));
  EXPECT_THAT(ErrorOf(head + "update at=0..2147483647"), HasSubstr("is no rising range"));
  EXPECT_THAT(ErrorOf(head + "update at=1,"), HasSubstr("'' is no 32-bit number"));
  EXPECT_THAT(ErrorOf(head + "update at=2147483648"), HasSubstr("is no 32-bit number"));
  EXPECT_THAT(ErrorOf(head + "update at"), HasSubstr("'at' is no field=value"));
  EXPECT_THAT(ErrorOf(head + "rollback by=2"), HasSubstr("unknown field 'by'"));
}

TEST(ScriptJsonTest, ErrorsNameTheField) {
  const auto error = [](std::string_view json) -> std::string {
    try {
      ParseScriptJson(json, "case.json");
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error("[]"), HasSubstr("is no JSON object"));
  EXPECT_THAT(error("{"), HasSubstr("is no JSON object"));
  EXPECT_THAT(error(R"({"layers": 1.5})"), HasSubstr("'layers': is no integer"));
  EXPECT_THAT(error(R"({"max": 4294967296})"), HasSubstr("does not fit 32 bits"));
  EXPECT_THAT(error(R"({"ops": [{"at": [0]}]})"), HasSubstr("'op': is missing"));
  EXPECT_THAT(error(R"({"ops": [{"op": "updte"}]})"), HasSubstr("'op': is unknown"));
  EXPECT_THAT(error(R"({"color": 1})"), HasSubstr("'color'"));
}

TEST(ScriptTest, TextAndJsonGiveBackEveryGeneratedScript) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const CacheScript script = GenerateScript("paged/4", seed, 30);
    ASSERT_EQ(ParseScript(ScriptText(script), "text"), script) << ScriptText(script);
    ASSERT_EQ(ParseScriptJson(ScriptJson(script), "json"), script) << ScriptJson(script);
  }
}

TEST(ScriptTest, WindowsOfTheLayersAreFieldsOfTheFirstLine) {
  constexpr std::string_view kRing =
      "cache ring/model+3 layers=2 heads=1 dim=1 max=9 window=4 full_interval=2\nclear\n";
  const CacheScript script = ParseScript(kRing, "x");
  EXPECT_EQ(script.geometry.window_of(0), 4);
  EXPECT_EQ(script.geometry.window_of(1), 0);
  EXPECT_EQ(ScriptText(script), kRing);
  EXPECT_EQ(ParseScriptJson(ScriptJson(script), "json"), script);
  EXPECT_THAT(ScriptJson(GenerateScript("simple", 7, 5)), testing::Not(HasSubstr("window")));
}

// Rings that take the windows of the geometry get some, all operations the same; others get none.
TEST(ScriptBytesTest, WindowsTakeNoBytes) {
  Random random(12);
  std::set<int32_t> windows, intervals;
  for (int i = 0; i < 500; ++i) {
    std::vector<std::byte> bytes(20 + random.Below(60));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Below(256));
    CacheScript ring = DecodeScript("ring/model+3", bytes);
    const CacheScript simple = DecodeScript("simple", bytes);
    ASSERT_EQ(simple.geometry.window, 0);
    windows.insert(ring.geometry.window);
    intervals.insert(ring.geometry.full_interval);
    ring.geometry.window = ring.geometry.full_interval = 0;
    ring.cache = "simple";
    ASSERT_EQ(ring, simple);
  }
  EXPECT_THAT(windows, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(intervals, testing::ElementsAre(0, 2));
}

TEST(ScriptTest, TheSameSeedIsTheSameScript) {
  EXPECT_EQ(GenerateScript("simple", 7, 50), GenerateScript("simple", 7, 50));
  EXPECT_NE(GenerateScript("simple", 7, 50), GenerateScript("simple", 8, 50));
}

TEST(ScriptBytesTest, EveryByteStringIsALegalScript) {
  Random random(11);
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::byte> bytes(random.Below(200));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Below(256));
    const CacheScript script = DecodeScript("quantized/q8_0+q4_0/w4", bytes);
    ASSERT_GT(script.geometry.max_length, 0);
    ASSERT_EQ(script.geometry.head_dim % 32, 0);
    ASSERT_EQ(ParseScript(ScriptText(script), "text"), script);
    ASSERT_LE(script.ops.size(), 10 * bytes.size() + 1);
  }
  EXPECT_TRUE(DecodeScript("simple", {}).ops.empty());
}

TEST(RowValuesTest, KeysAndValuesShareNoOrdinaryValueAndNoTwoRowsAreEqual) {
  const KvGeometry geometry{2, 2, 3, 8};
  const std::vector<int32_t> positions = {4, 5, 6};
  const ScriptRows rows = RowValues(geometry, 4, 1, positions);
  ASSERT_EQ(rows.keys.size(), 18u);
  for (float key : rows.keys) EXPECT_GT(key, 0.0f);
  for (float value : rows.values) EXPECT_LT(value, 0.0f);
  EXPECT_NE(RowValues(geometry, 4, 0, positions).keys, rows.keys) << "layers look alike";
  EXPECT_NE(RowValues(geometry, 5, 1, positions).keys, rows.keys) << "seeds look alike";
  std::vector<float> sorted = rows.keys;
  std::ranges::sort(sorted);
  EXPECT_EQ(std::ranges::adjacent_find(sorted), sorted.end());
}

}  // namespace
}  // namespace lockstep
