#include "ci/lockstep/cli.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "caches/error.h"

namespace lockstep::cli {
namespace {

// A command with a flag of every kind, and what running it does.
class CliTest : public testing::Test {
 protected:
  struct Result {
    int code;
    std::string out;
    std::string err;
  };

  Result Call(const std::vector<std::string>& args) {
    const Command command = {"try",
                             "Try the flags",
                             {
                                 {"--switch", "", "a switch", &on_},
                                 {"--text", "TEXT", "a text", &text_, true},
                                 {"--item", "NAME", "a list", &items_},
                                 {"-n,--number", "N", "a number", IntTarget{&number_, 1, 100}},
                                 {"--usual", "N", "a number", IntTarget{&usual_, 1, 100}},
                                 {"--seed", "SEED", "a seed", &seed_},
                             },
                             [this] {
                               ++runs_;
                               return body_();
                             },
                             "More of it."};
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = Main(std::span(&command, 1), args);
    std::string out = testing::internal::GetCapturedStdout();
    return {code, std::move(out), testing::internal::GetCapturedStderr()};
  }

  // Wrong use: exit code 2, one line on standard error that has every given part, nothing run.
  void ExpectRefused(const std::vector<std::string>& args,
                     const std::vector<std::string_view>& parts) {
    SCOPED_TRACE(testing::PrintToString(args));
    const Result result = Call(args);
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(runs_, 0);
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(result.err.starts_with("lockstep: error: ")) << result.err;
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
    for (const std::string_view part : parts) {
      EXPECT_NE(result.err.find(part), std::string::npos) << result.err << " lacks " << part;
    }
  }

  // Commands below a command, with words that have their place.
  Result CallNested(const std::vector<std::string>& args) {
    const std::vector<Command> commands = {
        {.name = "outer",
         .summary = "Two below it",
         .flags = {},
         .run = {},
         .subcommands = {
             {.name = "first",
              .summary = "Takes words",
              .flags = {{"word", "WORD", "words", &items_}, {"--switch", "", "a switch", &on_}},
              .run =
                  [this] {
                    ++runs_;
                    return body_();
                  }},
             {.name = "second", .summary = "Is not run", .flags = {}, .run = {}}}}};
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = Main(commands, args);
    std::string out = testing::internal::GetCapturedStdout();
    return {code, std::move(out), testing::internal::GetCapturedStderr()};
  }

