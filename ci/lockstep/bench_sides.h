// The two sides of `lockstep bench compare`: files, executables, build folders, or a commit that is
// built first.
#ifndef LOCKSTEP_CI_LOCKSTEP_BENCH_SIDES_H_
#define LOCKSTEP_CI_LOCKSTEP_BENCH_SIDES_H_

#include <string>

namespace lockstep::cli {

// Whether the word names a file of results rather than something that is run.
bool IsResultFile(const std::string& word);

// The executable that the word means: itself, or lockstep_bench in a build folder.
std::string BenchExecutable(const std::string& word);

// What was built, and of what.
struct BuiltBench {
  std::string executable;
  std::string commit;  // with "-dirty" where the working tree differs from it
};

// lockstep_bench of the commit `revision`, in a worktree below build/bench of the repository that
// the current folder is in; an empty revision means the working tree itself. Both are configured
// alike. Prints what it does to standard error. Throws Error where git or the build fails.
BuiltBench BuildBench(const std::string& revision);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_BENCH_SIDES_H_
