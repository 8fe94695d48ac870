// What a subcommand that generates text is told of it: how tokens are chosen, where the text ends,
// and which adapters are used.
#ifndef LOCKSTEP_CI_LOCKSTEP_DECODING_FLAGS_H_
#define LOCKSTEP_CI_LOCKSTEP_DECODING_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ci/lockstep/command.h"
#include "engine/adapter.h"
#include "engine/generate.h"
#include "engine/sampler.h"

namespace lockstep::cli {

struct DecodingFlags {
  uint64_t seed = 1;               // --sample-seed
  std::vector<std::string> stops;  // --stop
  int32_t log_probabilities = -1;  // --logprobs

  // All flags, bound to this object.
  std::vector<Flag> Flags();

  // Throws Error, naming the flag, for what is malformed or outside its range.
  SamplerOptions Sampler(int32_t vocab_size) const;

  // The flags that say the same again, each with a blank before it; for a shell.
  std::string CommandLine() const;

 private:
  std::string temperature_ = "0", top_p_ = "1", min_p_ = "0", repetition_ = "1", presence_ = "0",
              frequency_ = "0";
  int32_t top_k_ = 0;
  int32_t penalty_tokens_ = 64;
  std::vector<std::string> biases_;
};

// Each token's log-probabilities, a line each, on standard error; nothing where none was asked for.
void PrintLogProbabilities(const GenerateResult& result);

// "--lora FILE" or "--lora FILE=SCALE", any number.
struct AdapterFlags {
  std::vector<std::string> files;

  Flag AsFlag();
  // In the order of the flags. Throws what LoraAdapter::Load throws.
  std::vector<AppliedAdapter> Load(const ModelConfig& config) const;
  std::string CommandLine() const;
};

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_DECODING_FLAGS_H_
