// The source tree as tidy's rules see it: lines of text, held in memory, so that a rule is tested
// on a small tree that a test writes down.
#ifndef LOCKSTEP_CI_TIDY_TREE_H_
#define LOCKSTEP_CI_TIDY_TREE_H_

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tidy {

enum class Language { kCpp, kCMake, kShell, kOther };

struct SourceFile {
  std::string path;  // relative to the root, with '/'
  Language language = Language::kOther;
  bool is_executable = false;    // by its owner
  std::vector<std::string> raw;  // the lines as they stand
  // The same lines, columns kept, with comments blanked and, in C++, the contents of string and
  // character literals too: what a rule about code looks at.
  std::vector<std::string> code;

  std::string_view folder() const;  // "caches" of "caches/a/b.h", "" of a top-level file
  bool is_header() const;           // C++ or CUDA
  bool is_source() const;
  bool is_test() const;  // "..._test.cc"
};

struct SourceTree {
  std::vector<SourceFile> files;

  const SourceFile* Find(std::string_view path) const;  // nullptr when absent
};

SourceFile MakeSourceFile(std::string path, std::string_view text);

// The files of the checkout at `root`, sorted by path: those that git tracks or would track, or all
// but hidden and build folders where git does not answer. Throws Error when `root` is no folder.
SourceTree ReadTree(const std::string& root);

// C++ text of the same length and lines, comments and the contents of literals replaced by spaces.
std::string BlankCpp(std::string_view text);

// One text again; line i begins after the i-th newline.
std::string JoinLines(const std::vector<std::string>& lines);

}  // namespace lockstep::tidy

#endif  // LOCKSTEP_CI_TIDY_TREE_H_
