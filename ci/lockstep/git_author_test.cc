#include "ci/lockstep/git_author.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>

#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/temporary_folder.h"

namespace lockstep::cli {
namespace {

using testing::HasSubstr;

// An empty folder outside any checkout, and an environment that says nothing of an author.
class GitAuthorTest : public testing::Test {
 protected:
  GitAuthorTest() {
    for (const char* variable : {"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE", "EMAIL",
                                 "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "SOURCE_DATE_EPOCH"}) {
      const char* value = std::getenv(variable);
      before_[variable] = value == nullptr ? std::nullopt : std::optional<std::string>(value);
      ::unsetenv(variable);
    }
    ::setenv("GIT_CONFIG_NOSYSTEM", "1", 1);
    ::setenv("GIT_CONFIG_GLOBAL", (folder_ + "/gitconfig").c_str(), 1);
  }
  ~GitAuthorTest() override {
    for (const auto& [name, value] : before_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
  }

  void Configure(const std::string& text) { WriteWholeTextFile(folder_ + "/gitconfig", text); }

  std::string Message() {
    try {
      return AskGitForAuthor(folder_).author;
    } catch (const Error& error) {
      return error.what();
    }
  }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  std::map<std::string, std::optional<std::string>> before_;
};

TEST_F(GitAuthorTest, IsTheOneOfTheConfiguration) {
  Configure("[user]\nname = Ada O'Neill Ü\nemail = ada@example.org\n");
  ::setenv("GIT_AUTHOR_DATE", "1796032800 +0200", 1);
  const GitAuthor author = AskGitForAuthor(folder_);
  EXPECT_EQ(author.author, "Ada O'Neill Ü <ada@example.org>");
  EXPECT_EQ(author.date, "2026-11-30T10:00:00Z");
}

TEST_F(GitAuthorTest, IsTheOneOfTheEnvironment) {
  Configure("[user]\nname = Ada\nemail = ada@example.org\n");
  ::setenv("GIT_AUTHOR_NAME", "Bob", 1);
  EXPECT_EQ(AskGitForAuthor(folder_).author, "Bob <ada@example.org>");
}

TEST_F(GitAuthorTest, NobodyIsAnErrorThatSaysWhatToDo) {
  EXPECT_THAT(Message(), HasSubstr("git config user.name NAME"));
  Configure("[user]\nname = Ada\n");  // and no address: git would guess one
  EXPECT_THAT(Message(), HasSubstr("git config user.name NAME"));
}

TEST_F(GitAuthorTest, TheDateCanBeGiven) {
  Configure("[user]\nname = Ada\nemail = ada@example.org\n");
  ::setenv("SOURCE_DATE_EPOCH", "0", 1);
  EXPECT_EQ(AskGitForAuthor(folder_).date, "1970-01-01T00:00:00Z");
  for (const char* wrong : {"-1", "1.5", "yesterday", " 1", "253402300800"}) {
    ::setenv("SOURCE_DATE_EPOCH", wrong, 1);
    EXPECT_THAT(Message(), HasSubstr("SOURCE_DATE_EPOCH: '")) << wrong;
  }
}

}  // namespace
}  // namespace lockstep::cli
