// Classes of sequences of operations: what was done before counts as much as where. A campaign that
// never reached one has not tested it.
#ifndef LOCKSTEP_PROPERTIES_OPERATION_CLASSES_H_
#define LOCKSTEP_PROPERTIES_OPERATION_CLASSES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "properties/script.h"
#include "properties/script_clauses.h"

namespace lockstep {

enum class OperationClass : uint8_t {
  kRefusedThenCommitted,      // granted, a second one refused, the first committed [R2]
  kReserveReplaces,           // granted over an open one [R6]
  kCommitTwice,               // the same positions once more [C2]
  kCommitOther,               // other positions than the open ones [C2]
  kCommitWithGap,             // [C1, V2]
  kUpdateOverReservation,     // [U6]
  kRollbackOverReservation,   // a clear too [B2]
  kWriteAfterRollback,        // the writer comes late: its slot is gone, and nothing is written
  kForkOverReservation,       // [B4]
  kEndOverReservation,        // [B3]
  kRestoreOverReservation,    // [S1]
  kExhaustedOverReservation,  // [U1, R2]
  kInterleaved,               // one sequence writes, another, the first again
  kRedo,                      // rows are written again after a rollback took them [B2]
  kRewriteAfterFork,          // a row that both sequences have is rewritten by one [B4]
};
inline constexpr size_t kOperationClasses = 15;

std::string_view OperationClassName(OperationClass operation_class);  // "commit_twice", ...

using OperationClassCounts = std::array<int64_t, kOperationClasses>;

// Of the sequence that an operation goes to, before it.
struct OperationContext {
  int32_t sequence = 0;
  int32_t length = 0;         // of the operation's layer
  std::vector<int32_t> open;  // positions reserved there
  bool any_open = false;      // at any layer
};

class OperationClassCounter {
 public:
  // After each operation of a script, with the outcome that both sides agree on; an operation that
  // the runner left out counts as refused.
  void Count(const ScriptOp& op, Outcome outcome, const OperationContext& context,
             OperationClassCounts* counts);

 private:
  struct Layer {
    bool refused = false;            // since the open reservation was granted
    std::vector<int32_t> committed;  // last
    int32_t taken_to = 0;            // rows that a rollback took reached so far
    bool closed_by_rollback = false;
    int32_t shared_rows = 0;  // when the sequence was forked last
  };

  Layer& At(int32_t sequence, int32_t layer) { return layers_[{sequence, layer}]; }
  void CountReserve(const ScriptOp& op, bool granted, const OperationContext& context);
  void CountWritten(const ScriptOp& op, const OperationContext& context);
  void CountCommit(const ScriptOp& op, const OperationContext& context);
  void CountRollback(const OperationContext& context);
  void Add(OperationClass operation_class, bool holds = true);

  std::map<std::pair<int32_t, int32_t>, Layer> layers_;  // by sequence and layer
  std::map<std::pair<int32_t, int32_t>, int32_t> lengths_;
  std::array<int32_t, 2> writers_ = {-1, -1};  // the last two sequences that wrote, newest first
  OperationClassCounts* counts_ = nullptr;
};

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_OPERATION_CLASSES_H_
