// A program on a terminal of its own, and somebody who types into it, for tests.
#ifndef LOCKSTEP_CI_LOCKSTEP_TEST_TERMINAL_H_
#define LOCKSTEP_CI_LOCKSTEP_TEST_TERMINAL_H_

#include <sys/types.h>
#include <termios.h>

#include <functional>
#include <string>
#include <string_view>

namespace lockstep::cli {

class TestTerminal {
 public:
  // Forks: the child's standard streams are the terminal, and it ends with what `program` returns.
  explicit TestTerminal(const std::function<int()>& program);
  ~TestTerminal();
  TestTerminal(const TestTerminal&) = delete;
  TestTerminal& operator=(const TestTerminal&) = delete;

  void Type(std::string_view keys);
  // Waits until the program printed `text` behind what was waited for last; a test failure when it
  // does not within some seconds. Returns all that it printed up to there.
  std::string WaitFor(std::string_view text);
  // Whether the terminal gives single keys, waiting until it is so; false after some seconds.
  bool WaitForKeyMode();
  termios Mode() const;

  pid_t child() const { return child_; }
  // Waits for the end of the child and returns waitpid's status.
  int Wait();
  // All that it printed.
  const std::string& output() const { return output_; }

 private:
  bool ReadSome(int milliseconds);

  pid_t child_ = -1;
  int terminal_ = -1;  // the side of the one who types
  int program_side_ = -1;
  std::string output_;
  size_t seen_ = 0;
};

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_TEST_TERMINAL_H_
