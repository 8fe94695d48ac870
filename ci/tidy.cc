// tidy: the tree polices itself. Reads the checkout at the given root, prints each finding as
// "path:line: [rule] message"; exit code 0 when there is none, 1 when there are some, 2 when the
// tree cannot be read.
#include <fmt/format.h>

#include <cstdio>

#include "caches/error.h"
#include "ci/tidy/rules.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: tidy ROOT\n");
    return 2;
  }
  try {
    const lockstep::tidy::SourceTree tree = lockstep::tidy::ReadTree(argv[1]);
    const lockstep::tidy::Findings findings = lockstep::tidy::CheckTree(tree);
    for (const lockstep::tidy::Finding& finding : findings) {
      fmt::print("{}:{}: [{}] {}\n", finding.path, finding.line, finding.rule, finding.message);
    }
    fmt::print("tidy: {} files, {} findings\n", tree.files.size(), findings.size());
    return findings.empty() ? 0 : 1;
  } catch (const lockstep::Error& error) {
    fmt::print(stderr, "tidy: error: {}\n", error.what());
    return 2;
  }
}
