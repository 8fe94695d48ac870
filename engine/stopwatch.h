// Elapsed time, for people to read: no decision of lockstep depends on a clock, and this is the one
// place below reports/ that reads it.
#ifndef LOCKSTEP_ENGINE_STOPWATCH_H_
#define LOCKSTEP_ENGINE_STOPWATCH_H_

#include <chrono>

namespace lockstep {

class Stopwatch {
 public:
  // Since construction.
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_STOPWATCH_H_
