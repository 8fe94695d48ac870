#include "caches/file_io.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "caches/error.h"
#include "caches/temporary_folder.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::vector<std::byte> Bytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// A directory of its own for each test, removed at the end.
class FileIoTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return directory_ / name; }

  size_t FilesInDirectory() const {
    const std::filesystem::directory_iterator files(directory_);
    return static_cast<size_t>(std::distance(begin(files), end(files)));
  }

  std::string MessageOfWrite(const std::string& path) {
    try {
      WriteWholeFile(path, Bytes("new"));
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  std::string MessageOfRead(const std::string& path) {
    try {
      ReadWholeFile(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  const TemporaryFolder temporary_;
  const std::filesystem::path directory_ = temporary_.path();
};

TEST_F(FileIoTest, WhatIsWrittenIsReadAndReplaced) {
  for (const std::string text : {"some", "", "longer than before"}) {
    WriteWholeFile(Path("file"), Bytes(text));
    EXPECT_EQ(ReadWholeFile(Path("file")), Bytes(text));
    EXPECT_EQ(FilesInDirectory(), 1u);
  }
}

TEST_F(FileIoTest, StaleTemporaryFilesOfOthersAreLeftAlone) {
  std::ofstream(Path("file.0.tmp")) << "somebody's";
  WriteWholeFile(Path("file"), Bytes("new"));
  EXPECT_EQ(ReadWholeFile(Path("file")), Bytes("new"));
  EXPECT_EQ(ReadWholeFile(Path("file.0.tmp")), Bytes("somebody's"));
  EXPECT_EQ(FilesInDirectory(), 2u);
}

TEST_F(FileIoTest, AHundredStaleTemporaryFilesAreTooMany) {
  for (int i = 0; i < 99; ++i) std::ofstream(Path("file." + std::to_string(i) + ".tmp"));
  WriteWholeFile(Path("file"), Bytes("new"));
  std::ofstream(Path("file.99.tmp"));
  EXPECT_THAT(MessageOfWrite(Path("file")), testing::AllOf(testing::StartsWith(Path("file") + ": "),
                                                           HasSubstr("temporary file")));
  EXPECT_EQ(ReadWholeFile(Path("file")), Bytes("new"));
  EXPECT_EQ(FilesInDirectory(), 101u);
}

// As in a program that was started with its standard input closed.
TEST_F(FileIoTest, DescriptorZeroIsOneAsAnyOther) {
  const int input = ::dup(STDIN_FILENO);
  ASSERT_GE(input, 0);
  ::close(STDIN_FILENO);
  WriteWholeFile(Path("file"), Bytes("new"));
  EXPECT_EQ(ReadWholeFile(Path("file")), Bytes("new"));
  EXPECT_EQ(::fcntl(STDIN_FILENO, F_GETFD), -1) << "it was left open";
  ASSERT_EQ(::dup2(input, STDIN_FILENO), STDIN_FILENO);
  ::close(input);
}

TEST_F(FileIoTest, AWriteThatFailsHalfwayLosesNothing) {
  WriteWholeFile(Path("file"), Bytes("old"));
  const std::vector<std::byte> big(100000);
  struct rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {.rlim_cur = 5000, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(WriteWholeFile(Path("file"), big), Error);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(ReadWholeFile(Path("file")), Bytes("old"));
  EXPECT_EQ(FilesInDirectory(), 1u);
}

// A file that holds less than its size says, as one does that is cut while it is read, is what it
// holds. The kernel has such files for good.
TEST_F(FileIoTest, AFileThatEndsBeforeItsSizeIsWhatItHolds) {
  const std::string path = "/sys/devices/system/cpu/online";
  if (!std::filesystem::is_regular_file(path)) GTEST_SKIP() << "no " << path;
  const std::string text = ReadWholeTextFile(path);
  EXPECT_EQ(text.front(), '0') << text;
  EXPECT_EQ(text.back(), '\n') << text;
  EXPECT_LT(text.size(), std::filesystem::file_size(path));
}

TEST_F(FileIoTest, ErrorsNameTheFileAndTheRemedy) {
  EXPECT_THAT(MessageOfWrite(Path("none/file")),
              AllOf(HasSubstr(Path("none/file")), HasSubstr("No such file"),
                    HasSubstr("a directory that exists")));
  std::filesystem::create_directory(Path("directory"));
  EXPECT_THAT(MessageOfWrite(Path("directory")), HasSubstr("not a regular file"));
  EXPECT_THAT(MessageOfRead(Path("none")),
              AllOf(HasSubstr(Path("none")), HasSubstr("a file that")));
  EXPECT_THAT(MessageOfRead(Path("directory")), HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(MessageOfRead(Path("pipe")), HasSubstr("not a regular file"));
  EXPECT_THAT(MessageOfWrite(Path("pipe")), HasSubstr("not a regular file"));
  EXPECT_THAT(MessageOfWrite(""), HasSubstr("cannot"));
}

}  // namespace
}  // namespace lockstep
