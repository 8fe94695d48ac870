// Cache scripts: what is done to a cache, as plain data. One union of operations that generators
// make, the runner executes, the shrinker cuts, and people read, write and replay.
//
// Three forms, all of them complete:
//   text   one operation a line, see ParseScript; what failures print and `lockstep replay` takes;
//   JSON   the same fields, for other programs;
//   bytes  total: every byte string is a legal script, so that a fuzzer wastes no input.
#ifndef LOCKSTEP_PROPERTIES_SCRIPT_H_
#define LOCKSTEP_PROPERTIES_SCRIPT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caches/kv_cache.h"

namespace lockstep {

enum class ScriptOpKind : uint8_t {
  kUpdate,    // layer, positions, rows, extra_keys, extra_values
  kReserve,   // layer, positions
  kWrite,     // layer, rows: fills the open slot; nothing when there is none
  kCommit,    // layer, positions
  kAbandon,   // layer: the writer walks away; no call
  kRollback,  // target: the length
  kClear,
  kFork,     // the current sequence; nothing when there are already kMaxSequences
  kEnd,      // destroys the current sequence, unless it is the last one
  kSwitch,   // target: the sequence that the next operations go to, modulo their number
  kSave,     // the current sequence into memory, after a rollback to its own length
  kRestore,  // the last save into the current sequence; nothing when there is none
  kRead,     // layer, target: the query's position; reads, also such as must throw
};
inline constexpr int kScriptOpKinds = 13;
inline constexpr int32_t kMaxSequences = 3;

std::string_view ScriptOpName(ScriptOpKind kind);  // "update", ...

struct ScriptOp {
  ScriptOpKind kind = ScriptOpKind::kClear;
  int32_t layer = 0;
  std::vector<int32_t> positions = {};
  uint32_t rows = 0;  // seed of the row values, see RowValues
  int32_t target = 0;
  int32_t extra_keys = 0;  // elements too many (or, negative, too few)
  int32_t extra_values = 0;

  friend bool operator==(const ScriptOp&, const ScriptOp&) = default;
};

struct CacheScript {
  std::string cache;  // a name of caches/registry.h
  KvGeometry geometry;
  int32_t blocks = 0;  // paged: blocks of the pool; 0: enough for kMaxSequences
  std::vector<ScriptOp> ops;

  friend bool operator==(const CacheScript&, const CacheScript&) = default;
};

// Text. The first line is "cache NAME layers=L heads=H dim=D max=M window=W full_interval=I
// blocks=B", the windows of the layers for caches that keep those alone; then one operation a line,
// "update layer=0 at=0..3,7 rows=5", in the field order of ScriptOp, defaults left out. Positions
// are numbers and inclusive rising ranges; "at=none" is the empty list. '#' begins a comment.
// ParseScript(ScriptText(s)) == s.
std::string ScriptText(const CacheScript& script);
std::string ScriptOpText(const ScriptOp& op);

// Throws Error with `where` and the line for anything else.
CacheScript ParseScript(std::string_view text, std::string_view where);

std::string ScriptJson(const CacheScript& script);
CacheScript ParseScriptJson(std::string_view json, std::string_view where);

// Every byte string is a script over `cache`; bytes beyond the end count as zero. Geometries are
// tiny, positions mostly near the interesting places.
CacheScript DecodeScript(std::string_view cache, std::span<const std::byte> bytes);

// Rows [n, kv_stride] of one operation, from its seed: K and V are disjoint in value, every layer,
// position and element has its own, so that nothing can be exchanged unseen. One seed in four gives
// what codecs and comparisons have edges for (both zeros, tiny, huge, ties, infinities, NaN).
struct ScriptRows {
  std::vector<float> keys;
  std::vector<float> values;
};
ScriptRows RowValues(const KvGeometry& geometry, uint32_t seed, int32_t layer,
                     std::span<const int32_t> positions);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_SCRIPT_H_
