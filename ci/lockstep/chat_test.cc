// `lockstep chat`, as someone types into it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>

#include "caches/file_io.h"
#include "caches/temporary_folder.h"

namespace lockstep::cli {
namespace {

using testing::HasSubstr;

struct Talk {
  int exit_code = -1;
  std::string out, err;
};

Talk Chat(const std::string& lines, const std::string& flags) {
  const TemporaryFolder folder;
  WriteWholeTextFile(folder.File("in"), lines);
  const std::string command = LOCKSTEP_BINARY " chat --synthetic tiny-gqa-9x3-q8_0 -n 6 " + flags +
                              " < " + folder.File("in") + " > " + folder.File("out") + " 2> " +
                              folder.File("err");
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadWholeTextFile(folder.File("out")),
          ReadWholeTextFile(folder.File("err"))};
}

TEST(ChatCommandTest, TurnsFeedOnlyWhatIsNew) {
  const Talk talk = Chat("Hello there\nAnd then?\n/reset\nHello there\n", "--template llama2");
  EXPECT_EQ(talk.exit_code, 0) << talk.err;
  EXPECT_THAT(talk.err, HasSubstr("template llama2"));
  EXPECT_THAT(talk.err, HasSubstr("[0 tokens kept"));
  EXPECT_EQ(std::ranges::count(talk.err, '['), 3) << talk.err;
  // The second turn keeps the first; the third, begun anew, what both conversations begin with.
  const size_t second = talk.err.find('[', talk.err.find('[') + 1);
  EXPECT_NE(talk.err.substr(second, 9), "[0 tokens");
  // What was kept changes no answer.
  const Talk fresh = Chat("Hello there\n", "--template llama2");
  EXPECT_TRUE(talk.out.starts_with(fresh.out));
  EXPECT_TRUE(talk.out.ends_with(fresh.out)) << talk.out;
  for (const char* flags : {"--cache paged/4", "--isa scalar --threads 3", "--cache paged/1"}) {
    EXPECT_EQ(Chat("Hello there\nAnd then?\n/reset\nHello there\n",
                   std::string("--template llama2 ") + flags)
                  .out,
              talk.out)
        << flags;
  }
}

TEST(ChatCommandTest, TheSeedOfEachTurnAndItsLogProbabilitiesAreSaid) {
  const Talk plain = Chat("Hello there\nAnd then?\n", "--template llama2 --sample-seed 41");
  EXPECT_THAT(plain.err, HasSubstr(", sample seed 41]"));
  EXPECT_THAT(plain.err, HasSubstr(", sample seed 42]"));
  EXPECT_THAT(plain.err, testing::Not(HasSubstr("\ntoken ")));
  const Talk talk = Chat("Hello there\nAnd then?\n", "--template llama2 --logprobs 2");
  EXPECT_EQ(talk.out, plain.out) << "greedy";
  size_t lines = 0;
  for (size_t at = 0; (at = talk.err.find("\ntoken ", at)) != talk.err.npos; ++at) ++lines;
  EXPECT_EQ(lines, 12u) << talk.err;
  EXPECT_EQ(std::ranges::count(talk.err, '|'), 24) << talk.err;
}

TEST(ChatCommandTest, AFullContextIsSaidAndNothingIsLost) {
  const std::string longer(300, 'x');
  const Talk talk = Chat("Hello\n" + longer + "\nHello again\n", "--template llama2 --context 80");
  EXPECT_EQ(talk.exit_code, 2);
  EXPECT_THAT(talk.err, HasSubstr("do not fit a context of 80 (say /reset"));
  const Talk without = Chat("Hello\nHello again\n", "--template llama2 --context 80");
  EXPECT_EQ(without.exit_code, 0) << without.err;
  EXPECT_EQ(talk.out, without.out);
}

TEST(ChatCommandTest, TemplatesThatDoNotFitAreRefused) {
  EXPECT_THAT(Chat("x\n", "").err, HasSubstr("'tokenizer.chat_template': it is missing"));
  EXPECT_THAT(Chat("x\n", "--template none").err, HasSubstr("choose one of chatml"));
  const Talk other = Chat("x\n", "--template chatml");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("has no token '<|im_end|>'"));
}

}  // namespace
}  // namespace lockstep::cli
