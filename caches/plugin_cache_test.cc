// What is no plug-in, which versions are taken, and what a plug-in's answers become.
#include "caches/plugin_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>

#include "caches/cache_file.h"
#include "caches/error.h"

// caches/plugin_header_test.c, compiled as C99: what C says that the same things are.
extern "C" size_t lockstep_plugin_size_in_c();
extern "C" size_t lockstep_plugin_last_field_in_c();

namespace lockstep {
namespace {

using ::testing::HasSubstr;

lockstep_kv_status update_status = LOCKSTEP_KV_OK;
int32_t length_answer = 0;

// One layer, nothing in it.
lockstep_kv_plugin EmptyTable() {
  static int cache;
  lockstep_kv_plugin table = {};
  table.abi_version = LOCKSTEP_KV_ABI_VERSION;
  table.features = LOCKSTEP_KV_GRANTS_SLOTS | LOCKSTEP_KV_FORKS;
  table.name = "empty";
  table.head_dim_multiple = 1;
  table.create = [](const lockstep_kv_geometry* g) {
    return g->num_layers == 1 ? static_cast<void*>(&cache) : nullptr;
  };
  table.destroy = [](void*) {};
  table.length = [](const void*, int32_t layer) { return layer == 0 ? length_answer : -1; };
  table.read_row = [](const void*, int32_t, int32_t, float*, float*) {
    return LOCKSTEP_KV_OUT_OF_RANGE;
  };
  table.update = [](void*, int32_t, const int32_t*, int32_t, const float*, const float*) {
    return update_status;
  };
  table.try_reserve_slot = [](void*, int32_t, const int32_t*, int32_t, float**, float**) {
    return LOCKSTEP_KV_OK;
  };
  table.commit_slot = [](void*, int32_t, const int32_t*, int32_t) { return LOCKSTEP_KV_OK; };
  table.rollback = [](void*, int32_t) -> lockstep_kv_status { throw 1; };
  table.clear = [](void*) {};
  table.fork = [](void*) { return static_cast<void*>(nullptr); };
  return table;
}

std::string LoadError(const lockstep_kv_plugin* table) {
  try {
    PluginLibrary::FromTable(table);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(PluginLibraryTest, RefusesWhatIsNoPlugin) {
  EXPECT_THROW(PluginLibrary::Load("./no-such-library.so"), Error);
  EXPECT_THAT(LoadError(nullptr), HasSubstr("returns no table"));
  const lockstep_kv_plugin table = EmptyTable();
  EXPECT_EQ(LoadError(&table), "no error");
  lockstep_kv_plugin broken = table;
  broken.commit_slot = nullptr;
  EXPECT_THAT(LoadError(&broken), HasSubstr("has no commit_slot"));
  broken = table;
  broken.fork = nullptr;
  EXPECT_THAT(LoadError(&broken), HasSubstr("has no fork, which its features declare"));
  broken = table;
  broken.features |= LOCKSTEP_KV_SAVES;
  EXPECT_THAT(LoadError(&broken), HasSubstr("has no save, which its features declare"));
  broken = table;
  broken.features |= LOCKSTEP_KV_COUNTS_BLOCKS;
  EXPECT_THAT(LoadError(&broken), HasSubstr("has no used_blocks, which its features declare"));
  broken = table;
  broken.head_dim_multiple = 0;
  EXPECT_THAT(LoadError(&broken), HasSubstr("head_dim_multiple below 1"));
  broken = table;
  broken.block_size = -1;
  EXPECT_THAT(LoadError(&broken), HasSubstr("negative block_size"));
}

TEST(PluginLibraryTest, RefusesALaterVersionAndOneThatNeverWas) {
  lockstep_kv_plugin table = EmptyTable();
  table.abi_version = LOCKSTEP_KV_ABI_VERSION + 1;
  EXPECT_THAT(LoadError(&table), HasSubstr("is of ABI version 3, this is 2"));
  table.abi_version = 0;
  EXPECT_THAT(LoadError(&table), HasSubstr("is of ABI version 0, this is 2"));
}

// The table of version 1 ends where a page without access begins.
TEST(PluginLibraryTest, ReadsNothingThatAnOlderVersionDidNotHave) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* pages = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(mprotect(static_cast<char*>(pages) + page, page, PROT_NONE), 0);
  lockstep_kv_plugin table = EmptyTable();
  table.abi_version = 1;
  table.features |= LOCKSTEP_KV_SAVES | LOCKSTEP_KV_COUNTS_BLOCKS | 1u << 31;
  constexpr size_t kBytes = offsetof(lockstep_kv_plugin, save);
  void* old = static_cast<char*>(pages) + page - kBytes;
  std::memcpy(old, &table, kBytes);
  const auto library = PluginLibrary::FromTable(static_cast<const lockstep_kv_plugin*>(old));
  EXPECT_TRUE(library->grants_slots());
  EXPECT_TRUE(library->forks());
  EXPECT_FALSE(library->saves()) << "a flag that version 1 did not have";
  EXPECT_FALSE(library->counts_blocks());
  EXPECT_EQ(library->table().save, nullptr);
  EXPECT_EQ(library->table().features, LOCKSTEP_KV_GRANTS_SLOTS | LOCKSTEP_KV_FORKS);
  munmap(pages, 2 * page);
}

// Fields are where they were: version 1 as it was published.
TEST(PluginLibraryTest, FieldsStayWhereTheyAreInCAndCxx) {
  EXPECT_EQ(offsetof(lockstep_kv_plugin, create), 2 * sizeof(uint32_t) + sizeof(char*) + 8);
  EXPECT_EQ(offsetof(lockstep_kv_plugin, fork), offsetof(lockstep_kv_plugin, create) + 9 * 8);
  EXPECT_EQ(offsetof(lockstep_kv_plugin, save), offsetof(lockstep_kv_plugin, create) + 10 * 8);
  EXPECT_EQ(lockstep_plugin_size_in_c(), sizeof(lockstep_kv_plugin));
  EXPECT_EQ(lockstep_plugin_last_field_in_c(), offsetof(lockstep_kv_plugin, used_blocks));
}

std::string MisbehaviourOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const PluginError& e) {
    return e.parts().what;
  }
  return "nothing";
}

TEST(PluginCacheTest, AnswersWithoutMeaningAreFaultsOfThePlugin) {
  const lockstep_kv_plugin table = EmptyTable();
  PluginCache cache(PluginLibrary::FromTable(&table),
                    {.num_layers = 1, .num_kv_heads = 1, .head_dim = 1, .max_length = 4});
  const std::vector<int32_t> at = {0};
  const std::vector<float> row = {1.0f};
  const auto update = [&] { cache.Update(0, at, row, row); };
  update_status = LOCKSTEP_KV_REFUSED;
  EXPECT_EQ(MisbehaviourOf(update), "update: status 1 has no meaning here");
  update_status = static_cast<lockstep_kv_status>(77);
  EXPECT_EQ(MisbehaviourOf(update), "update: status 77 has no meaning here");
  update_status = LOCKSTEP_KV_OUT_OF_RANGE;
  EXPECT_THROW(update(), std::out_of_range);
  update_status = LOCKSTEP_KV_EXHAUSTED;
  EXPECT_THROW(update(), PoolExhausted);
  update_status = LOCKSTEP_KV_OK;
  EXPECT_NO_THROW(update());
  EXPECT_EQ(MisbehaviourOf([&] { cache.TryReserveSlot(0, at); }),
            "try_reserve_slot: granted, and handed out no memory");
  EXPECT_EQ(MisbehaviourOf([&] { cache.Rollback(0); }), "rollback: an exception left it");
  length_answer = 5;
  EXPECT_EQ(MisbehaviourOf([&] { cache.current_length(); }), "length: 5 of at most 4 positions");
  length_answer = 0;
  EXPECT_THROW(cache.Fork(), std::bad_alloc);
}

TEST(PluginCacheTest, ALengthOfNoLayerIsAFaultOfThePlugin) {
  lockstep_kv_plugin table = EmptyTable();
  table.length = [](const void*, int32_t) { return 0; };
  const PluginCache cache(PluginLibrary::FromTable(&table),
                          {.num_layers = 1, .num_kv_heads = 1, .head_dim = 1, .max_length = 4});
  KvView view;
  EXPECT_EQ(MisbehaviourOf([&] { cache.View(0, &view); }), "nothing");
  EXPECT_EQ(MisbehaviourOf([&] { cache.View(3, &view); }), "length: answers for layer 3 of 1");
  EXPECT_EQ(MisbehaviourOf([&] { cache.View(-1, &view); }), "length: answers for layer -1 of 1");
}

// A save may be empty, and says its size in 64 bits.
TEST(PluginCacheTest, SavesOfAnySizeAreReadAsSuch) {
  lockstep_kv_plugin table = EmptyTable();
  table.features |= LOCKSTEP_KV_SAVES;
  table.save = [](const void*, void*, int64_t) { return int64_t{0}; };
  table.restore = [](void*, const void*, int64_t size) {
    return size == 0 ? LOCKSTEP_KV_OK : LOCKSTEP_KV_INVALID_ARGUMENT;
  };
  PluginCache cache(PluginLibrary::FromTable(&table),
                    {.num_layers = 1, .num_kv_heads = 1, .head_dim = 1, .max_length = 4});
  StateWriter writer;
  cache.SaveState(&writer);
  const std::vector<std::byte> file = writer.Finish();
  StateReader reader(file, "empty.lskv");
  EXPECT_NO_THROW(cache.LoadState(&reader));

  StateWriter large;
  large.WriteHeader({.kind = cache.name(), .geometry = cache.geometry()});
  large.WriteU32(5);
  large.WriteU32(1);
  const std::vector<std::byte> damaged = large.Finish();
  StateReader other(damaged, "large.lskv");
  try {
    cache.LoadState(&other);
    FAIL() << "restored";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("0 bytes are left for 4294967301"));
  }
}

TEST(PluginCacheTest, WhatIsNotDeclaredIsNotCalled) {
  lockstep_kv_plugin table = EmptyTable();
  table.features = 0;
  PluginCache cache(PluginLibrary::FromTable(&table),
                    {.num_layers = 1, .num_kv_heads = 1, .head_dim = 1, .max_length = 4});
  EXPECT_THROW(cache.Fork(), std::logic_error);
  EXPECT_THROW(cache.SaveState(nullptr), std::logic_error);
  EXPECT_THROW(cache.LoadState(nullptr), std::logic_error);
  EXPECT_EQ(cache.used_blocks(), std::nullopt);
}

TEST(PluginCacheTest, AGeometryThatIsRefusedIsNamed) {
  const lockstep_kv_plugin table = EmptyTable();
  try {
    PluginCache(PluginLibrary::FromTable(&table),
                {.num_layers = 2, .num_kv_heads = 3, .head_dim = 5, .max_length = 7});
    FAIL() << "made";
  } catch (const std::invalid_argument& e) {
    EXPECT_STREQ(e.what(),
                 "plug-in empty makes no cache of 2 layers, 3 KV heads of 5 elements and 7 "
                 "positions");
  }
}

}  // namespace
}  // namespace lockstep
