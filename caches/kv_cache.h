// KvCache: the contract between an attention engine and the memory that holds its keys and values.
//
// The names in brackets are clauses of caches/CONTRACT.md, which is the full text; each clause has
// at least one test that names it. In short:
//
//   * A cache has L layers. At each layer a *row* is one position's K (or V) vector of
//     kv_stride = num_kv_heads * head_dim elements.
//   * length(layer) is 1 + the highest position written there since construction, Clear or
//     Rollback. A layer that was not written yet in a step still shows its old length [V1].
//   * Two ways to write, equal to the last byte [C3]:
//       Update(layer, positions, keys, values)                         -- copy, the legacy path
//       TryReserveSlot -> the caller computes in place -> CommitSlot   -- the direct path
//
// Exceptions: std::out_of_range for a bad layer, position or length, std::invalid_argument for a
// wrong number of elements, std::logic_error for a commit without a reservation, PoolExhausted.
// After any exception the cache is as it was, byte for byte [U1].
//
// Threads: const calls may run at the same time; every other call needs the cache alone. Caches
// that share a BlockPool count as one cache here.
#ifndef LOCKSTEP_CACHES_KV_CACHE_H_
#define LOCKSTEP_CACHES_KV_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "caches/digest.h"
#include "caches/row_type.h"

namespace lockstep {

struct KvGeometry {
  int32_t num_layers = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;    // elements
  int32_t max_length = 0;  // positions

  // What a model's layers look back at, for caches that forget the rest; no cache stores other rows
  // for it. Rows that a query sees at most, the last ones; 0: all. Layers l with
  // (l + 1) % full_interval == 0 see all rows in spite of it; 0: none do.
  int32_t window = 0;
  int32_t full_interval = 0;

  // Elements of one K or V row.
  int64_t kv_stride() const { return int64_t{num_kv_heads} * head_dim; }
  int32_t window_of(int32_t layer) const {
    return full_interval == 0 || (layer + 1) % full_interval != 0 ? window : 0;
  }

  friend bool operator==(const KvGeometry&, const KvGeometry&) = default;
};

std::string_view RowTypeName(RowType type);  // "f32", "f16", "bf16", "q8_0", "q4_0"

// Stored bytes of one row. REQUIRES: elements is a multiple of 32 for the block formats.
int64_t RowBytes(RowType type, int64_t elements);

// A run of positions whose rows lie one after another in memory, keys and values alike.
// Row r of the segment (position first + r) starts at keys + r * RowBytes(key_type, kv_stride).
struct KvSegment {
  int32_t first = 0;  // position of the segment's first row
  int32_t count = 0;  // rows
  RowType key_type = RowType::kF32;
  RowType value_type = RowType::kF32;
  const std::byte* keys = nullptr;    // [count, kv_stride], stored as key_type
  const std::byte* values = nullptr;  // [count, kv_stride], stored as value_type
};

// What a query reads at one layer: segments in increasing order of position that cover exactly
// [first(), length). It points into the cache and is valid until the cache's next non-const call.
// The vector is the caller's, so that reading in a loop does not allocate once it has grown.
struct KvView {
  int32_t length = 0;  // 1 + the last position
  std::vector<KvSegment> segments;

  // The first position that is shown: 0, but in layers that forget rows [W1].
  int32_t first() const { return segments.empty() ? length : segments.front().first; }
};

// Where the caller computes K and V in place: each span has n * kv_stride floats for the n
// reserved positions, in order, and aliases the cache's own memory [R4].
struct KvSlot {
  std::span<float> keys;    // [n, kv_stride]
  std::span<float> values;  // [n, kv_stride]
};

// No free block is left in the pool. The cache is unchanged.
class PoolExhausted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class DeviceKv;
class StateReader;
class StateWriter;

class KvCache {
 public:
  virtual ~KvCache() = default;
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  // ---- What it is ------------------------------------------------------------------------

  virtual const KvGeometry& geometry() const = 0;

  // The kind with its parameters, as tables print it: "simple", "paged/16",
  // "quantized/q8_0+q4_0/w4", "cuda".
  virtual std::string name() const = 0;

  // How stored rows are encoded.
  virtual RowType key_type() const = 0;
  virtual RowType value_type() const = 0;

  int32_t max_length() const { return geometry().max_length; }

  // The most rows that one Update takes. A forward step splits longer inputs into such steps,
  // which changes no bit [Q3]. max_length() unless rows of the step in progress are kept apart, or
  // a layer forgets rows: then it is also the most that can be undone [W2].
  virtual int32_t max_step_rows() const { return max_length(); }

  // How far a query at the layer may look back, in rows, its own included: what lies before the
  // windows of the last queries is forgotten [W1]. 0: nothing is.
  // REQUIRES: 0 <= layer < num_layers, else std::out_of_range.
  virtual int32_t attention_window(int32_t layer) const;

  // ---- Reading: changes nothing [V3] -----------------------------------------------------

