// A whole engine as a child process, driven through the engine protocol: docs/engine-protocol.md.
//
// lockstep speaks it as well (peer_serve.h), and so does llama.cpp by reports/peer/engine.mjs.
#ifndef LOCKSTEP_REPORTS_PEER_ENGINE_H_
#define LOCKSTEP_REPORTS_PEER_ENGINE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caches/error.h"

namespace lockstep {

inline constexpr int32_t kEngineProtocolVersion = 1;

// What an engine says of itself.
struct EngineHello {
  std::string engine;          // name and version, one line
  bool probabilities = false;  // what a step gives are probabilities, not logits
  bool can_fork = false;
  bool can_tokenize = false;
  std::vector<std::string> options = {};  // names that `load` takes
};

struct EngineOption {
  std::string name, value;
};

struct EngineLoad {
  std::string model;      // path of a GGUF file
  int32_t positions = 0;  // of each sequence; 0: only the vocabulary is needed
  int32_t sequences = 1;  // numbered from 0, all empty afterwards
  int32_t threads = 1;
  std::vector<EngineOption> options = {};
};

// Tokens that one step appends to one sequence.
struct EngineRows {
  int32_t sequence = 0;
  int32_t position = 0;  // of the first: the sequence's length
  std::span<const int32_t> tokens;
  bool output = true;  // whether the last token's values are wanted
};

// The engine crashed, hung, or said something that the protocol does not know. Nothing can be asked
// of it any more.
class EngineFailure : public Error {
 public:
  using Error::Error;
};

// The engine answered a request with an error, and goes on.
class EngineRefusal : public Error {
 public:
  using Error::Error;
};

class EngineSession {
 public:
  // Starts argv and says hello. An answer may take `timeout_seconds`. Throws EngineFailure; Error
  // when nothing can be started.
  EngineSession(const std::vector<std::string>& argv, int timeout_seconds);
  ~EngineSession();
  EngineSession(const EngineSession&) = delete;
  EngineSession& operator=(const EngineSession&) = delete;

  const EngineHello& hello() const;

  // Each throws EngineFailure or EngineRefusal.
  //
  // Returns the size of the vocabulary.
  int32_t Load(const EngineLoad& load);
  // Logits or probabilities, [vocab_size] for each of `rows` with an output, in their order.
  std::vector<std::vector<float>> Step(std::span<const EngineRows> rows);
  std::vector<float> Step(const EngineRows& rows);
  void Rollback(int32_t sequence, int32_t length);
  void Fork(int32_t from, int32_t to);
  void Reset();
  std::vector<int32_t> Tokenize(std::string_view text);

  // A request as it stands, for what a subject has to refuse: `request` is a JSON object without
  // "id". Returns the error of the answer, or nothing when there is none.
  std::string ErrorOf(const std::string& request);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_PEER_ENGINE_H_
