// What becomes of the findings of a campaign: each fault is reported once, kept in a file, and
// exported as a test.
#ifndef LOCKSTEP_CI_LOCKSTEP_FINDING_KEEPER_H_
#define LOCKSTEP_CI_LOCKSTEP_FINDING_KEEPER_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ci/shard/shard.h"
#include "properties/fuzz.h"

namespace lockstep::cli {

struct KeeperOptions {
  std::string out;          // a folder, which ends with '/' or is there; else one file; or empty
  std::string export_test;  // a C++ source for the first finding, or empty
  std::string plant;        // that was planted
};

class FindingKeeper {
 public:
  explicit FindingKeeper(KeeperOptions options);

  // Whether the campaign goes on after a finding: it does when each has a file of its own.
  bool goes_on() const { return is_folder_; }
  int64_t faults() const { return static_cast<int64_t>(seen_.size()); }

  // All that was kept, in order.
  const std::vector<ShardFinding>& kept() const { return kept_; }

  // Whether nothing with this place was kept yet.
  bool IsNew(const FuzzFinding& finding) const { return seen_.count(finding.place) == 0; }

  // Keeps the smallest input of a new finding, and says where and how to run it again.
  // Throws Error when a file cannot be written; the text is on standard output by then.
  void Keep(std::string_view target, const FuzzFinding& finding, const std::string& text);

 private:
  KeeperOptions options_;
  bool is_folder_ = false;
  std::set<std::string> seen_;  // places
  std::vector<ShardFinding> kept_;
};

// Throws Error unless all of `text` is in the file afterwards.
void WriteTextFile(const std::string& path, const std::string& text);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_FINDING_KEEPER_H_
