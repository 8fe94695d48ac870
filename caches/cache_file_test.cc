// The file format itself: round trips, every kind of damage, and what is refused.
#include "caches/cache_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "caches/file_io.h"
#include "caches/quantized_kv_cache.h"
#include "caches/simple_kv_cache.h"
#include "caches/storage_test_util.h"
#include "caches/temporary_folder.h"

namespace lockstep {
namespace {

using storage_test::Range;
using storage_test::ReadForQuery;
using storage_test::SameBits;
using storage_test::SnapshotOf;
using storage_test::Write;
using storage_test::WriteAll;
using testing::AllOf;
using testing::HasSubstr;

using Bytes = std::vector<std::byte>;

constexpr KvGeometry kGeometry = {
    .num_layers = 2, .num_kv_heads = 1, .head_dim = 32, .max_length = 9};

std::vector<std::unique_ptr<KvCache>> EmptyCaches(const KvGeometry& geometry = kGeometry) {
  std::vector<std::unique_ptr<KvCache>> caches;
  caches.push_back(std::make_unique<SimpleKvCache>(geometry));
  for (int32_t window : {0, 3}) {
    caches.push_back(
        std::make_unique<QuantizedKvCache>(QuantizedKvOptions{.geometry = geometry,
                                                              .key_type = RowType::kQ8_0,
                                                              .value_type = RowType::kQ4_0,
                                                              .window = window}));
  }
  return caches;
}

// Layers of different lengths, a gap, and held rows that are not simply the last ones.
void Use(KvCache* cache) {
  Write(cache, 0, Range(0, 5), 1);
  cache->Rollback(4);
  Write(cache, 0, {6, 1}, 2);
  Write(cache, 1, Range(0, 2), 3);
}

Bytes Saved(const KvCache& cache) {
  StateWriter writer;
  cache.SaveState(&writer);
  return writer.Finish();
}

void Restore(KvCache* cache, const Bytes& file) {
  StateReader reader(file, "some.lskv");
  cache->LoadState(&reader);
}

// Everything that can be seen, also by queries inside the window.
struct Seen {
  storage_test::Snapshot snapshot;
  std::vector<Digest> queries;
  friend bool operator==(const Seen&, const Seen&) = default;
};

Seen Look(const KvCache& cache) {
  Seen seen{.snapshot = SnapshotOf(cache), .queries = {}};
  for (int32_t layer = 0; layer < cache.geometry().num_layers; ++layer) {
    for (int32_t query = 0; query < cache.length(layer); ++query) {
      const KvRows rows = ReadForQuery(cache, layer, query);
      seen.queries.push_back(DigestOfFloats(rows.keys));
      seen.queries.push_back(DigestOfFloats(rows.values));
    }
  }
  return seen;
}

// Size and checksum of a file that somebody changed on purpose.
Bytes Resealed(Bytes file, uint64_t size) {
  std::memcpy(file.data() + 12, &size, sizeof(size));
  const Digest digest = DigestOfBytes(std::span(file).first(file.size() - 16));
  std::memcpy(file.data() + file.size() - 16, &digest.high, 8);
  std::memcpy(file.data() + file.size() - 8, &digest.low, 8);
  return file;
}

Bytes Resealed(const Bytes& file) { return Resealed(file, file.size()); }

Bytes WithU32(Bytes file, size_t offset, uint32_t value) {
  std::memcpy(file.data() + offset, &value, sizeof(value));
  return Resealed(file);
}

std::string MessageOf(KvCache* cache, const Bytes& file) {
  try {
    Restore(cache, file);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(CacheFileTest, S1RestoredEqualsSavedAndGoesOnAlike) {
  const auto saved = EmptyCaches(), restored = EmptyCaches();
  for (size_t i = 0; i < saved.size(); ++i) {
    SCOPED_TRACE(saved[i]->name());
    Use(saved[i].get());
    WriteAll(restored[i].get(), Range(0, 9), 8);  // content that has to go
    const Bytes file = Saved(*saved[i]);
    Restore(restored[i].get(), file);
    EXPECT_EQ(SnapshotOf(*restored[i]), SnapshotOf(*saved[i]));
    EXPECT_EQ(Saved(*restored[i]), file);
    for (KvCache* cache : {saved[i].get(), restored[i].get()}) cache->Rollback(6);  // settles
    EXPECT_EQ(Look(*restored[i]), Look(*saved[i]));
    for (KvCache* cache : {saved[i].get(), restored[i].get()}) Write(cache, 0, {8, 2}, 5);
    EXPECT_EQ(Look(*restored[i]), Look(*saved[i]));
  }
}

TEST(CacheFileTest, S1EmptyAndFullCachesComeBack) {
  for (int32_t length : {0, 9}) {
    const auto saved = EmptyCaches(), restored = EmptyCaches();
    for (size_t i = 0; i < saved.size(); ++i) {
      WriteAll(saved[i].get(), Range(0, length), 1);
      Use(restored[i].get());
      Restore(restored[i].get(), Saved(*saved[i]));
      EXPECT_EQ(SnapshotOf(*restored[i]), SnapshotOf(*saved[i])) << saved[i]->name();
    }
  }
}

TEST(CacheFileTest, S1RestoringCancelsReservations) {
  SimpleKvCache cache(kGeometry);
  const Bytes file = Saved(cache);
  ASSERT_TRUE(cache.TryReserveSlot(0, Range(0, 1)));
  Restore(&cache, file);
  EXPECT_THROW(cache.CommitSlot(0, Range(0, 1)), std::logic_error);
}

TEST(CacheFileTest, S2EveryTruncationFlipAndAdditionIsRefusedAndChangesNothing) {
  const auto saved = EmptyCaches(), others = EmptyCaches();
  for (size_t i = 0; i < saved.size(); ++i) {
    KvCache* cache = others[i].get();
    Use(saved[i].get());
    WriteAll(cache, Range(0, 3), 9);
    const Bytes good = Saved(*saved[i]);
    const Bytes before = Saved(*cache);
    const auto expect_refused = [&](const Bytes& file, const std::string& how) {
      ASSERT_THROW(Restore(cache, file), Error) << cache->name() << " " << how;
      ASSERT_EQ(Saved(*cache), before) << cache->name() << " " << how;
    };
    for (size_t at = 0; at < good.size(); ++at) {
      const auto end = good.begin() + static_cast<ptrdiff_t>(at);
      expect_refused(Bytes(good.begin(), end), fmt::format("cut at {}", at));
      for (unsigned bits : {0x01u, 0x80u, 0xffu}) {
        Bytes flipped = good;
        flipped[at] ^= static_cast<std::byte>(bits);
        expect_refused(flipped, fmt::format("byte {} ^ {:#x}", at, bits));
      }
    }
    for (size_t extra : {1u, 4u, 16u}) {
      Bytes longer = good;
      longer.resize(good.size() + extra);
      expect_refused(longer, "longer");
      expect_refused(Resealed(longer), "longer and sealed");
    }
    Restore(cache, good);
  }
}

// What is wrong is named by the first field that shows it.
TEST(CacheFileTest, S2DamageIsNamed) {
  SimpleKvCache cache(kGeometry);
  Use(&cache);
  const Bytes good = Saved(cache);
  const auto cut = [&](size_t size) {
    return MessageOf(&cache, Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(size)));
  };
  EXPECT_THAT(cut(0), HasSubstr("field 'magic'"));
  EXPECT_THAT(cut(8), HasSubstr("field 'size': the file ends after 8 bytes"));
  EXPECT_THAT(cut(35), HasSubstr("field 'size'"));
  EXPECT_THAT(cut(36), HasSubstr("field 'size'"));
  EXPECT_THAT(cut(good.size() - 1), HasSubstr("field 'size'"));
  Bytes other = good;
  other[0] = std::byte{'L'};
  EXPECT_THAT(MessageOf(&cache, other), HasSubstr("field 'magic'"));
  other = good;
  other[good.size() / 2] ^= std::byte{1};
  EXPECT_THAT(MessageOf(&cache, other), HasSubstr("field 'checksum'"));

  EXPECT_THAT(MessageOf(&cache, Resealed(good, good.size() + 1)), HasSubstr("field 'size'"));
}

// Files that were sealed with the right checksum but do not fit: only the fields tell.
TEST(CacheFileTest, S2EveryFieldOfTheHeaderIsCompared) {
  SimpleKvCache cache(kGeometry);
  Use(&cache);
  const Bytes good = Saved(cache);
  const Bytes before = Saved(cache);
  // Offsets: magic 0, version 8, size 12, kind 20 (u32 6, "simple"), then u32 fields from 30.
  const std::vector<std::pair<size_t, std::string>> fields = {
      {8, "version"},   {20, "kind"},       {30, "num_layers"}, {34, "num_kv_heads"},
      {38, "head_dim"}, {42, "max_length"}, {46, "key_type"},   {50, "value_type"},
      {54, "window"},   {58, "window_type"}};
  for (const auto& [offset, name] : fields) {
    for (uint32_t value : {2u, 3u, 77u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
      if (std::memcmp(good.data() + offset, &value, 4) == 0) continue;
      EXPECT_THAT(MessageOf(&cache, WithU32(good, offset, value)),
                  AllOf(HasSubstr("some.lskv: field '" + name), HasSubstr("(")))
          << value;
      EXPECT_EQ(Saved(cache), before);
    }
  }
  EXPECT_THAT(MessageOf(&cache, WithU32(good, 62, 10)), HasSubstr("length 10 is above"));
  EXPECT_THAT(MessageOf(&cache, WithU32(good, 62, 6)), HasSubstr("field 'content'"));
  EXPECT_THAT(MessageOf(&cache, WithU32(good, 24, 0x31313131)), HasSubstr("1111le"));
  Bytes shorter = good;
  shorter.resize(shorter.size() - 4);
  EXPECT_THAT(MessageOf(&cache, Resealed(shorter)), HasSubstr("field 'content'"));
  shorter.resize(64 + 16);  // in the middle of the first length
  EXPECT_THAT(MessageOf(&cache, Resealed(shorter)), HasSubstr("field 'lengths'"));
  // A kind that reaches to the end of the content is whole; one byte more is not.
  shorter.resize(24 + 3 + 16);
  EXPECT_THAT(MessageOf(&cache, Resealed(WithU32(shorter, 20, 3))),
              HasSubstr("field 'kind': the file has sim, the cache has simple"));
  EXPECT_THAT(MessageOf(&cache, Resealed(WithU32(shorter, 20, 4))), HasSubstr("passes the end"));
  // Whatever calls itself by a long name is cut.
  Bytes longer = good;
  longer.resize(24);
  longer.resize(24 + 33, std::byte{'k'});
  longer.resize(24 + 33 + 16);
  EXPECT_THAT(MessageOf(&cache, Resealed(WithU32(longer, 20, 33))),
              HasSubstr("the file has " + std::string(32, 'k') + ", the cache has simple"));
  EXPECT_EQ(Saved(cache), before);
}

// What a cache reads for itself is bounded too.
TEST(CacheFileTest, S2NothingIsReadPastTheEnd) {
  SimpleKvCache cache(kGeometry);
  const Bytes file = Saved(cache);
  StateReader reader(file, "some.lskv");
  const size_t content = file.size() - 20 - 16;  // behind magic, version and size; the checksum
  Bytes bytes(content + 1);
  EXPECT_THROW(reader.ReadBytes(bytes), Error);
  bytes.pop_back();
  reader.ReadBytes(bytes);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), file.begin() + 20));
  EXPECT_THROW(reader.ReadBytes(std::span(bytes).first(1)), Error);
}

TEST(CacheFileTest, S2OtherKindsGeometriesAndTypesAreRefused) {
  const auto caches = EmptyCaches();
  const auto longer =
      EmptyCaches({.num_layers = 2, .num_kv_heads = 1, .head_dim = 32, .max_length = 10});
  for (size_t i = 0; i < caches.size(); ++i) {
    for (size_t j = 0; j < caches.size(); ++j) {
      if (i == j) continue;
      EXPECT_THROW(Restore(caches[i].get(), Saved(*caches[j])), Error) << i << " " << j;
    }
    EXPECT_THAT(MessageOf(caches[i].get(), Saved(*longer[i])),
                AllOf(HasSubstr("field 'max_length'"), HasSubstr("the file has 10"),
                      HasSubstr("the cache has 9"), HasSubstr("restore into a cache like")));
  }
}

// Held positions decide which memory is written, so a hostile list must not get through.
TEST(CacheFileTest, S2HeldPositionsThatCannotBeAreRefused) {
  const auto caches = EmptyCaches();
  KvCache* cache = caches[2].get();
  WriteAll(cache, Range(0, 5), 1);  // 2, 3, 4 are held in both layers
  const Bytes good = Saved(*cache);
  const size_t held = 4 + 4 + 8 + 8 + 13 + 8 * 4 - 4 + 2 * 4;  // after the lengths
  uint32_t first;
  std::memcpy(&first, good.data() + held, 4);
  ASSERT_EQ(first, 3u);
  const auto message = [&](size_t index, uint32_t value) {
    return MessageOf(cache, WithU32(good, held + 4 * index, value));
  };
  EXPECT_THAT(message(0, 4), HasSubstr("4 rows held"));
  EXPECT_THAT(message(0, 0xffffffffu), HasSubstr("rows held"));
  EXPECT_THAT(message(1, 4), HasSubstr("position 3 cannot be held"));  // 4 3 4: falling
  EXPECT_THAT(message(1, 1), HasSubstr("position 4 cannot be held"));  // 1 and 4 share a slot
  EXPECT_THAT(message(2, 2), HasSubstr("position 2 cannot be held"));  // twice
  EXPECT_THAT(message(3, 7), HasSubstr("position 7 cannot be held"));  // past the length
  EXPECT_THAT(message(3, 0x80000001u), HasSubstr("cannot be held"));
  EXPECT_THAT(message(0, 2), HasSubstr("field"));
  EXPECT_EQ(Saved(*cache), good);
}

// Version 2, byte for byte: a change of the format needs a new version.
TEST(CacheFileTest, GoldenFile) {
  SimpleKvCache cache({.num_layers = 1, .num_kv_heads = 1, .head_dim = 1, .max_length = 2});
  cache.Update(0, {{0}}, {{1.0f}}, {{-2.0f}});
  std::string hex;
  for (std::byte byte : Saved(cache)) hex += fmt::format("{:02x}", std::to_integer<int>(byte));
  EXPECT_EQ(hex,
            "6c736b7666696c65"                  // magic
            "02000000"                          // version
            "5a00000000000000"                  // size
            "0600000073696d706c65"              // kind
            "01000000010000000100000002000000"  // geometry
            "0000000000000000"                  // types
            "0000000000000000"                  // window
            "01000000"                          // lengths
            "0000803f000000c0"                  // K, V
            "826387a20534acfb3d042d383f655cd1"  // checksum
  );
}

TEST(CacheFileTest, SavesAndRestoresThroughFiles) {
  const TemporaryFolder folder;
  const std::string path = folder.File("saved.lskv");
  const auto saved = EmptyCaches(), restored = EmptyCaches();
  for (size_t i = 0; i < saved.size(); ++i) {
    Use(saved[i].get());
    SaveCache(*saved[i], path);
    EXPECT_EQ(ReadWholeFile(path), Saved(*saved[i]));
    RestoreCache(restored[i].get(), path);
    EXPECT_EQ(SnapshotOf(*restored[i]), SnapshotOf(*saved[i]));
  }
  std::filesystem::remove(path);
  const auto before = SnapshotOf(*restored[0]);
  EXPECT_THROW(RestoreCache(restored[0].get(), path), Error);
  EXPECT_THROW(SaveCache(*restored[0], path + "/none/file"), Error);
  EXPECT_EQ(SnapshotOf(*restored[0]), before);
}

}  // namespace
}  // namespace lockstep
