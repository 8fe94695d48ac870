#include "caches/huge_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstring>

#include "caches/aligned_buffer.h"

namespace lockstep {
namespace {

TEST(HugePagesTest, LargeBuffersBeginWithOne) {
  constexpr auto kPage = static_cast<int64_t>(kHugePage);
  for (const int64_t bytes : {kPage, kPage + 1, 5 * kPage - 1}) {
    const AlignedBuffer<std::byte> buffer(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kHugePage, 0u) << bytes;
  }
  const AlignedBuffer<float> floats(kPage);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(floats.data()) % kHugePage, 0u);
}

// Of a fresh mapping of `bytes` that is written to, how many lie in huge pages when they are asked
// for in all of it but the first and the last `margin`.
int64_t HugeBytesOfAMapping(size_t bytes, size_t margin) {
  void* mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return 0;
  AskForHugePages(static_cast<std::byte*>(mapping) + margin, bytes - 2 * margin);
  std::memset(mapping, 1, bytes);
  const int64_t huge = HugePageBytes(mapping, bytes);
  munmap(mapping, bytes);
  return huge;
}

TEST(HugePagesTest, LargeBuffersLieInThem) {
  constexpr size_t kBytes = 16 * kHugePage;
  if (HugeBytesOfAMapping(kBytes, 0) < static_cast<int64_t>(kBytes / 2)) {
    GTEST_SKIP() << "this system gives no huge pages";
  }
  AlignedBuffer<std::byte> buffer(kBytes);
  std::memset(buffer.data(), 1, buffer.size());
  const int64_t huge = HugePageBytes(buffer.data(), buffer.size());
  EXPECT_GE(huge, static_cast<int64_t>(kBytes / 2));
  EXPECT_LE(huge, static_cast<int64_t>(kBytes));
}

TEST(HugePagesTest, NothingIsAskedForMemoryWithoutAWholePage) {
  EXPECT_EQ(HugePageBytes(nullptr, 0), 0);
  // What no request reaches is huge only where the system gives them to everybody.
  constexpr size_t kBytes = 16 * kHugePage;
  if (HugeBytesOfAMapping(kBytes, kBytes / 2) != 0) {
    GTEST_SKIP() << "this system gives huge pages unasked";
  }
  // A page and a bit less, wherever the mapping begins: there is a whole one in it, or there is
  // none.
  EXPECT_LE(HugeBytesOfAMapping(kBytes, kBytes / 2 - kHugePage + 1),
            static_cast<int64_t>(kHugePage));
  EXPECT_EQ(HugeBytesOfAMapping(kBytes, kBytes / 2 - kHugePage / 2 + 1), 0);
}

}  // namespace
}  // namespace lockstep
