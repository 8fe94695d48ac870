// The tree of cases on the disk: which golden files hold, which do not, and the pending files that
// would replace them.
//
//   golden/cases/gqa/case.toml              a scenario (golden/scenario.h)
//   golden/cases/gqa/f32.golden             what its caches of F32 rows gave when it was accepted
//   golden/cases/gqa/f32.golden.pending     what they gave last, where that is something else;
//                                           below --pending-dir where the tree cannot be written
#ifndef LOCKSTEP_GOLDEN_STORE_H_
#define LOCKSTEP_GOLDEN_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "golden/facts.h"
#include "golden/ledger.h"
#include "golden/record.h"
#include "golden/scenario.h"

namespace lockstep {

struct GoldenTree {
  std::string folder = "golden/cases";
  std::string pending_dir = {};  // empty: beside the golden files

  // Names of the folders below it, sorted. Throws Error when there is no such folder.
  std::vector<std::string> CaseNames() const;

  std::string GoldenPath(std::string_view name, std::string_view rows) const;
  std::string PendingPath(std::string_view name, std::string_view rows) const;
  std::string LedgerPath() const;  // beside the folder: "golden/ledger.jsonl"
};

enum class GoldenState : uint8_t {
  kEqual,
  // Its model file is not here, or no cache on a device can do it; the golden file was read, and
  // is of this scenario.
  kSkipped,
  kChanged,      // the caches give something else
  kMissing,      // no golden file yet
  kDisagree,     // caches that share the file give different facts: no file can be right for all
  kObsolete,     // a golden file that no case produces
  kUnreadable,   // a conflict marker, an edit by hand, a case.toml with a mistake
  kStray,        // a file that nobody reads
  kUnaccounted,  // not what the ledger says last of it (golden/ledger.h)
};
std::string_view GoldenStateName(GoldenState state);  // "equal", ...

// Whether a check with such a file holds.
bool HoldsWith(GoldenState state);

struct GoldenStatus {
  std::string scenario;
  std::string file;  // in its folder: "f32.golden"
  GoldenState state = GoldenState::kEqual;
  std::string detail = {};               // one sentence; empty when equal
  std::vector<FactChange> changes = {};  // of kChanged and kDisagree
  std::vector<std::string> caches = {};  // that were recorded
  std::string pending = {};              // the path of the pending file, if there is one
};

struct CheckOptions {
  GoldenTree tree = {};
  std::vector<std::string> cases = {};  // empty: all
  std::string cache = {};               // this cache alone, where a case has it
  // Its cache is not looked at. With its device, the caches that store rows like the case's and
  // have them there take the place of the case's.
  RecordOptions record = {};
  // Writes a pending file for what is changed or missing, all or nothing, and removes one that its
  // golden file is equal to now. Only for recordings on all caches and the direct path.
  bool write_pending = false;
  std::function<void(const std::string& text)> on_progress = {};  // may be empty
};

// Every file below the tree's folder, or of the cases that are named, by case and file; behind them
// what the ledger alone has. Throws Error for a case that is not there, a ledger that cannot be
// read, and what cannot be written.
std::vector<GoldenStatus> CheckGoldens(const CheckOptions& options);

// Digest of the text of every golden file that is there, as CompareWithLedger takes them.
std::map<GoldenName, std::string> GoldenDigests(const GoldenTree& tree);

// Whether the environment says that a machine runs this which keeps nothing: `CI` is set.
bool InContinuousIntegration();

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_STORE_H_
