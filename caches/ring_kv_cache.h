// RingKvCache: rows as F32, F16 or BF16, of which layers with a window keep the last ones alone
// [W1]. What a layer of window W holds, with R = undo_rows:
//
//        forgotten        | W + R rows at most         | R rows in progress
//   ----------------------|----------------------------|--------------------
//                       first                        length
//
// Position p lies in place p mod (W + 2R). A view shows rows [first, length); every query at one of
// the last R positions, and at the next one, finds its window in them. So a step has at most R
// rows, and as many can be undone; a slot ends at most R rows behind the length, so that it takes
// the place of no row that is shown. `first` never falls again, but when nothing is left: rows that
// were forgotten are gone, also when a rollback brings the length back [W2].
//
// A layer without a window holds every row, as SimpleKvCache does. When no layer has one, nothing
// is forgotten, and steps are as long as they like.
//
// Rows of 2 bytes an element are encoded as they are written [Q1, Q4], and no slot is handed out
// [R3]. In each of these types the row of zeros is all zero bytes; the block formats, of which that
// is not so, are QuantizedKvCache's.
#ifndef LOCKSTEP_CACHES_RING_KV_CACHE_H_
#define LOCKSTEP_CACHES_RING_KV_CACHE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "caches/aligned_buffer.h"
#include "caches/kv_cache.h"
#include "caches/kv_checks.h"

namespace lockstep {

struct RingKvOptions {
  KvGeometry geometry;
  std::vector<int32_t> windows;      // [num_layers], rows; 0: the layer keeps all
  int32_t undo_rows = 0;             // R, at least 1
  RowType key_type = RowType::kF32;  // F32, F16 or BF16
  RowType value_type = RowType::kF32;
  std::string label = {};  // how name() calls the windows; empty: "w" and their list
};

// What names of rings have before their windows: "", "f16+bf16/".
std::string RingRowsName(RowType key_type, RowType value_type);

class RingKvCache final : public KvCache {
 public:
  // std::invalid_argument when a dimension is not positive, the size overflows, there are not as
  // many windows as layers, one is negative, undo_rows is below 1, or rows are of another type.
  explicit RingKvCache(const RingKvOptions& options);

  const KvGeometry& geometry() const override { return options_.geometry; }
  std::string name() const override;  // "ring/w6-0+3", "ring/f16+bf16/w6-0+3"
  RowType key_type() const override { return options_.key_type; }
  RowType value_type() const override { return options_.value_type; }
  int32_t max_step_rows() const override;
  int32_t attention_window(int32_t layer) const override;

  int32_t length(int32_t layer) const override;
  int32_t current_length() const override;
  int32_t first_position(int32_t layer) const override;
  void View(int32_t layer, KvView* view) const override;
  void ViewForQuery(int32_t layer, int32_t position, KvView* view) const override;

  // Also std::invalid_argument for more than max_step_rows() rows, and std::out_of_range for a
  // position behind which too many rows stand to undo it [W2].
  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override;

  // Refuses everything unless keys and values are F32. Refuses also what Update refuses, and in a
  // layer with a window a run over the end of the ring and one that ends more than max_step_rows()
  // rows behind the length [W5].
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override;
  void CommitSlot(int32_t layer, std::span<const int32_t> positions) override;

  void Rollback(int32_t length) override;
  void Clear() override;
  std::unique_ptr<KvCache> Fork() override;  // a deep copy

  Digest StorageDigest() const override;
  void SaveState(StateWriter* writer) const override;
  void LoadState(StateReader* reader) override;

 private:
  struct Layer {
    int32_t window = 0;  // 0: all rows are kept
    int32_t rows = 0;    // of the memory; position p lies in place p mod rows
    int32_t length = 0;
    int32_t first = 0;  // rows [first, length) are shown
    std::optional<PositionRun> reservation;
    AlignedBuffer<std::byte> keys;    // [rows, row bytes]
    AlignedBuffer<std::byte> values;  // [rows, row bytes]
  };

  Layer& layer_at(int32_t layer) { return layers_[static_cast<size_t>(layer)]; }
  const Layer& layer_at(int32_t layer) const { return layers_[static_cast<size_t>(layer)]; }

  // Rows [first, first + count), which do not wrap.
  std::span<std::byte> KeyRows(Layer& layer, int32_t first, int32_t count) const;
  std::span<std::byte> ValueRows(Layer& layer, int32_t first, int32_t count) const;
  std::span<const std::byte> KeyRows(const Layer& layer, int32_t first, int32_t count) const;
  std::span<const std::byte> ValueRows(const Layer& layer, int32_t first, int32_t count) const;
  // Calls per_run(first, count) for rows [begin, end) in runs that do not wrap.
  template <typename PerRun>
  static void ForRuns(const Layer& layer, int32_t begin, int32_t end, PerRun per_run);

  // What `first` becomes when the layer reaches `end`.
  int32_t FirstAfter(const Layer& layer, int32_t end) const;
  // Whether rows at positions from `lowest` on could be undone when the layer has reached `end`.
  bool CanUndo(const Layer& layer, int32_t lowest, int32_t end) const;
  // Forgets what a layer that reaches `end` forgets, and makes rows [length, gap_end) +0.0f.
  void Advance(Layer* layer, int32_t gap_end, int32_t end);

  RingKvOptions options_;
  bool forgets_ = false;  // a layer has a window
  std::vector<Layer> layers_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_RING_KV_CACHE_H_
