#include "caches/memory_watch.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "caches/aligned_buffer.h"
#include "caches/check.h"

namespace lockstep {
namespace {

constexpr std::byte kCanary{0xc5};

thread_local std::shared_ptr<MemoryRegistry> current_registry;

size_t PageBytes() {
  static const auto kBytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return kBytes;
}

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Pages for `bytes`, between two that nobody can touch.
std::byte* MapBetweenGuards(size_t bytes) {
  const size_t page = PageBytes();
  void* base = mmap(nullptr, bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  auto* first = static_cast<std::byte*>(base) + page;
  if (bytes > 0 && mprotect(first, bytes, PROT_READ | PROT_WRITE) != 0) {
    munmap(base, bytes + 2 * page);
    throw std::bad_alloc();
  }
  return first;
}

}  // namespace

std::byte* MemoryRegistry::Allocate(size_t bytes, size_t piece) {
  live_.reserve(live_.size() + 1);
  mappings_.reserve(mappings_.size() + 1);
  const size_t padded = RoundUp(bytes, kCacheAlignment);
  const bool guarded = options_.guard != GuardPages::kNone;
  // Without guard pages, canaries of one line on both sides.
  const size_t inner = guarded ? RoundUp(padded, PageBytes()) : padded + 2 * kCacheAlignment;
  auto* first =
      guarded ? MapBetweenGuards(inner)
              : static_cast<std::byte*>(::operator new (inner, std::align_val_t{kCacheAlignment}));
  size_t offset = kCacheAlignment;
  if (options_.guard == GuardPages::kBefore) offset = 0;
  if (options_.guard == GuardPages::kAfter) offset = inner - padded;
  std::byte* data = first + offset;
  Mapping mapping;
  mapping.base = guarded ? first - PageBytes() : first;
  mapping.bytes = guarded ? inner + 2 * PageBytes() : inner;
  mapping.before = {first, offset};
  mapping.after = {data + bytes, inner - offset - bytes};
  std::ranges::fill(mapping.before, kCanary);
  std::ranges::fill(mapping.after, kCanary);
  std::memset(data, options_.poison, bytes);
  live_.push_back({data, bytes, piece, next_serial_++});
  mappings_.push_back(mapping);
  return data;
}

void MemoryRegistry::Free(void* data) noexcept {
  const auto found = std::ranges::find(live_, data, &WatchedMemory::data);
  LS_CHECK(found != live_.end(), "a buffer is freed that its registry does not know");
  const auto at = mappings_.begin() + (found - live_.begin());
  if (freed_.before == 0 && freed_.after == 0) {
    freed_ = StrayOf(static_cast<size_t>(found - live_.begin()));
  }
  if (options_.guard == GuardPages::kNone) {
    ::operator delete (at->base, std::align_val_t{kCacheAlignment});
  } else {
    munmap(at->base, at->bytes);
  }
  live_.erase(found);
  mappings_.erase(at);
}

MemoryRegistry::Stray MemoryRegistry::StrayOf(size_t index) const {
  const auto changed = [](std::byte b) { return b != kCanary; };
  const auto& before = mappings_[index].before;
  const auto& after = mappings_[index].after;
  Stray stray{.serial = live_[index].serial};
  if (const auto at = std::ranges::find_if(before, changed); at != before.end()) {
    stray.before = before.end() - at;
  }
  if (const auto at = std::ranges::find_if(after, changed); at != after.end()) {
    stray.after = at - after.begin() + 1;
  }
  return stray;
}

std::vector<std::string> MemoryRegistry::Audit() const {
  std::vector<std::string> faults;
  const auto add = [&](const Stray& stray) {
    if (stray.before > 0) {
      faults.push_back(
          fmt::format("buffer {}: a write {} bytes before its begin", stray.serial, stray.before));
    }
    if (stray.after > 0) {
      faults.push_back(
          fmt::format("buffer {}: a write {} bytes past its end", stray.serial, stray.after));
    }
  };
  add(freed_);
  for (size_t i = 0; i < live_.size(); ++i) add(StrayOf(i));
  return faults;
}

MemoryWatch::MemoryWatch(const MemoryWatchOptions& options)
    : registry_(std::make_shared<MemoryRegistry>(options)),
      outer_(std::exchange(current_registry, registry_)) {}

MemoryWatch::~MemoryWatch() { current_registry = std::move(outer_); }

const std::shared_ptr<MemoryRegistry>& MemoryWatch::Current() { return current_registry; }

}  // namespace lockstep
