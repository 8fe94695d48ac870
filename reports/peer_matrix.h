// What an engine is invariant under: the determinism matrix of whole engines, through the engine
// protocol (docs/engine-protocol.md).
//
// One text is computed in the plainest way, a token at a time, alone, on one thread: the reference.
// Then it is computed again in every way that each axis lists, and after each step that ends at a
// position what the engine says there is compared with the reference bit for bit. Where bits
// differ, how far apart they are: in units in the last place, in nats, and whether another token is
// the likeliest.
#ifndef LOCKSTEP_REPORTS_PEER_MATRIX_H_
#define LOCKSTEP_REPORTS_PEER_MATRIX_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reports/peer_engine.h"
#include "reports/table.h"

namespace lockstep {

struct EngineMatrixModel {
  std::string name;
  std::string path;  // of a GGUF file
};

struct EngineMatrixOptions {
  std::vector<std::string> command;  // the engine
  int timeout_seconds = 120;
  std::vector<EngineOption> options = {};  // given to every load
  std::vector<int32_t> threads = {2, 3, 7};
  std::vector<std::string> axes = {};  // empty: all
  int32_t tokens = 48;                 // of the text, random; at least 16
  uint64_t seed = 1;
  std::function<void(const std::string& text)> on_progress = {};  // may be empty
};

struct EngineCell {
  enum class Verdict : uint8_t {
    kEqual,
    kDiffers,
    kFailed,  // it crashed, hung, broke the protocol, refused what is right or took what is not
    kUnsupported,  // as the engine says itself
  };

  std::string_view axis;
  std::string value;
  Verdict verdict = Verdict::kEqual;
  int64_t compared = 0;  // positions, over all models
  int64_t changed = 0;
  uint64_t ulp_max = 0;
  double kl_max = 0;              // nats
  int64_t likeliest_changed = 0;  // positions
  std::string detail = {};        // the first difference or failure, one sentence
};

struct EngineMatrix {
  std::string engine;          // as it says
  bool probabilities = false;  // it gives these, not logits
  uint64_t seed = 0;
  std::vector<std::string> models;
  std::vector<EngineCell> cells;

  bool holds() const;     // no cell differs or failed
  bool compared() const;  // some cell is equal
};

// Throws Error for an unknown axis, when the engine cannot be started or is none, and when it
// refuses a model. What it does wrong after that is a cell's verdict; the next cell meets a new
// process.
EngineMatrix RunEngineMatrix(std::span<const EngineMatrixModel> models,
                             const EngineMatrixOptions& options);

// The axes with what varies on each, in the matrix's order.
struct EngineAxis {
  std::string_view name, what;
};
std::span<const EngineAxis> EngineAxes();

Table EngineMatrixTable(const EngineMatrix& matrix);
std::string EngineMatrixMarkdown(const EngineMatrix& matrix, const std::string& command);
std::string EngineMatrixJson(const EngineMatrix& matrix, const std::string& command);
// One sentence: "EQUAL: 24 cells ...".
std::string EngineMatrixVerdict(const EngineMatrix& matrix);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_PEER_MATRIX_H_
