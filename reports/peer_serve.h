// lockstep's own engine behind the engine protocol (docs/engine-protocol.md): the reference subject
// of whatever tests engines through it, and the one that planted faults are put into.
#ifndef LOCKSTEP_REPORTS_PEER_SERVE_H_
#define LOCKSTEP_REPORTS_PEER_SERVE_H_

#include <memory>
#include <string>

#include "oracle/matrix_controls.h"

namespace lockstep {

struct EngineServerOptions {
  // A fault that the engine is to have: kernels or caches of a control of the determinism matrix.
  // nullptr: none.
  const MatrixControl* control = nullptr;
};

class EngineServer {
 public:
  // Throws Error for a control that is another build's, not a fault of kernels or caches.
  explicit EngineServer(const EngineServerOptions& options = {});
  ~EngineServer();
  EngineServer(const EngineServer&) = delete;
  EngineServer& operator=(const EngineServer&) = delete;

  // The answer to a request, as it goes over: its line, newline included, and the bytes behind it.
  // A request that is wrong, or whose model cannot be read, has an error and changes nothing.
  std::string Answer(const std::string& line);

  // Whether the last request was "quit".
  bool ended() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_PEER_SERVE_H_
