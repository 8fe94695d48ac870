// A child process that answers one line with one line.
#ifndef LOCKSTEP_REPORTS_PEER_PROCESS_H_
#define LOCKSTEP_REPORTS_PEER_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace lockstep::internal {

class LineProcess {
 public:
  // Starts argv[0], found along PATH; its standard input and output are this object's, its standard
  // error is the caller's. An answer that takes longer than `timeout_seconds` is an Error.
  // Throws Error when it cannot be started.
  LineProcess(const std::vector<std::string>& argv, int timeout_seconds);
  // Ends the child, by SIGKILL when it does not end by itself once its input is closed.
  ~LineProcess();
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;

  // Both throw Error when the child has ended or does not answer in time. Lines are without the
  // newline.
  std::string ReadLine();
  std::string Ask(const std::string& line);

 private:
  [[noreturn]] void Fail(const std::string& what) const;

  std::string name_;
  int timeout_seconds_;
  pid_t child_ = -1;
  int socket_ = -1;
  std::string unread_;
};

}  // namespace lockstep::internal

#endif  // LOCKSTEP_REPORTS_PEER_PROCESS_H_
