// Planted faults: a cache that is right everywhere but in one stated place. The harness has to find
// each of them, in the tests and by `lockstep verify --plant`; a check that no plant trips proves
// nothing.
//
// A plant is text, "kind:field=value,field=value": "flip-k:layer=2,position=3,element=5,step=4".
// What it does goes through the contract alone (a stored row is read by View and written back by
// Update), so every plant works on every kind of cache.
//
// Steps are counted here by what a forward step does: it writes layer 0 first and once. Step 0 is
// the first one (the prefill; a prefill that the engine cuts is several steps).
#ifndef LOCKSTEP_ORACLE_FAULTY_CACHE_H_
#define LOCKSTEP_ORACLE_FAULTY_CACHE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caches/kv_cache.h"
#include "oracle/decorators.h"

namespace lockstep {

enum class PlantKind : uint8_t {
  kFlipK,          // between steps step-1 and step, one byte of one stored K row changes, once
  kFlipV,          // the same of a V row
  kSkipCommit,     // commits at the layer never reach the cache
  kDropUpdate,     // updates at the layer never reach the cache
  kSwapKv,         // K and V are exchanged at the layer
  kWritePast,      // a write at the layer puts its last row into the next position too
  kOffByOne,       // rows written at the layer land one position early, the last place stays zero
  kStaleRow,       // after a rollback, the first rejected row comes back instead of its successor
  kKeepRow,        // a rollback keeps one row too many
  kStaleView,      // a view of the layer shows the row before the newest one in its place
  kRefuseReserve,  // the direct path is refused at the layer: right bits, wrong path
};

struct PlantField {
  std::string_view name;
  bool required = false;
};

struct PlantInfo {
  PlantKind kind = PlantKind::kFlipK;
  std::string_view name;  // "flip-k"
  std::string_view what;  // one sentence
  std::vector<PlantField> fields;
  std::string Usage() const;  // "flip-k:layer=,position=,element=[,byte=,step=]"
};

// All kinds, in the order of PlantKind.
const std::vector<PlantInfo>& KnownPlants();

struct Plant {
  PlantKind kind = PlantKind::kFlipK;
  int32_t layer = 0;
  int32_t position = 0;  // of the row that is flipped
  int64_t element = 0;   // in [0, kv_stride)
  int32_t byte = 0;      // of the element's little-endian binary32, in [0, 4)
  int32_t step = 0;      // the first step in which the fault happens

  friend bool operator==(const Plant&, const Plant&) = default;
};

// Throws Error naming the known plants for an unknown kind, and the fields of the kind for one that
// is missing, unknown, given twice or no number in its range.
Plant ParsePlant(std::string_view text);
std::string PlantText(const Plant& plant);  // ParsePlant(PlantText(p)) == p

// Forks carry the same plant and go on from the same state.
class FaultyCache : public ForwardingCache {
 public:
  // Throws Error when the place is outside the inner cache's geometry.
  FaultyCache(KvCache& inner, const Plant& plant);
  FaultyCache(std::unique_ptr<KvCache> inner, const Plant& plant);

  const Plant& plant() const { return plant_; }

  // How often the fault happened. 0 after a run: the plant proved nothing.
  int64_t fired() const { return fired_; }

  // Whether a caller could see it. A flip of a low byte that quantized storage rounds away fires
  // and changes nothing; byte 3, sign and exponent, shows on every kind of cache.
  bool changed() const { return changed_; }

  std::string name() const override;  // "faulty(simple)"
  void View(int32_t layer, KvView* view) const override;
  void ViewForQuery(int32_t layer, int32_t position, KvView* view) const override;
  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override;
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override;
  void CommitSlot(int32_t layer, std::span<const int32_t> positions) override;
  void Rollback(int32_t length) override;
  void Clear() override;
  std::unique_ptr<KvCache> Fork() override;
  void LoadState(StateReader* reader) override;

 private:
  // Rows of consecutive positions, from `first`.
  struct Rows {
    int32_t first = 0;
    int32_t count = 0;
    KvRows rows;  // [count, kv_stride] each
  };

  void CheckPlace() const;
  bool Is(PlantKind kind, int32_t layer) const;
  void Fire(bool changed) const;

  // Before every reserve and update: counts steps and plants what happens between them.
  void BeforeWrite(int32_t layer);
  // After the rows of `positions` became visible at the plant's layer.
  void AfterWrite(std::span<const int32_t> positions);
  void ForgetReservation();

  void Flip();
  void SwapKv(std::span<const int32_t> positions);
  void WritePast(std::span<const int32_t> positions);
  void WriteEarly(std::span<const int32_t> positions);
  void RestoreStale(std::span<const int32_t> positions);
  void ShowStale(int32_t layer, KvView* view) const;

  // The stored rows [first, length) of the plant's layer.
  Rows Read(int32_t first) const;
  // Writes them back. All rows above a changed one are written again, in steps as long as the
  // cache takes, so that an exact window holds the same rows as before.
  void WriteBack(const Rows& rows);

  Plant plant_;
  int32_t step_ = -1;                             // the step in progress, -1 before the first
  bool layer0_written_ = true;                    // so that the next write of layer 0 begins a step
  std::optional<std::vector<int32_t>> reserved_;  // positions open at the plant's layer
  std::optional<Rows> stale_;                     // kStaleRow: the one row that comes back
  mutable std::atomic<int64_t> fired_ = 0;        // views count from several threads
  mutable std::atomic<bool> changed_ = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ORACLE_FAULTY_CACHE_H_
