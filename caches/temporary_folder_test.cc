#include "caches/temporary_folder.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "caches/error.h"
#include "caches/file_io.h"

namespace lockstep {
namespace {

TEST(TemporaryFolderTest, EachIsEmptyItsOwnAndGoneWithItsFiles) {
  std::filesystem::path path;
  {
    const TemporaryFolder one, other;
    path = one.path();
    EXPECT_NE(one.path(), other.path());
    EXPECT_TRUE(std::filesystem::is_empty(path));
    WriteWholeTextFile(one.File("file"), "text");
    std::filesystem::create_directories(path / "a" / "b");
    EXPECT_TRUE(std::filesystem::is_empty(other.path()));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(TemporaryFolderTest, AFullOrReadOnlyPlaceIsAnErrorWithItsName) {
  const TemporaryFolder outer;
  WriteWholeTextFile(outer.File("file"), "no folder");
  const char* set = ::getenv("TMPDIR");
  const std::string before = set == nullptr ? "" : set;
  ::setenv("TMPDIR", outer.File("file").c_str(), 1);
  EXPECT_THROW(TemporaryFolder(), Error);
  if (set == nullptr) {
    ::unsetenv("TMPDIR");
  } else {
    ::setenv("TMPDIR", before.c_str(), 1);
  }
}

}  // namespace
}  // namespace lockstep
