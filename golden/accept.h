// Accepting and rejecting what is pending.
//
// Accepting is deliberate: it takes a reason, a few files at a time, and only what this binary
// computes now, twice, on other kernels and with other threads alike. A golden file that is
// accepted is written by rename, its reason before it (golden/publish.h).
#ifndef LOCKSTEP_GOLDEN_ACCEPT_H_
#define LOCKSTEP_GOLDEN_ACCEPT_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "golden/pending.h"

namespace lockstep {

// More files than these need one reason for all. Those recorded with an older arithmetic version do
// not count: raising it (engine/ARITHMETIC.md) is a reason to record everything again.
inline constexpr size_t kAcceptFilesMax = 5;

// A reason is a sentence. One or two words ("fix", "update goldens") say nothing that the change
// does not say itself.
inline constexpr size_t kReasonWordsMin = 3;

struct AcceptRequest {
  GoldenTree tree = {};
  std::vector<std::string> names = {};  // as ChoosePending takes them; empty: all, with all_because
  std::string reason = {};
  std::string all_because = {};  // instead of `reason`: the reason for any number of files
  std::string issue = {};        // may be empty
  std::string author = {};
  std::string date = {};                                          // as in LedgerEntry
  RecordOptions record = {};                                      // its models and subject alone
  std::function<void(const std::string& text)> on_progress = {};  // may be empty
};

// A file that cannot be accepted, because its bits are not certain.
struct AcceptRefusal {
  GoldenName golden;
  std::string sentence;
  std::vector<FactChange> changes;  // the first is what the sentence names
};

struct AcceptResult {
  std::vector<GoldenName> finished;     // left by an interrupted acceptance, done now
  std::vector<PendingGolden> accepted;  // none when there are refusals
  std::vector<AcceptRefusal> refusals;
  Acceptance acceptance;  // what the ledger says of all that was accepted
};

// All of what is chosen, or nothing. An interrupted acceptance is finished first; a request without
// names and reason does that alone. Throws Error for wrong use: no reason, too many files, a name
// that chooses nothing, CI set, a model file that is not here, another acceptance at this moment.
AcceptResult AcceptGoldens(const AcceptRequest& request);

// Removes the pending files that `names` choose, all with no names, and leaves the golden files.
// Returns what was rejected. Throws Error where nothing can be rejected.
std::vector<PendingGolden> RejectGoldens(const GoldenTree& tree,
                                         std::span<const std::string> names);

// Finishes what an interrupted acceptance left, and returns it. Throws Error as the two above.
std::vector<GoldenName> FinishAcceptances(const GoldenTree& tree);

// Throws Error, with `where`, for what is no reason: less than kReasonWordsMin words, several
// lines, or text that is not UTF-8.
void CheckReason(std::string_view where, std::string_view reason);

// What an acceptance records again, apart from a plain repetition.
struct AcceptVariation {
  std::string name;  // "kernels scalar"
  const KernelTable* kernels = nullptr;
  int32_t threads = 1;
};
std::vector<AcceptVariation> AcceptVariations();

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_ACCEPT_H_
