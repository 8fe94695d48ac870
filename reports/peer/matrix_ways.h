// The ways in which the engine matrix (reports/peer_matrix.h) computes one text.
#ifndef LOCKSTEP_REPORTS_PEER_MATRIX_WAYS_H_
#define LOCKSTEP_REPORTS_PEER_MATRIX_WAYS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "reports/peer_engine.h"

namespace lockstep::internal {

// The protocol was kept in form and broken in substance: one sentence.
class WrongAnswer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a way has to do its work with. The engine is loaded anew, with the way's sequences and
// threads.
struct WayInput {
  EngineSession& session;
  std::span<const int32_t> text;      // what the reference computed
  std::span<const int32_t> other[2];  // other texts of the same length
  uint64_t seed = 0;
  // What the engine said at the text's position.
  std::function<void(int32_t position, const std::vector<float>& values)> record;
  std::function<void()> load;  // once more
};

struct Way {
  std::string_view axis;
  std::string value;
  std::function<void(const WayInput&)> run;
  int32_t sequences = 1;
  int32_t threads = 1;
  bool needs_fork = false;
  bool new_process = false;
};

// All, axis by axis.
std::vector<Way> AllWays(std::span<const int32_t> threads);

}  // namespace lockstep::internal

#endif  // LOCKSTEP_REPORTS_PEER_MATRIX_WAYS_H_
