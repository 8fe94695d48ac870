// Decorators over any KvCache: what the harness puts between an engine and the cache it looks at.
//
// Each decorator either borrows its inner cache (which must outlive it) or owns it, forwards every
// virtual of the contract, and adds one thing. Fork gives the same kind of decorator around the
// forked inner cache. max_step_rows and view_depends_on_query are the inner cache's: a decorator
// never changes how an engine has to drive it. One that does not say what it does on a device shows
// no layer on one, so that an engine goes through the host's calls, which it decorates.
#ifndef LOCKSTEP_ORACLE_DECORATORS_H_
#define LOCKSTEP_ORACLE_DECORATORS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caches/kv_cache.h"
#include "oracle/device_decorators.h"

namespace lockstep {

// Forwards everything. Fork stays abstract: what wraps a forked cache is each decorator's to say,
// and one that forgets does not compile.
class ForwardingCache : public KvCache {
 public:
  explicit ForwardingCache(KvCache& inner) : inner_(&inner) {}
  explicit ForwardingCache(std::unique_ptr<KvCache> inner);  // REQUIRES: not null

  KvCache& inner() { return *inner_; }
  const KvCache& inner() const { return *inner_; }

  const KvGeometry& geometry() const override { return inner_->geometry(); }
  std::string name() const override { return inner_->name(); }
  RowType key_type() const override { return inner_->key_type(); }
  RowType value_type() const override { return inner_->value_type(); }
  int32_t max_step_rows() const override { return inner_->max_step_rows(); }
  int32_t attention_window(int32_t layer) const override { return inner_->attention_window(layer); }

  int32_t length(int32_t layer) const override { return inner_->length(layer); }
  int32_t current_length() const override { return inner_->current_length(); }
  int32_t first_position(int32_t layer) const override { return inner_->first_position(layer); }
  void View(int32_t layer, KvView* view) const override { inner_->View(layer, view); }
  void ViewForQuery(int32_t layer, int32_t position, KvView* view) const override {
    inner_->ViewForQuery(layer, position, view);
  }
  bool view_depends_on_query() const override { return inner_->view_depends_on_query(); }

  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override {
    inner_->Update(layer, positions, keys, values);
  }
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override {
    return inner_->TryReserveSlot(layer, positions);
  }
  void CommitSlot(int32_t layer, std::span<const int32_t> positions) override {
    inner_->CommitSlot(layer, positions);
  }

  void Rollback(int32_t length) override { inner_->Rollback(length); }
  void Clear() override { inner_->Clear(); }

  Digest StorageDigest() const override { return inner_->StorageDigest(); }
  void SaveState(StateWriter* writer) const override { inner_->SaveState(writer); }
  void LoadState(StateReader* reader) override { inner_->LoadState(reader); }

 private:
  std::unique_ptr<KvCache> owned_;  // empty when borrowed
  KvCache* inner_;
};

// The legacy write path, by type: no run is ever granted, so every row goes through Update. The
// oracle of the direct path. What could open the direct path again is final, which
// update_only_is_final.cc (tests that must not compile) keeps so.
class UpdateOnlyCache : public ForwardingCache {
 public:
  using ForwardingCache::ForwardingCache;

  std::string name() const final;  // "update-only(simple)"

  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) final;

  // nullopt for every run; a layer outside [0, num_layers) still throws [R1]. The inner cache is
  // not asked, so that an open reservation of its own stays what it was.
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) final;

  // Without a reservation, so what [C2] says: forwarded.
  void CommitSlot(int32_t layer, std::span<const int32_t> positions) final;

  // On a device the same: every run is refused.
  DeviceKv* device_kv(int32_t layer) final;

  void Rollback(int32_t length) final;
  void Clear() final;
  std::unique_ptr<KvCache> Fork() final;
  void LoadState(StateReader* reader) final;

 private:
  UpdateOnlyDeviceKv on_device_{inner()};
};

// Which path ran. Calls count when they returned; calls that threw count as `threw` alone.
struct Counters {
  int64_t reserve_granted = 0;
  int64_t reserve_refused = 0;
  int64_t rows_reserved = 0;  // rows of the granted runs
  int64_t commits = 0;
  int64_t rows_committed = 0;
  int64_t updates = 0;
  int64_t rows_updated = 0;
  int64_t views = 0;  // View and ViewForQuery
  int64_t threw = 0;
  int64_t on_device = 0;  // of the calls above, those of an engine on a device

