// Puts accepted golden files into the tree, so that a death at any moment leaves every file whole
// and no golden file without its reason.
//
// The order is: the ledger with its new lines; then each golden file; then its pending file is
// removed. Each is one rename or one unlink. A death in between leaves a ledger that is ahead of
// the tree, which `lockstep golden check` reports, and FinishInterrupted does what is left: the
// pending file still has the text that the ledger speaks of.
#ifndef LOCKSTEP_GOLDEN_PUBLISH_H_
#define LOCKSTEP_GOLDEN_PUBLISH_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "golden/ledger.h"

namespace lockstep {

// One golden file on the disk.
struct GoldenPlace {
  GoldenName golden;
  std::string path;          // where it is, or will be
  std::string pending_path;  // where what would replace it is, if it is there
};

struct GoldenChange {
  GoldenPlace place;
  std::optional<std::string> text;  // nothing: the golden file is removed
};

// Who accepts and why: what all lines of one acceptance share.
struct Acceptance {
  std::string date = {};  // as in LedgerEntry
  std::string author = {};
  std::string reason = {};
  std::string issue = {};
  int32_t arithmetic = 0;
};

// Held while goldens or the ledger change; a second one on the same folder, of any process, is an
// Error.
class GoldenLock {
 public:
  explicit GoldenLock(const std::string& folder);
  ~GoldenLock();
  GoldenLock(const GoldenLock&) = delete;
  GoldenLock& operator=(const GoldenLock&) = delete;

 private:
  int fd_ = -1;
};

// REQUIRES: the lock is held. Error when a file cannot be written; FinishInterrupted goes on then.
void Publish(const std::string& ledger_path, std::span<const GoldenChange> changes,
             const Acceptance& acceptance);

// Does what an interrupted Publish left undone, removes its temporary files, and returns the golden
// files that it finished. REQUIRES: the lock is held; `places` are all golden files that are there,
// pending, or in the ledger.
std::vector<GoldenName> FinishInterrupted(const std::string& ledger_path,
                                          std::span<const GoldenPlace> places);

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_PUBLISH_H_
