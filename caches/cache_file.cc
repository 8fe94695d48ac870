#include "caches/cache_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "caches/check.h"
#include "caches/digest.h"
#include "caches/file_io.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little,
              "cache files hold host memory as little-endian; a big-endian port must swap here");

constexpr std::string_view kMagic = "lskvfile";
constexpr uint32_t kVersion = 2;
constexpr size_t kSizeOffset = 12;  // after magic and version
constexpr size_t kPreambleBytes = kSizeOffset + sizeof(uint64_t);
constexpr size_t kKindLengthMax = 32;
constexpr size_t kChecksumBytes = sizeof(uint64_t) * 2;

std::array<std::byte, kChecksumBytes> ChecksumOf(std::span<const std::byte> bytes) {
  const Digest digest = DigestOfBytes(bytes);
  std::array<std::byte, kChecksumBytes> checksum;
  std::memcpy(checksum.data(), &digest.high, sizeof(uint64_t));
  std::memcpy(checksum.data() + sizeof(uint64_t), &digest.low, sizeof(uint64_t));
  return checksum;
}

}  // namespace

void SaveCache(const KvCache& cache, const std::string& path) {
  StateWriter writer;
  cache.SaveState(&writer);
  WriteWholeFile(path, writer.Finish());
}

void RestoreCache(KvCache* cache, const std::string& path) {
  const std::vector<std::byte> bytes = ReadWholeFile(path);
  StateReader reader(bytes, path);
  cache->LoadState(&reader);
}

void StateWriter::WriteHeader(const StateHeader& header) {
  LS_CHECK(file_.empty(), "the header comes first");
  WriteBytes(std::as_bytes(std::span(kMagic)));
  WriteU32(kVersion);
  file_.resize(kPreambleBytes);  // the size is filled in at the end
  WriteU32(static_cast<uint32_t>(header.kind.size()));
  WriteBytes(std::as_bytes(std::span(header.kind)));
  for (int32_t value : {header.geometry.num_layers, header.geometry.num_kv_heads,
                        header.geometry.head_dim, header.geometry.max_length}) {
    WriteU32(static_cast<uint32_t>(value));
  }
  WriteU32(static_cast<uint32_t>(header.key_type));
  WriteU32(static_cast<uint32_t>(header.value_type));
  WriteU32(static_cast<uint32_t>(header.window));
  WriteU32(static_cast<uint32_t>(header.window_type));
}

void StateWriter::WriteLengths(std::span<const int32_t> lengths) {
  WriteBytes(std::as_bytes(lengths));
}

void StateWriter::WriteU32(uint32_t value) { WriteBytes(std::as_bytes(std::span(&value, 1))); }

void StateWriter::WriteBytes(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const size_t end = file_.size();
  file_.resize(end + bytes.size());
  std::memcpy(file_.data() + end, bytes.data(), bytes.size());
}

std::vector<std::byte> StateWriter::Finish() {
  LS_CHECK(file_.size() >= kPreambleBytes, "a cache file without a header");
  const uint64_t size = file_.size() + kChecksumBytes;
  std::memcpy(file_.data() + kSizeOffset, &size, sizeof(size));
  WriteBytes(ChecksumOf(file_));
  return std::move(file_);
}

StateReader::StateReader(std::span<const std::byte> file, std::string path)
    : rest_(file), path_(std::move(path)) {
  const size_t compared = std::min(file.size(), kMagic.size());
  if (compared == 0 || std::memcmp(file.data(), kMagic.data(), compared) != 0) {
    Fail("magic", "this is not a lockstep cache file", "give a file written by a cache save");
  }
  if (file.size() < kPreambleBytes + kChecksumBytes) {
    Fail("size", fmt::format("the file ends after {} bytes", file.size()),
         std::string(kDamagedRemedy));
  }
  rest_ = rest_.subspan(kMagic.size());
  const uint32_t version = ReadU32("version");
  if (version != kVersion) {
    Fail("version", fmt::format("version {} is unknown, this build reads {}", version, kVersion),
         "save the cache again with this build");
  }
  uint64_t size;
  ReadBytes(std::as_writable_bytes(std::span(&size, 1)));
  if (size != file.size()) {
    Fail("size", fmt::format("the file has {} bytes, it says {}", file.size(), size),
         std::string(kDamagedRemedy));
  }
  const auto content = file.first(file.size() - kChecksumBytes);
  const auto checksum = ChecksumOf(content);
  if (std::memcmp(checksum.data(), file.data() + content.size(), kChecksumBytes) != 0) {
    Fail("checksum", "it does not match the content", std::string(kDamagedRemedy));
  }
  rest_ = content.subspan(kPreambleBytes);
}