  // Of the whole cache: always 0 in the counters of one layer.
  int64_t rollbacks = 0;
  int64_t clears = 0;
  int64_t forks = 0;

  Counters& operator+=(const Counters& other);
  friend bool operator==(const Counters&, const Counters&) = default;
};

// "reserve 5+0 commit 5 update 0 ...": granted+refused.
std::string CountersText(const Counters& counters);

// Counts calls, those of an engine on a device as their like on the host. Forks start at zero.
// Calls at a layer outside the cache count in the total alone.
class CountingCache : public ForwardingCache {
 public:
  explicit CountingCache(KvCache& inner);
  explicit CountingCache(std::unique_ptr<KvCache> inner);
  ~CountingCache() override;

  Counters layer(int32_t layer) const;  // REQUIRES: 0 <= layer < num_layers (std::out_of_range)
  Counters total() const;
  void Reset();

  void View(int32_t layer, KvView* view) const override;
  void ViewForQuery(int32_t layer, int32_t position, KvView* view) const override;
  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override;
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override;
  void CommitSlot(int32_t layer, std::span<const int32_t> positions) override;
  DeviceKv* device_kv(int32_t layer) override;
  void Rollback(int32_t length) override;
  void Clear() override;
  std::unique_ptr<KvCache> Fork() override;

 private:
  class OnDevice;

  // The counters of a layer, or those of the whole cache for any other number.
  size_t Index(int32_t layer) const;

  std::vector<Counters> counters_;  // [num_layers + 1]; the last: calls that belong to no layer
  // Reading is const and may run on several threads at once.
  mutable std::vector<std::atomic<int64_t>> views_;  // [num_layers + 1]
  mutable std::vector<std::atomic<int64_t>> view_throws_;
  std::unique_ptr<OnDevice> on_device_;
};

// ---- What was done to a cache, as plain data ------------------------------------------------

enum class CacheOp : uint8_t {
  kUpdate,
  kReserve,
  kCommit,
  kRollback,
  kClear,
  kFork,
  kLoadState,
  kView,
  kViewForQuery,
};
std::string_view CacheOpName(CacheOp op);  // "update", "reserve", ...

enum class CacheOutcome : uint8_t { kDone, kGranted, kRefused, kThrew };
std::string_view CacheOutcomeName(CacheOutcome outcome);

struct CacheRecord {
  CacheOp op = CacheOp::kUpdate;
  int32_t layer = -1;              // -1: the whole cache
  std::vector<int32_t> positions;  // of update, reserve, commit; the query's of kViewForQuery
  int32_t length = -1;             // the argument of kRollback
  Digest keys;                     // of the rows an update or a commit wrote; zero otherwise
  Digest values;
  std::vector<float> key_rows;  // the same rows [n, kv_stride], when rows are kept
  std::vector<float> value_rows;
  CacheOutcome outcome = CacheOutcome::kDone;
  std::string error;  // what() of kThrew
};

// One line: "commit layer 2 positions 0..4 keys 9f3c0a12 values 77e0b1d4 done".
std::string CacheRecordText(const CacheRecord& record);

struct RecordingOptions {
  bool reads = false;  // also View and ViewForQuery
  bool rows = false;   // keep the rows, not only their digests
};

// Records every call that can change the cache, in order. A fork records apart, from nothing.
// With `reads`, calls need the recorder alone, const ones too.
class RecordingCache : public ForwardingCache {
 public:
  explicit RecordingCache(KvCache& inner, RecordingOptions options = {});
  explicit RecordingCache(std::unique_ptr<KvCache> inner, RecordingOptions options = {});

  const std::vector<CacheRecord>& records() const { return records_; }
  void Reset() { records_.clear(); }

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
  template <typename Call>
  void Record(CacheRecord record, Call&& call) const;
  void SetRows(CacheRecord* record, std::span<const float> keys,
               std::span<const float> values) const;

  struct OpenSlot {
    std::vector<int32_t> positions;
    KvSlot slot;
  };

  RecordingOptions options_;
  std::vector<std::optional<OpenSlot>> slots_;  // [num_layers]: to read the rows at their commit
  mutable std::vector<CacheRecord> records_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ORACLE_DECORATORS_H_
