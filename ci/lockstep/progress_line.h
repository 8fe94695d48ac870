// A line about what goes on, written over and over: on a terminal. A log sees none of it.
#ifndef LOCKSTEP_CI_LOCKSTEP_PROGRESS_LINE_H_
#define LOCKSTEP_CI_LOCKSTEP_PROGRESS_LINE_H_

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

namespace lockstep::cli {

// On standard error. What is on the line is gone when this ends.
class ProgressLine {
 public:
  ProgressLine() = default;
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Show(std::string_view text) {
    if (!is_live_) return;
    fmt::print(stderr, "\r\033[K{}", text);
    is_shown_ = true;
  }

  // Before anything else is printed.
  void Clear() {
    if (is_shown_) fmt::print(stderr, "\r\033[K");
    is_shown_ = false;
  }

 private:
  bool is_live_ = isatty(STDERR_FILENO) == 1;
  bool is_shown_ = false;
};

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_PROGRESS_LINE_H_
