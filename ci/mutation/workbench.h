// A copy of the tree that edits are made in, with a build of its own.
#ifndef LOCKSTEP_CI_MUTATION_WORKBENCH_H_
#define LOCKSTEP_CI_MUTATION_WORKBENCH_H_

#include <string>
#include <vector>

#include "ci/mutation/suite.h"
#include "reports/run_process.h"

namespace lockstep::mutation {

struct WorkbenchOptions {
  std::string root;    // the tree: a git checkout; its uncommitted changes are copied too
  std::string folder;  // of the copy and its build; reused, so a second run rebuilds little
  std::vector<std::string> cmake_arguments;
};

class Workbench {
 public:
  // Brings the copy up to the tree and configures its build. Throws Error when that fails.
  explicit Workbench(const WorkbenchOptions& options);

  const std::string& build_folder() const { return build_; }

  // Writes `text` over a file of the copy / writes what the tree has.
  void Overwrite(const std::string& file, const std::string& text);
  void Restore(const std::string& file);

  struct Built {
    bool ok = false;
    bool up_to_date = false;  // nothing had to be done, so the check's verdict cannot change
    double seconds = 0;
  };
  // The targets, one job, at most `seconds_max`. `relaxed`: warnings are no errors.
  Built Build(const std::vector<std::string>& targets, double seconds_max, bool relaxed);

  // Runs a built check to its first failure. What it prints is in log() until the next call.
  ProcessEnd Run(const Check& check, double seconds_max);
  std::string log() const;

 private:
  std::string root_, source_, build_, log_path_;
};

}  // namespace lockstep::mutation

#endif  // LOCKSTEP_CI_MUTATION_WORKBENCH_H_
