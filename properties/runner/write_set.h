// Which bytes of the caches' memory an operation changed, and whether it had any right to.
//
// Memory is what a MemoryWatch has registered; where rows lie in it is what views show, so any
// cache can be checked, whatever decorates it; of rows on a device, whose views show copies on the
// host, the cache says besides where they lie there (DeviceKv::RowsOnDevice), and copies that are
// out of date are brought up before memory is looked at. A changed byte is allowed when it
//   * belongs to a row or slot that the operation's rule names, where it lay before or lies now;
//   * lies in a piece (a block) which holds no row of any sequence that was there before and still
//     is, and no slot of another layer: fresh memory, and memory that was given back;
//   * lies in a buffer of exact rows of that layer alone: rows settle there in places of their own;
//   * held no row before, in a sequence whose exact rows hide stored ones.
// Everything else is a finding, bytes that no row has ever held included.
#ifndef LOCKSTEP_PROPERTIES_RUNNER_WRITE_SET_H_
#define LOCKSTEP_PROPERTIES_RUNNER_WRITE_SET_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "caches/memory_watch.h"
#include "properties/runner/probe.h"
#include "properties/runner/sequence.h"

namespace lockstep::runner {

class WriteSet {
 public:
  // `watch` must outlive the set.
  explicit WriteSet(const MemoryWatch& watch) : watch_(watch) {}

  void Before(std::span<const Sequence> sequences);

  // One sentence about the first byte that may not have changed since Before.
  std::optional<std::string> After(const WriteRule& rule, std::span<const Sequence> sequences);

  int64_t bytes_changed() const { return bytes_changed_; }

 private:
  struct Place {  // K or V of one row, or of a slot, in memory
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
    int32_t sequence = 0;  // id
    int32_t layer = 0;
    int32_t position = 0;
    char half = 'K';
    bool exact = false;  // not as the cache stores rows
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  struct Copy {
    WatchedMemory memory;
    std::vector<std::byte> bytes;
  };
  using Ranges = std::vector<std::pair<const std::byte*, const std::byte*>>;

  static std::vector<Place> PlacesOf(std::span<const Sequence> sequences);
  static void AddRowsOnDevice(const Sequence& s, int32_t layer, std::vector<Place>* places);
  static void AddView(const Sequence& s, int32_t layer, const KvView& view,
                      std::vector<const std::byte*>* last, std::vector<Place>* places);
  static bool Named(const WriteRule& rule, const Place& place);
  static bool OwnSlot(const WriteRule& rule, const Place& slot);

  Ranges Allowed(const WriteRule& rule, std::span<const Place> now) const;
  void AllowPieces(const WriteRule& rule, std::span<const Place> now, const WatchedMemory& memory,
                   Ranges* allowed) const;
  bool HoldsExactRowsAlone(const WriteRule& rule, std::span<const Place> now,
                           const WatchedMemory& memory) const;
  std::string Describe(const WatchedMemory& memory, size_t offset) const;

  const MemoryWatch& watch_;
  std::vector<Copy> copies_;
  std::vector<Place> rows_;                           // before, sorted
  std::vector<Place> slots_;                          // before
  std::vector<std::pair<int32_t, bool>> hides_rows_;  // by sequence id
  int64_t bytes_changed_ = 0;
};

}  // namespace lockstep::runner

#endif  // LOCKSTEP_PROPERTIES_RUNNER_WRITE_SET_H_
