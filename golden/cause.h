// Why rows are not what they should be: which class of mistake leaves these rows, and what speaks
// for it.
//
// A cause is named because its mistake, made on purpose, gives the rows as they are. Some mistakes
// can be seen in the two versions of the rows alone (zeros, a constant ratio, one bit); the others
// are handed in as candidates: rows as a certain mistake would have left them (golden/mistakes.h),
// and rows that lie around, which may have got here. What nothing explains is unknown.
#ifndef LOCKSTEP_GOLDEN_CAUSE_H_
#define LOCKSTEP_GOLDEN_CAUSE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caches/kv_cache.h"
#include "engine/trace.h"

namespace lockstep {

// Of two that explain the same, the first is named.
enum class Cause : uint8_t {
  kReductionOrder,     // all differences are rounding, without structure
  kUnwritten,          // zeros, or the poison of memory without rows
  kNotRotated,         // equals the stage before RoPE
  kWrongPosition,      // equals RoPE at another position
  kRotatedTwice,       // equals RoPE at twice the position
  kRopePairing,        // equals RoPE of other pairs of dimensions
  kRopeFrequencies,    // pairs keep their lengths, and are turned by other angles
  kKvSwapped,          // K where V should be, or the reverse
  kStaleRow,           // a row that an earlier occupant of the place left
  kShiftedRow,         // the row of another position
  kOtherSequence,      // the row of another sequence
  kHeadMapping,        // another head's elements
  kMask,               // attention over more rows or fewer
  kWindow,             // rows are exact where they should be stored ones, or the reverse
  kMissingBias,        // a projection without its bias
  kAdapters,           // a product without its LoRA adapters, or with other ones
  kMissingResidual,    // a sum without the stream
  kMissingNormWeight,  // normed, and not multiplied by the weight
  kMissingNorm,        // not normed
  kWrongEpsilon,       // normed, with epsilon in another place
  kGateUpSwapped,      // the gate and what it gates, exchanged
  kWrongScale,         // a constant ratio
  kQuantization,       // other codes of quantized rows or activations
  kTruncatedTail,      // the last elements only
  kSingleBit,          // one bit, or bits of one byte, of one element
  kWritePath,          // right rows on another write path
  kLength,             // rows kept or lost
  kOutcome,            // an operation ended in another way
  kUnknown,
};

std::string_view CauseName(Cause cause);                // "wrong position"
std::optional<Cause> FindCause(std::string_view name);  // the reverse
std::span<const Cause> AllCauses();                     // in their order, kUnknown last

// Rows as one mistake would have left them.
struct CauseCandidate {
  Cause cause = Cause::kUnknown;
  std::string says;                 // what the rows then equal: "RoPE at position 8"
  std::vector<double> values;       // [n, width]
  std::vector<double> bounds = {};  // [n, width], or empty: these bits
};

// One row that lies around.
struct KnownRow {
  Cause cause = Cause::kUnknown;  // when it is found here
  std::string says;               // "the K row of position 3"
  std::vector<float> values;      // [width]
  int32_t row = -1;               // the only row that it may be found in, -1: any
  int32_t home = -1;              // the row that it belongs to, where finding it says nothing
};

// The rows in question, [n, width].
struct CausePlace {
  Stage stage = Stage::kEmbedding;
  int64_t width = 0;
  std::span<const int32_t> positions = {};  // [n]
  int32_t head_dim = 0;                     // 0: rows have no heads
  RowType row_type = RowType::kF32;         // how the rows were stored, of a cache's
  std::span<const float> is = {};           // as they are
  std::span<const double> should = {};      // as they should be,
  std::span<const double> bounds = {};      // give or take this; empty: to the bit
};

struct CauseVerdict {
  Cause cause = Cause::kUnknown;
  std::string evidence;  // one sentence
  double share = 0;      // of the pieces (rows, or heads of rows) that differ, explained by it
};

// The likeliest cause. REQUIRES: spans of one size, whole rows, something differs (LS_CHECK).
CauseVerdict ClassifyCause(const CausePlace& place, std::span<const CauseCandidate> candidates,
                           std::span<const KnownRow> known);

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_CAUSE_H_