  // REQUIRES of all: 0 <= layer < num_layers, else std::out_of_range.
  virtual int32_t length(int32_t layer) const = 0;
  virtual int32_t current_length() const = 0;           // the maximum over layers
  virtual int32_t first_position(int32_t layer) const;  // the lowest that is not forgotten: 0 [W1]

  // Rows [first_position(layer), length(layer)) as they stand now, which is how a query after the
  // last write reads them. A row inside them that was never written is +0.0f throughout [V2].
  virtual void View(int32_t layer, KvView* view) const = 0;

  // The same rows as the query at `position` reads them. Differs from View only in caches with a
  // full-precision window, where the query's own window decides which rows are exact [Q1].
  // REQUIRES: 0 <= position < length(layer), and no row of the query's window is forgotten [W2],
  // else std::out_of_range.
  virtual void ViewForQuery(int32_t layer, int32_t position, KvView* view) const;

  // True when ViewForQuery may differ between positions; else one View serves a whole step.
  virtual bool view_depends_on_query() const { return false; }

  // ---- Writing, legacy path --------------------------------------------------------------

  // Row i of keys and values ([n, kv_stride] each) is stored at positions[i]. Any order, gaps and
  // duplicates are legal; the last of a duplicate wins [U2]. Cancels the layer's reservation [U6].
  virtual void Update(int32_t layer, std::span<const int32_t> positions,
                      std::span<const float> keys, std::span<const float> values) = 0;

  // ---- Writing, direct path --------------------------------------------------------------

  // Spans inside the cache for a contiguous run of positions, or nullopt without any observable
  // change when the run cannot be written in place [R2, R3]. Replaces the layer's reservation.
  // The spans are valid until CommitSlot or any other non-const call at that layer.
  virtual std::optional<KvSlot> TryReserveSlot(int32_t layer,
                                               std::span<const int32_t> positions) = 0;

  // Publishes the rows of the matching reservation and closes it [C1]. Without one: nothing when
  // all positions are below length(layer), else std::logic_error [C2].
  virtual void CommitSlot(int32_t layer, std::span<const int32_t> positions) = 0;

  // ---- On a device -----------------------------------------------------------------------

  // The layer's rows as an engine on a device writes and reads them (caches/device_kv.h), or null
  // when they lie on the host. REQUIRES: 0 <= layer < num_layers, else std::out_of_range.
  virtual DeviceKv* device_kv(int32_t layer);

  // ---- Lifetime of rows ------------------------------------------------------------------

  // Layers longer than `length` shrink to it; all reservations are cancelled [B1, B2].
  // REQUIRES: 0 <= length <= current_length(), and nothing that the last query would then see is
  // forgotten (CanRollback), else std::out_of_range.
  virtual void Rollback(int32_t length) = 0;

  // Rollback(0) that also returns all memory to the pool [B2].
  virtual void Clear() = 0;

  // An independent sequence with the same rows. Shares blocks copy-on-write where the cache has
  // blocks; cancels the open reservations of this one [B4].
  virtual std::unique_ptr<KvCache> Fork() = 0;

  // ---- Storage ---------------------------------------------------------------------------

  // Digest of the raw stored bytes of the visible rows, for caches of the same kind [X2].
  virtual Digest StorageDigest() const = 0;

  // The stored rows as cache_file.h writes them. LoadState changes nothing when it throws.
  virtual void SaveState(StateWriter* writer) const = 0;
  virtual void LoadState(StateReader* reader) = 0;

 protected:
  KvCache() = default;
};

// Whether Rollback(length) finds all that it needs [W2]: every layer that is longer and forgot rows
// still has the window of the query at length - 1. True for 0.
bool CanRollback(const KvCache& cache, int32_t length);

// Rows of the layer's memory where it is a ring: position p lies where p - RingRows did. The
// window, max_step_rows() rows to undo and as many in progress, or max_length() if that is less
// [W4]. 0: it is no ring.
int32_t RingRows(const KvCache& cache, int32_t layer);

// The rows of one layer's view, decoded to F32: [length - first, kv_stride] each.
struct KvRows {
  std::vector<float> keys;
  std::vector<float> values;
  int32_t first = 0;  // position of the first row
};
KvRows DecodeRows(const KvView& view, int64_t kv_stride);

// Digest of one layer's rows as View shows them: the canonical floats of K alone, of V alone. Where
// rows are forgotten it is of the last window's rows, which do not depend on what came and went.
struct LayerDigest {
  int32_t length = 0;
  Digest keys;
  Digest values;
  friend bool operator==(const LayerDigest&, const LayerDigest&) = default;
};
LayerDigest DigestOfLayer(const KvCache& cache, int32_t layer);

// The cache hash: L, H, D as U32, then for each layer the length as U32, K rows, V rows [X1].
// max_length is a limit, not content, and is left out.
Digest DigestOfCache(const KvCache& cache);

// The storage hash [X2] of a cache whose View shows the stored rows themselves: as DigestOfCache,
// but the raw bytes of K rows, then of V rows. How the view is cut into segments does not count.
Digest DigestOfStoredRows(const KvCache& cache);

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_KV_CACHE_H_