  bool on_ = false;
  std::string text_ = "preset";
  std::vector<std::string> items_;
  int32_t number_ = 7;
  int32_t usual_ = 0;
  uint64_t seed_ = 9;
  int runs_ = 0;
  std::function<ExitCode()> body_ = [] { return ExitCode::kHolds; };
};

TEST_F(CliTest, FillsEveryKindOfFlag) {
  EXPECT_EQ(Call({"try", "--switch", "--text", "a b", "--item", "x", "-n", "100", "--item", "y",
                  "--seed", "0xffffffffffffffff"})
                .code,
            0);
  EXPECT_EQ(runs_, 1);
  EXPECT_TRUE(on_);
  EXPECT_EQ(text_, "a b");
  EXPECT_EQ(items_, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(number_, 100);
  EXPECT_EQ(seed_, UINT64_MAX);
}

TEST_F(CliTest, DefaultsStay) {
  EXPECT_EQ(Call({"try", "--text", "x"}).code, 0);
  EXPECT_FALSE(on_);
  EXPECT_TRUE(items_.empty());
  EXPECT_EQ(number_, 7);
  EXPECT_EQ(seed_, 9u);
}

TEST_F(CliTest, TextArrivesByteForByte) {
  for (const std::string text : {"",    " ",     "\"quoted\"",  "'q'",      "[a,b]",
                                 "{x}", "-x",    "--",          "--switch", "try",
                                 "a=b", "%TIME", "line\nbreak", "tab\t",    "\xc3\xa4\xff\xfe",
                                 "-1",  "#",     "\\n",         "/s",       "++"}) {
    EXPECT_EQ(Call({"try", "--text", text}).code, 0) << text;
    EXPECT_EQ(text_, text);
  }
  EXPECT_EQ(Call({"try", "--text=a=b"}).code, 0);
  EXPECT_EQ(text_, "a=b");
  EXPECT_EQ(Call({"try", "--text", "x", "--item", "[a,b]"}).code, 0);
  EXPECT_EQ(items_, (std::vector<std::string>{"[a,b]"}));
}

TEST_F(CliTest, NumbersAreWholeDecimalAndInRange) {
  for (const std::string text : {"0", "-1", "101", "2147483648", "99999999999999999999", "1.5",
                                 "1e2", "0x10", " 5", "5 ", "+5", "five", "", "5,6", "[5]"}) {
    ExpectRefused({"try", "--text", "x", "-n", text},
                  {"-n,--number", "'" + text + "'", "from 1 to 100"});
  }
  for (const std::string text : {"1", "100", "007"}) {
    EXPECT_EQ(Call({"try", "--text", "x", "-n", text}).code, 0) << text;
  }
}

TEST_F(CliTest, SeedsAreDecimalOrHexadecimal) {
  for (const std::string text :
       {"-1", "18446744073709551616", "0x10000000000000000", "0x", "x", "", "ff", "1.0", "0x-1"}) {
    ExpectRefused({"try", "--text", "x", "--seed", text}, {"--seed", "'" + text + "'"});
  }
  EXPECT_EQ(Call({"try", "--text", "x", "--seed", "18446744073709551615"}).code, 0);
  EXPECT_EQ(seed_, UINT64_MAX);
  EXPECT_EQ(Call({"try", "--text", "x", "--seed", "0x1F"}).code, 0);
  EXPECT_EQ(seed_, 31u);
}

TEST_F(CliTest, WrongUse) {
  ExpectRefused({}, {"command line", "--help"});
  ExpectRefused({"unknown"}, {"unknown", "--help"});
  ExpectRefused({"try"}, {"--text", "lockstep try --help"});
  ExpectRefused({"try", "--text"}, {"--text"});
  ExpectRefused({"try", "--text", "x", "--nope"}, {"--nope"});
  ExpectRefused({"try", "--text", "x", "-z"}, {"-z"});
  ExpectRefused({"try", "--text", "x", "extra"}, {"extra"});
  ExpectRefused({"try", "--text", "x", "--text", "y"}, {"--text"});
  ExpectRefused({"try", "--text", "x", "-n", "1", "--number", "2"}, {"--number"});
  ExpectRefused({"try", "--text", "x", "--item"}, {"--item"});
  ExpectRefused({"--switch"}, {"--switch"});
  ExpectRefused({"try", "--text", "x", "try", "--text", "y"}, {});
}

TEST_F(CliTest, CommandsBelowACommand) {
  EXPECT_EQ(CallNested({"outer", "first", "a", "b", "--switch", "c"}).code, 0);
  EXPECT_EQ(items_, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(on_);
  EXPECT_EQ(runs_, 1);
  body_ = [] { return ExitCode::kDifference; };
  EXPECT_EQ(CallNested({"outer", "first"}).code, 1);

  Result result = CallNested({"outer"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("first, second; see lockstep outer --help"), std::string::npos)
      << result.err;
  result = CallNested({"outer", "third"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("'third' is no subcommand"), std::string::npos) << result.err;
  result = CallNested({"outer", "first", "--nope"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("see lockstep outer first --help"), std::string::npos) << result.err;
  result = CallNested({"--help"});
  EXPECT_NE(result.out.find("Two below it"), std::string::npos) << result.out;
  result = CallNested({"outer", "--help"});
  EXPECT_EQ(result.code, 0);
  EXPECT_NE(result.out.find("Takes words"), std::string::npos) << result.out;
  result = CallNested({"outer", "first", "--help"});
  EXPECT_EQ(result.code, 0);
  EXPECT_NE(result.out.find("--switch"), std::string::npos) << result.out;
  EXPECT_EQ(runs_, 2);
}

TEST_F(CliTest, HelpAndVersionGoToStandardOutput) {
  Result result = Call({"--help"});
  EXPECT_EQ(result.code, 0);
  EXPECT_NE(result.out.find("Exit codes"), std::string::npos);
  EXPECT_NE(result.out.find("Try the flags"), std::string::npos);
  result = Call({"try", "--help"});
  EXPECT_EQ(result.code, 0);
  EXPECT_NE(result.out.find("-n,--number"), std::string::npos);
  EXPECT_NE(result.out.find("(default: 7)"), std::string::npos);
  EXPECT_EQ(result.out.find("(default: 0)"), std::string::npos);  // it cannot be given
  EXPECT_NE(result.out.find("More of it."), std::string::npos);
  EXPECT_NE(result.out.find("Exit codes"), std::string::npos);
  result = Call({"--version"});
  EXPECT_EQ(result.code, 0);
  EXPECT_TRUE(result.out.starts_with("lockstep ")) << result.out;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(runs_, 0);
}

TEST_F(CliTest, ExitCodeIsTheCommands) {
  for (const ExitCode code : {ExitCode::kHolds, ExitCode::kDifference, ExitCode::kInconclusive}) {
    body_ = [code] { return code; };
    EXPECT_EQ(Call({"try", "--text", "x"}).code, static_cast<int>(code));
  }
}

TEST_F(CliTest, ExceptionsBecomeASentenceAndACode) {
  body_ = []() -> ExitCode { throw Error({"a file", "is\nbroken", "mend it"}); };
  Result result = Call({"try", "--text", "x"});
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err, "lockstep: error: a file: is broken (mend it)\n");

  body_ = []() -> ExitCode { throw std::bad_alloc(); };
  result = Call({"try", "--text", "x"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("memory"), std::string::npos) << result.err;

  body_ = []() -> ExitCode { throw std::out_of_range("position 9"); };
  result = Call({"try", "--text", "x"});
  EXPECT_EQ(result.code, 4);
  EXPECT_EQ(result.err, "lockstep: internal error: position 9\n");
}

}  // namespace
}  // namespace lockstep::cli
