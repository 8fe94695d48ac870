// lockstep verify --matrix: the determinism matrix (oracle/matrix.h) as a command.
#ifndef LOCKSTEP_CI_LOCKSTEP_MATRIX_COMMAND_H_
#define LOCKSTEP_CI_LOCKSTEP_MATRIX_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ci/lockstep/command.h"
#include "ci/lockstep/decoding_flags.h"
#include "ci/lockstep/model_source.h"

namespace lockstep::cli {

struct MatrixFlags {
  static constexpr int32_t kDefaultDecodeSteps = 8;

  bool matrix = false;            // --matrix
  std::vector<std::string> axes;  // --axis; empty: all
  std::string control;            // --control: planted as the subject of its axis
  std::string compilers;          // --compilers: what ci/compilers wrote
  std::string aarch64;            // --aarch64: the probe's lines from there
  std::string json_file;          // --json-file
  std::string svg;                // --svg
  std::string html;               // --html
  bool digests = false;           // --digests: print lines for another process, and nothing else
  bool probe = false;             // --probe: with --digests, those of the probe's models
  std::string shard = "1/1";      // --shard: every n-th axis, from the i-th
  std::string shard_file;         // --shard-file: what ran, for lockstep merge
  bool every_model = false;       // --every-model: small synthetic ones, with and without adapters
  bool every_type = false;        // --every-type: every family in every weight type
  std::string weights;            // --weights: of these types one alone; empty: all

  // Shared with verify without --matrix.
  ModelSource source = {};
  std::string prompt = {};  // empty: tokens made from the seed
  int32_t decode_steps = 0;
  std::vector<std::string> caches = {};
  std::string isa = {};
  bool json = false;
  AdapterFlags adapters = {};

  // The flags that only --matrix has, bound to this object.
  std::vector<Flag> Flags();

  // The first flag that was given and needs --matrix; empty when there is none.
  std::string NeedsMatrix() const;

  // The command that repeats this run, on one axis if one is named.
  std::string CommandLine(std::string_view axis = {}) const;
};

ExitCode RunMatrixCommand(const MatrixFlags& flags);

// The names that --axis and --control take.
std::string MatrixDetails();

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_MATRIX_COMMAND_H_
