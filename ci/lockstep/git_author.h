// Who does something, and when, as git would write it into a commit.
#ifndef LOCKSTEP_CI_LOCKSTEP_GIT_AUTHOR_H_
#define LOCKSTEP_CI_LOCKSTEP_GIT_AUTHOR_H_

#include <string>

namespace lockstep::cli {

struct GitAuthor {
  std::string author;  // "Ada <ada@example.org>"
  std::string date;    // UTC: "2026-11-30T10:00:00Z"
};

// Asks git, in `folder`: its configuration and environment, as for a commit, but nothing that git
// would guess. SOURCE_DATE_EPOCH, where it is set, is the date. Error when git is missing or does
// not know the author.
GitAuthor AskGitForAuthor(const std::string& folder);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_GIT_AUTHOR_H_
