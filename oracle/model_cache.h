// ModelCache: the contract in its simplest form, a map from position to row. It is the oracle of
// every cache, so it is written to be read, shares no code with caches/ beyond the interface, and
// does everything the slow and obvious way.
//
// It also predicts what depends on a cache's storage: which runs are granted in place [R2, R3],
// what quantized rows read as, which rows a query reads exactly [Q1, Q2], which are forgotten and
// what can no longer be undone then [W1, W2], when a pool of blocks
// that one sequence has to itself is exhausted, and the raw stored bytes [X2].
#ifndef LOCKSTEP_ORACLE_MODEL_CACHE_H_
#define LOCKSTEP_ORACLE_MODEL_CACHE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "caches/kv_cache.h"

namespace lockstep {

struct ModelCacheOptions {
  KvGeometry geometry;
  RowType key_type = RowType::kF32;
  RowType value_type = RowType::kF32;
  int32_t window = 0;                   // positions kept exactly besides [Q1]
  RowType window_type = RowType::kF32;  // "exactly" as F32, or rounded to F16
  int32_t block_size = 0;  // positions; 0: no blocks, a run of any length is in one piece
  // Blocks that this sequence may take; 0: enough. Forks are refused (LS_CHECK) when it is set,
  // because which of two sequences takes the last block is no matter of one sequence.
  int32_t blocks_available = 0;
  bool refuses_host_slots = false;  // R3
  int32_t max_step_rows = 0;        // 0: max_length
  // Of layers that forget rows [W1], in turn, 0 for those that do not; empty: none does. With some,
  // max_step_rows is the rows that can be undone, and has to be given.
  std::vector<int32_t> windows = {};
};

class ModelCache final : public KvCache {
 public:
  // LS_CHECK for options that no cache can have.
  explicit ModelCache(const ModelCacheOptions& options);

  const ModelCacheOptions& options() const { return options_; }

  const KvGeometry& geometry() const override { return options_.geometry; }
  std::string name() const override;  // "model/f32", "model/q8_0+q4_0/w4-f16", "model/f32/b16"
  RowType key_type() const override { return options_.key_type; }
  RowType value_type() const override { return options_.value_type; }
  int32_t max_step_rows() const override;
  int32_t attention_window(int32_t layer) const override;

  int32_t length(int32_t layer) const override;
  int32_t current_length() const override;
  int32_t first_position(int32_t layer) const override;

  // One segment of one F32 row for each position, whatever the types are: rows are shown as they
  // are read.
  void View(int32_t layer, KvView* view) const override;
  void ViewForQuery(int32_t layer, int32_t position, KvView* view) const override;
  bool view_depends_on_query() const override { return options_.window > 0; }

  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override;
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override;
  void CommitSlot(int32_t layer, std::span<const int32_t> positions) override;

  void Rollback(int32_t length) override;
  void Clear() override;
  std::unique_ptr<KvCache> Fork() override;

  // Of the encoded rows, whether or not they are also held exactly.
  Digest StorageDigest() const override;

  // A model is not stored: std::logic_error.
  void SaveState(StateWriter* writer) const override;
  void LoadState(StateReader* reader) override;

  // Blocks that hold rows or reserved rows now; 0 without blocks.
  int32_t blocks_used() const;

 private:
  // One position's K or V.
  struct Vector {
    std::vector<std::byte> stored;  // encoded
    std::vector<float> decoded;     // as it reads when it is not held exactly
  };
  struct Row {
    Vector key;
    Vector value;
  };

  // What is open: the positions, and memory for their rows.
  struct Reservation {
    std::vector<int32_t> positions;
    std::vector<float> keys;    // [n, kv_stride]
    std::vector<float> values;  // [n, kv_stride]
  };

  // A row as the window holds it, shared by the window's past states.
  struct Written {
    int32_t position = 0;
    std::vector<float> key;    // [kv_stride]
    std::vector<float> value;  // [kv_stride]
  };

  // The exact window: by slot, the row that was written there last.
  using Ring = std::map<int32_t, std::shared_ptr<const Written>>;

  struct Layer {
    int32_t length = 0;
    int32_t window = 0;           // 0: nothing is forgotten
    int32_t forgotten = 0;        // rows [0, forgotten)
    std::map<int32_t, Row> rows;  // every position in [forgotten, length)
    std::optional<Reservation> reservation;
    Ring ring_before_step;                             // before the step in progress
    std::vector<std::shared_ptr<const Written>> step;  // rows of the last write, in order
  };

  Layer& At(int32_t layer);  // std::out_of_range when there is no such layer
  const Layer& At(int32_t layer) const;
  static Vector MakeVector(RowType type, std::span<const float> exact);
  std::vector<float> InWindow(std::span<const float> row) const;
  void WriteRows(Layer* layer, std::span<const int32_t> positions, std::span<const float> keys,
                 std::span<const float> values);
  // How many rows are forgotten once the layer reaches `end`, and whether all from `lowest` on
  // could be taken back then.
  int32_t ForgottenAt(const Layer& layer, int32_t end) const;
  bool CouldUndo(const Layer& layer, int32_t lowest, int32_t end) const;
  // The ring after the first `writes` rows of the step in progress.
  Ring RingAfter(const Layer& layer, size_t writes) const;
  // The rows as the query at `position` reads them when `ring` holds what it holds.
  void Show(const Layer& layer, const Ring& ring, int32_t position, KvView* view) const;
  int32_t BlocksFor(int32_t rows) const;
  // Whether `writer` may hold rows [0, end) as well as what all layers hold and have reserved.
  bool HasBlocksFor(const Layer& writer, int32_t end) const;

  ModelCacheOptions options_;
  std::vector<Layer> layers_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ORACLE_MODEL_CACHE_H_
