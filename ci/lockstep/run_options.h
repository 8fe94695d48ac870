// What `lockstep run` is told.
#ifndef LOCKSTEP_CI_LOCKSTEP_RUN_OPTIONS_H_
#define LOCKSTEP_CI_LOCKSTEP_RUN_OPTIONS_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "ci/lockstep/decoding_flags.h"
#include "ci/lockstep/model_source.h"
#include "engine/thread_team.h"

namespace lockstep::cli {

struct RunOptions {
  ModelSource source;
  DecodingFlags decoding;
  AdapterFlags adapters;
  std::string draft_model;
  int32_t draft_lookup = 0;
  int32_t draft_tokens = 4;
  std::string prompt;
  int32_t max_new_tokens = 0;  // 0: as many as are usual
  std::string cache;           // empty: simple, or the one that has its rows where the layers run
  std::string isa;
  std::string device;
  int32_t gpu_layers = INT32_MAX;
  int32_t context = 0;         // positions; 0: as many as the text needs
  int32_t context_shift = -1;  // tokens that a shift keeps; negative: none shifts
  int32_t threads = DefaultThreads();
  bool watch = false;
  int32_t watch_full = 0;  // steps, 0: never
  bool no_digest = false;
  bool json = false;

  // `lockstep run` with what is not its default.
  std::string CommandLine() const;

  bool watches() const { return watch || watch_full > 0; }
  bool shifts() const { return context_shift >= 0; }

  // For a text of so many, on a model of so many.
  int32_t Positions(int32_t needed, int32_t model) const {
    if (context > 0) return std::min({needed, context, model});
    return shifts() ? std::min(needed, model) : needed;
  }
};

// With what is not given put in: without a model it is the one that lockstep comes with, which then
// tells a story, and says so on standard error.
RunOptions Completed(RunOptions options);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_RUN_OPTIONS_H_
