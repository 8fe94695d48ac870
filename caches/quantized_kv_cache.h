// QuantizedKvCache: rows stored as F16 or BF16 or as Q8_0 or Q4_0 blocks (codec.h), keys and values
// each in their own type, with an optional window of exact rows. Every row is encoded when it is
// written [Q1]. "Exact" means as F32, or, with window_type F16, rounded to F16: what a cache on a
// device holds, so that both give the same bits.
//
// The exact window, W = options.window > 0 positions. Beside its encoded rows each layer has a ring
// of W exact rows:
//
//   * Writing position p puts its row into slot p mod W and replaces what was there. Row p is
//   *held*
//     while slot p mod W holds p. The rows of a gap are not written, so not held (they are zero
//     either way). Rollback(n) empties the slots that hold positions >= n.
//   * A query at position i reads row p exactly when i - p < W and p is held; else dequantized.
//   * "Held" means: as the ring stood right after row i was written, when i was written by the last
//     Update at this layer and no rollback came since (the step in progress; should i occur twice
//     in it, the last counts). It means the ring as it stands now for every other i, and for View,
//     which reads as the query at length - 1.
//
// So a step longer than W still reads all it must exactly, and stored bytes, views and hashes
// depend on the sequence of rows alone: one Update of n rows equals n Updates of one row [Q3]. A
// row that fell out of the ring reads dequantized until it is rewritten, also when a rollback
// brings it back inside the window [Q2].
//
// The rows of the step in progress are kept apart for this, in memory for max_step_rows() rows a
// layer; Update refuses more. With W = 0 there is no ring and no limit.
#ifndef LOCKSTEP_CACHES_QUANTIZED_KV_CACHE_H_
#define LOCKSTEP_CACHES_QUANTIZED_KV_CACHE_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "caches/aligned_buffer.h"
#include "caches/kv_cache.h"
#include "caches/kv_layout.h"
#include "caches/quantized/exact_window.h"

namespace lockstep {

struct QuantizedKvOptions {
  KvGeometry geometry;  // head_dim a multiple of HeadDimMultiple(key_type, value_type) [Q4]
  RowType key_type = RowType::kQ8_0;
  RowType value_type = RowType::kQ8_0;
  int32_t window = 0;                   // positions kept exactly, 0 for none
  int32_t max_step_rows = 0;            // rows an Update may have when window > 0; 0: up to 512
  RowType window_type = RowType::kF32;  // of the exact rows, F32 or F16
};

// The options with max_step_rows filled in, and F32 for the type of no window.
// std::invalid_argument for those that no cache can have; `cache` names it.
QuantizedKvOptions CheckedOptions(std::string_view cache, QuantizedKvOptions options);

// "q8_0+q4_0/w4", "q8_0+q4_0/w4-f16".
std::string RowsName(const QuantizedKvOptions& options);

// What the file of a cache of that kind with these rows begins with.
struct StateHeader;
StateHeader StateHeaderOf(std::string_view kind, const QuantizedKvOptions& options);

// Of a cache file: the held positions of one layer of that length, their number and then each,
// increasing, each in a slot of its own.
std::vector<int32_t> ReadHeldPositions(const QuantizedKvOptions& options, int32_t length,
                                       StateReader* reader);

// What head_dim has to be a multiple of: 32 when keys or values are in a block format, else 1.
int32_t HeadDimMultiple(RowType key_type, RowType value_type);

class QuantizedKvCache final : public KvCache {
 public:
  // std::invalid_argument when an option is not as said above or the size overflows.
  explicit QuantizedKvCache(const QuantizedKvOptions& options);

  const KvGeometry& geometry() const override { return options_.geometry; }
  std::string name() const override;
  RowType key_type() const override { return options_.key_type; }
  RowType value_type() const override { return options_.value_type; }
  int32_t window() const { return options_.window; }
  int32_t max_step_rows() const override;

  int32_t length(int32_t layer) const override;
  int32_t current_length() const override;
  void View(int32_t layer, KvView* view) const override;
  void ViewForQuery(int32_t layer, int32_t position, KvView* view) const override;
  bool view_depends_on_query() const override { return options_.window > 0; }

  // Also std::invalid_argument for more than max_step_rows() rows.
  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override;

  // No F32 rows to hand out: always nullopt [R3]. So no reservation is ever open [C2].
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override;
  void CommitSlot(int32_t layer, std::span<const int32_t> positions) override;

  void Rollback(int32_t length) override;
  void Clear() override;
  std::unique_ptr<KvCache> Fork() override;  // a deep copy, the step in progress included

  // Of the encoded rows, whether or not they are also held exactly. The same bytes in the same
  // order as DigestOfStoredRows where nothing is held.
  Digest StorageDigest() const override;

  // A restored cache has no step in progress: its rows are settled.
  void SaveState(StateWriter* writer) const override;
  void LoadState(StateReader* reader) override;

 private:
  // K or V of all layers, encoded.
  struct Codes {
    Codes(const KvGeometry& geometry, RowType row_type);

    std::span<std::byte> Rows(int32_t layer, int32_t first, int32_t count);
    std::span<const std::byte> Rows(int32_t layer, int32_t first, int32_t count) const;
    // Makes rows [first, end) those of a row of zeros.
    void Zero(int32_t layer, int32_t first, int32_t end);

    RowType type;
    RowLayout layout;                 // in bytes
    AlignedBuffer<std::byte> memory;  // [num_layers, max_length, row bytes], layers padded
    std::vector<std::byte> zero_row;  // [row bytes]
  };

  int32_t& length_at(int32_t layer) { return lengths_[static_cast<size_t>(layer)]; }
  int32_t length_at(int32_t layer) const { return lengths_[static_cast<size_t>(layer)]; }
  const ExactWindow& window_at(int32_t layer) const { return windows_[static_cast<size_t>(layer)]; }

  // The view of the query at `position` when the ring is as it stood at `step_row`.
  void ViewAt(int32_t layer, int32_t position, int32_t step_row, KvView* view) const;
  // Positions of the layer that are held now, in increasing order.
  std::vector<int32_t> HeldPositions(int32_t layer) const;

  friend class HybridKvCache;
  // Of a restored file: the layer's rows, keys before values. REQUIRES: the cache is cleared.
  void LoadRows(int32_t layer, int32_t length, StateReader* reader);

  QuantizedKvOptions options_;
  Codes keys_;
  Codes values_;
  std::vector<int32_t> lengths_;      // [num_layers]
  std::vector<ExactWindow> windows_;  // [num_layers], none when window is 0
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_QUANTIZED_KV_CACHE_H_
