// One cache, driven by the operations of a script: what properties over scripts are said in.
#ifndef LOCKSTEP_PROPERTIES_SCRIPT_DRIVER_TEST_UTIL_H_
#define LOCKSTEP_PROPERTIES_SCRIPT_DRIVER_TEST_UTIL_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "caches/digest.h"
#include "properties/script.h"
#include "properties/script_runner.h"

namespace lockstep {

using Wrap = std::function<std::unique_ptr<KvCache>(std::unique_ptr<KvCache>)>;

// Around every cache that a property is asked about; empty but where a wrong one has to be found.
inline Wrap& Wrapped() {
  static Wrap wrap;
  return wrap;
}

inline ScriptSubject SubjectOf(const std::string& cache) {
  ScriptSubject subject = RegisteredSubject(cache);
  subject.make = [make = subject.make](const CacheScript& script) {
    return Wrapped() ? Wrapped()(make(script)) : make(script);
  };
  return subject;
}

inline std::unique_ptr<KvCache> CacheFor(const CacheScript& script) {
  CacheScript roomy = script;
  roomy.blocks = 0;
  return SubjectOf(script.cache).make(roomy);
}

// One sequence, without what needs several or depends on how a run was granted.
class ScriptDriver {
 public:
  explicit ScriptDriver(std::unique_ptr<KvCache> cache) : cache_(std::move(cache)) {}

  KvCache& cache() { return *cache_; }

  // Writes of the operation: by the direct path where it is granted, else as an update.
  void Apply(const ScriptOp& op) {
    try {
      switch (op.kind) {
        case ScriptOpKind::kUpdate:
          return Update(op, op.positions);
        case ScriptOpKind::kReserve:
          return WriteInPlace(op);
        case ScriptOpKind::kRollback:
          return cache_->Rollback(op.target);
        case ScriptOpKind::kClear:
          return cache_->Clear();
        default:
          return;
      }
    } catch (const std::exception&) {  // refused: nothing has changed [U1]
    }
  }

  // An update in pieces of `rows`.
  void ApplyInPieces(const ScriptOp& op, size_t rows) {
    if (op.kind != ScriptOpKind::kUpdate || op.extra_keys != 0 || op.extra_values != 0) {
      return Apply(op);
    }
    const auto inside = [&](int32_t p) { return p >= 0 && p < cache_->max_length(); };
    if (!std::ranges::all_of(op.positions, inside)) return;  // refused as a whole
    if (op.layer < 0 || op.layer >= cache_->geometry().num_layers) return;
    if (op.positions.size() > static_cast<size_t>(cache_->max_step_rows())) return;
    const auto stride = static_cast<size_t>(cache_->geometry().kv_stride());
    const ScriptRows values = RowValues(cache_->geometry(), op.rows, op.layer, op.positions);
    for (size_t first = 0; first < op.positions.size(); first += rows) {
      const size_t count = std::min(rows, op.positions.size() - first);
      cache_->Update(op.layer, std::span(op.positions).subspan(first, count),
                     std::span(values.keys).subspan(first * stride, count * stride),
                     std::span(values.values).subspan(first * stride, count * stride));
    }
  }

 private:
  void Update(const ScriptOp& op, std::span<const int32_t> positions) {
    ScriptRows rows = RowValues(cache_->geometry(), op.rows, op.layer, positions);
    rows.keys.resize(static_cast<size_t>(
        std::max<int64_t>(0, static_cast<int64_t>(rows.keys.size()) + op.extra_keys)));
    rows.values.resize(static_cast<size_t>(
        std::max<int64_t>(0, static_cast<int64_t>(rows.values.size()) + op.extra_values)));
    cache_->Update(op.layer, positions, rows.keys, rows.values);
  }

  // A step as the engine makes it: in place, or as an update when that is refused.
  void WriteInPlace(const ScriptOp& op) {
    const auto slot = cache_->TryReserveSlot(op.layer, op.positions);
    if (!slot) return Update(op, op.positions);
    const ScriptRows rows = RowValues(cache_->geometry(), op.rows, op.layer, op.positions);
    std::ranges::copy(rows.keys, slot->keys.begin());
    std::ranges::copy(rows.values, slot->values.begin());
    cache_->CommitSlot(op.layer, op.positions);
  }

  std::unique_ptr<KvCache> cache_;
};

inline ScriptDriver DriverFor(const CacheScript& script) { return ScriptDriver(CacheFor(script)); }

// Everything that a reader sees, each query included.
inline std::string Observed(const KvCache& cache) {
  DigestBuilder builder;
  KvView view;
  for (int32_t layer = 0; layer < cache.geometry().num_layers; ++layer) {
    const int32_t length = cache.length(layer);
    builder.AddU32(static_cast<uint32_t>(length));
    const int32_t first = cache.first_position(layer);
    builder.AddU32(static_cast<uint32_t>(first));
    for (int32_t query = first == 0 ? 0 : first + cache.attention_window(layer) - 1; query < length;
         ++query) {
      cache.ViewForQuery(layer, query, &view);
      const KvRows rows = DecodeRows(view, cache.geometry().kv_stride());
      const auto read = static_cast<size_t>((query + 1 - first) * cache.geometry().kv_stride());
      builder.AddFloats(std::span(rows.keys).first(read));
      builder.AddFloats(std::span(rows.values).first(read));
    }
  }
  return builder.Finish().Hex() + DigestOfCache(cache).Hex() + cache.StorageDigest().Hex();
}

inline std::vector<int32_t> LengthsOf(const KvCache& cache) {
  std::vector<int32_t> lengths;
  for (int32_t layer = 0; layer < cache.geometry().num_layers; ++layer) {
    lengths.push_back(cache.length(layer));
  }
  return lengths;
}

// What settles a step in progress, so that only rows are left to compare.
inline std::string Settled(KvCache& cache) {
  cache.Rollback(cache.current_length());
  return Observed(cache);
}

inline void Run(ScriptDriver* driver, std::span<const ScriptOp> ops) {
  for (const ScriptOp& op : ops) driver->Apply(op);
}

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_SCRIPT_DRIVER_TEST_UTIL_H_
