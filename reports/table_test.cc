#include "reports/table.h"

#include <gtest/gtest.h>

#include "caches/error.h"

namespace lockstep {
namespace {

const Table kTable = {{"what", "tokens/s"}, {{"prefill 128", "1.5"}, {"x", "123.25"}}};

TEST(TableTest, TextAlignsColumns) {
  EXPECT_EQ(TableText(kTable),
            "what         tokens/s\n"
            "prefill 128       1.5\n"
            "x              123.25\n");
}

TEST(TableTest, Markdown) {
  EXPECT_EQ(TableMarkdown(kTable),
            "| what | tokens/s |\n|---|---:|\n| prefill 128 | 1.5 |\n| x | 123.25 |\n");
}

TEST(TableTest, SectionsAreReplacedWhereTheyStand) {
  std::string page = ReplaceSection("# Title\n", "a", "old\n");
  EXPECT_EQ(page, "# Title\n\n<!-- begin a -->\nold\n<!-- end a -->\n");
  page = ReplaceSection(page, "b", "other\n");
  page = ReplaceSection(page, "a", "new\n");
  EXPECT_EQ(page,
            "# Title\n\n<!-- begin a -->\nnew\n<!-- end a -->\n"
            "\n<!-- begin b -->\nother\n<!-- end b -->\n");
  EXPECT_THROW(ReplaceSection("<!-- begin a -->\n", "a", ""), Error);
  EXPECT_THROW(ReplaceSection("<!-- end a -->\n<!-- begin a -->\n", "a", ""), Error);
}

}  // namespace
}  // namespace lockstep
