// A child process that is asked and answers on its standard input and output.
#ifndef LOCKSTEP_REPORTS_PEER_PROCESS_H_
#define LOCKSTEP_REPORTS_PEER_PROCESS_H_

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "caches/error.h"

namespace lockstep::internal {

// The child ended, was silent for too long, or answered without end. To most callers that is the
// outside world; to those who test the child it is what they look for.
class ProcessFailure : public Error {
 public:
  using Error::Error;
};

class LineProcess {
 public:
  // Starts argv[0], found along PATH; its standard input and output are this object's, its standard
  // error is the caller's. An answer that takes longer than `timeout_seconds` is a ProcessFailure.
  // Throws Error when it cannot be started.
  LineProcess(const std::vector<std::string>& argv, int timeout_seconds);
  // Ends the child, by SIGKILL when it does not end by itself once its input is closed, and what
  // it started itself.
  ~LineProcess();
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;

  // All throw ProcessFailure when the child has ended or does not answer in time. Lines are without
  // the newline; one longer than 64 MiB is a failure as well.
  void Send(const std::string& line);
  std::string ReadLine();
  std::vector<std::byte> ReadBytes(size_t count);
  std::string Ask(const std::string& line);

 private:
  [[noreturn]] void Fail(const std::string& what) const;
  // How the child ended, when it does so soon: ": exit code 3".
  std::string EndOfChild();
  // Waits for more output, until `seconds` after the call of the reader.
  void ReceiveMore(double seconds);

  std::string name_;
  int timeout_seconds_;
  pid_t child_ = -1;  // -1 once it was waited for
  int socket_ = -1;
  std::string unread_;
};

}  // namespace lockstep::internal

#endif  // LOCKSTEP_REPORTS_PEER_PROCESS_H_