void StateReader::ExpectHeader(const StateHeader& header) {
  const uint32_t kind_size = ReadU32("kind");
  if (kind_size > rest_.size())
    Fail("kind", "its length passes the end", std::string(kDamagedRemedy));
  std::string kind(kind_size, '\0');
  ReadBytes(std::as_writable_bytes(std::span(kind)));
  const auto expect = [this](std::string_view field, const auto& found, const auto& wanted) {
    if (found == wanted) return;
    Fail(field, fmt::format("the file has {}, the cache has {}", found, wanted),
         "restore into a cache like the one that was saved");
  };
  for (char& c : kind) {  // it may be anything, and is printed
    if (c < '!' || c > '~') c = '?';
  }
  expect("kind", kind.substr(0, kKindLengthMax), header.kind);
  const auto expect_u32 = [&](std::string_view field, int32_t wanted) {
    expect(field, ReadU32(field), static_cast<uint32_t>(wanted));
  };
  expect_u32("num_layers", header.geometry.num_layers);
  expect_u32("num_kv_heads", header.geometry.num_kv_heads);
  expect_u32("head_dim", header.geometry.head_dim);
  expect_u32("max_length", header.geometry.max_length);
  const auto expect_type = [&](std::string_view field, RowType wanted) {
    const uint32_t found = ReadU32(field);
    if (found > static_cast<uint32_t>(RowType::kBf16)) {
      Fail(field, fmt::format("row type {} is unknown", found), std::string(kDamagedRemedy));
    }
    expect(field, RowTypeName(static_cast<RowType>(found)), RowTypeName(wanted));
  };
  expect_type("key_type", header.key_type);
  expect_type("value_type", header.value_type);
  expect_u32("window", header.window);
  expect_type("window_type", header.window_type);
}

std::vector<int32_t> StateReader::ReadLengths(const KvGeometry& geometry) {
  std::vector<int32_t> lengths(static_cast<size_t>(geometry.num_layers));
  for (int32_t& length : lengths) {
    const uint32_t value = ReadU32("lengths");
    if (value > static_cast<uint32_t>(geometry.max_length)) {
      Fail("lengths", fmt::format("length {} is above max_length {}", value, geometry.max_length),
           std::string(kDamagedRemedy));
    }
    length = static_cast<int32_t>(value);
  }
  return lengths;
}

void StateReader::ExpectRemaining(int64_t bytes) {
  if (bytes < 0 || rest_.size() != static_cast<uint64_t>(bytes)) {
    Fail("content", fmt::format("{} bytes are left for {}", rest_.size(), bytes),
         std::string(kDamagedRemedy));
  }
}

uint32_t StateReader::ReadU32(std::string_view field) {
  uint32_t value;
  if (rest_.size() < sizeof(value))
    Fail(field, "the file ends before it", std::string(kDamagedRemedy));
  ReadBytes(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

void StateReader::ReadBytes(std::span<std::byte> bytes) {
  if (rest_.size() < bytes.size())
    Fail("content", "the file ends in it", std::string(kDamagedRemedy));
  if (!bytes.empty()) std::memcpy(bytes.data(), rest_.data(), bytes.size());
  rest_ = rest_.subspan(bytes.size());
}

void StateReader::Fail(std::string_view field, std::string what, std::string remedy) const {
  throw Error({.where = fmt::format("{}: field '{}'", path_, field),
               .what = std::move(what),
               .remedy = std::move(remedy)});
}

}  // namespace lockstep
