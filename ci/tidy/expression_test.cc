#include "ci/tidy/expression.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

namespace lockstep::tidy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Its references and calls, "github.ref always/0", or what is wrong.
std::string Read(std::string_view text) {
  const Expression expression = ParseExpression(text);
  if (!expression.error.empty()) return "error: " + expression.error;
  std::string read;
  for (const auto& names : expression.references) read += fmt::format("{} ", fmt::join(names, "."));
  for (const auto& call : expression.calls) {
    read += fmt::format("{}/{} ", call.function, call.arguments);
  }
  return read;
}

TEST(TidyExpressionTest, NamesAndCallsAreRead) {
  EXPECT_EQ(Read(" github.ref "), "github.ref ");
  EXPECT_EQ(Read("always() && a.b != 'it''s }} c.d' || !(x < -1.5e3)"), "a.b x always/0 ");
  EXPECT_EQ(Read("format('{0}', join(github.event.labels.*.name, ', '))"),
            "github.event.labels.*.name join/2 format/2 ");
  EXPECT_EQ(Read("matrix['a-b'].c[github.run_id][0]"), "github.run_id matrix.a-b.c.*.* ");
  EXPECT_EQ(Read("fromJSON(needs.a.outputs.b).c == true && null"), "needs.a.outputs.b fromJSON/1 ");
  EXPECT_EQ(Read("strategy.job-index"), "strategy.job-index ");
}

TEST(TidyExpressionTest, WhatIsNoneIsRefused) {
  EXPECT_THAT(Read(""), HasSubstr("error: it ends where a value is expected"));
  EXPECT_THAT(Read("a ==  "), HasSubstr("error: it ends"));
  EXPECT_THAT(Read("a b"), HasSubstr("error: 'b' is not expected"));
  EXPECT_THAT(Read("a & b"), HasSubstr("error: '& b' is not expected"));
  EXPECT_THAT(Read("(a"), HasSubstr("error: ')' is missing"));
  EXPECT_THAT(Read("f(a"), HasSubstr("error: ')' is missing"));
  EXPECT_THAT(Read("a['b'"), HasSubstr("error: ']' is missing"));
  EXPECT_THAT(Read("a."), HasSubstr("error: a name is missing"));
  EXPECT_THAT(Read("'a"), HasSubstr("error: a text has no end"));
  EXPECT_THAT(Read("a == \"b\""), HasSubstr("error: '\"b\"' is no value"));
}

TEST(TidyExpressionTest, AreFoundInATextToTheirEnd) {
  EXPECT_THAT(*ExpressionsIn("a ${{ b }}/${{c}} ${d}"), ElementsAre(" b ", "c"));
  EXPECT_THAT(*ExpressionsIn("${{ '}}' }}"), ElementsAre(" '}}' "));
  EXPECT_THAT(*ExpressionsIn("a }} $ {{ b }}"), IsEmpty());
  EXPECT_EQ(ExpressionsIn("${{ a }} ${{ b }"), std::nullopt);
}

}  // namespace
}  // namespace lockstep::tidy
