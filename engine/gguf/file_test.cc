// Opening: what can be wrong with the file before its first byte is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "caches/error.h"
#include "caches/temporary_folder.h"
#include "engine/gguf.h"

namespace lockstep {
namespace {

class GgufFileTest : public testing::Test {
 protected:
  std::string PathOf(const std::string& name) const { return folder_.File(name); }

  std::string Write(const std::string& name, const std::vector<std::byte>& bytes) const {
    std::ofstream out(PathOf(name), std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    EXPECT_TRUE(out.good());
    return PathOf(name);
  }

  static std::string Message(const std::string& path) {
    try {
      GgufFile::Open(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.parts().where.substr(0, path.size()), path);
      return std::string(error.what()).substr(path.size());
    }
    return "accepted";
  }

  const TemporaryFolder folder_;
};

std::vector<std::byte> SmallImage() {
  GgufWriter writer;
  writer.AddString("general.name", "small");
  writer.AddTensor("t", GgmlType::kF32, {2}, std::vector<std::byte>(8, std::byte{9}));
  return writer.Finish();
}

TEST_F(GgufFileTest, MapsWhatFromBytesKeeps) {
  const std::vector<std::byte> image = SmallImage();
  const std::string path = Write("small.gguf", image);
  const auto mapped = GgufFile::Open(path);
  const auto kept = GgufFile::FromBytes(image, "kept");
  for (const auto& file : {mapped, kept}) {
    EXPECT_EQ(file->RequireString("general.name"), "small");
    EXPECT_THAT(file->bytes(), testing::ElementsAreArray(image));
    const GgufTensor& tensor = file->tensors().at(0);
    EXPECT_THAT(tensor.data, testing::ElementsAreArray(std::vector<std::byte>(8, std::byte{9})));
    EXPECT_GE(tensor.data.data(), file->bytes().data());
  }
  EXPECT_EQ(mapped->path(), path);
  EXPECT_EQ(kept->path(), "kept");
}

TEST_F(GgufFileTest, AMappedFileMayBeUnlinked) {
  const std::string path = Write("small.gguf", SmallImage());
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(std::filesystem::remove(path));
  EXPECT_EQ(file->tensors().at(0).data.back(), std::byte{9});
}

TEST_F(GgufFileTest, WhatCannotBeOpened) {
  EXPECT_EQ(Message(PathOf("absent.gguf")), ": cannot open the file: No such file or directory");
  EXPECT_EQ(Message(folder_.path().string()), ": is not a regular file");
  EXPECT_EQ(Message(Write("empty.gguf", {})), ": the file is empty");
  ASSERT_EQ(::mkfifo(PathOf("pipe").c_str(), 0600), 0);
  EXPECT_EQ(Message(PathOf("pipe")), ": is not a regular file");
  EXPECT_EQ(Message("/dev/null"), ": is not a regular file");
}

TEST_F(GgufFileTest, ErrorsInsideAFileNameItsPath) {
  EXPECT_EQ(
      Message(Write("one.gguf", {std::byte{'G'}})),
      ": magic: needs 4 bytes at byte 0, but only 1 remain (the file is truncated or damaged)");
  std::vector<std::byte> image = SmallImage();
  image.resize(image.size() - 25);
  EXPECT_EQ(Message(Write("short.gguf", image)),
            ": tensor 't': offset: needs 8 bytes at 0 of a data section of 7 bytes (the file is "
            "truncated or damaged)");
}

}  // namespace
}  // namespace lockstep
