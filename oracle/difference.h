// Where two runs first differ, as plain data: a fault found in a subject is collected, not thrown.
#ifndef LOCKSTEP_ORACLE_DIFFERENCE_H_
#define LOCKSTEP_ORACLE_DIFFERENCE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "caches/kv_cache.h"
#include "engine/trace.h"

namespace lockstep {

// Distance between two floats in units in the last place: how many binary32 values lie between
// them, counting -0 and +0 as neighbours. nullopt when either is a NaN and the other is not.
// Equal canonical bits (digest.h) are 0 apart.
std::optional<uint64_t> UlpDistance(float a, float b);

struct Difference {
  enum class Kind : uint8_t {
    kBetweenSteps,  // a row that was equal after a step changed before the next one
    kStage,         // a traced stage of the forward pass
    kCacheRow,      // a row of the cache after the step
    kLength,        // a layer's length after the step
    kLogits,
    kStorage,    // raw stored bytes, with equal logical rows
    kPath,       // the write path that ran is not the one that had to run
    kException,  // one side threw
  };

  Kind kind = Kind::kStage;
  int32_t step = 0;       // 0 is the prefill
  int32_t layer = -1;     // -1 where the place belongs to no layer
  std::string place;      // "K row", "V row", a stage's name, "logits", "length", ...
  int32_t position = -1;  // of the row, -1 where none
  int64_t element = -1;   // within the row, -1 where none
  float subject = 0;      // the two values, where there is an element
  float oracle = 0;
  std::string detail;  // for kinds without values: one sentence

  // One sentence: place, then both values in hex and decimal with their ulp distance.
  std::string Sentence() const;
};

// The first row and element where the views of one layer differ: K before V, then by position.
// nullopt when all rows of the common length have the same canonical bits.
std::optional<Difference> FirstRowDifference(const KvCache& subject, const KvCache& oracle,
                                             int32_t layer);

// The first traced row that differs, in order of computation; nullopt when the traces agree.
// Traces of different shape differ at the first entry that does not match.
std::optional<Difference> FirstTraceDifference(std::span<const RecordingTrace::Entry> subject,
                                               std::span<const RecordingTrace::Entry> oracle);

// Index of the first element whose canonical bits differ, or -1. REQUIRES: equal sizes.
int64_t FirstFloatDifference(std::span<const float> subject, std::span<const float> oracle);

}  // namespace lockstep

#endif  // LOCKSTEP_ORACLE_DIFFERENCE_H_
