// A line of digests: what builds, machines and processes hand each other to be compared.
//
// Whoever computes the same model and cache has to print the same two digests, whatever compiled or
// ran it. ci/probe.cc prints such lines; ci/compilers and ci/aarch64 collect them.
#ifndef LOCKSTEP_ORACLE_DIGEST_LINE_H_
#define LOCKSTEP_ORACLE_DIGEST_LINE_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caches/registry.h"
#include "engine/adapter.h"
#include "engine/model.h"

namespace lockstep {

struct DigestLine {
  std::string kernels;  // the table that ran: no part of what has to be equal
  std::string model;    // a preset's name, or whatever names the model without a blank
  std::string cache;    // caches/registry.h
  std::string logits;   // hex, over the logits of a prefill and some decode steps
  std::string rows;     // hex, the cache hash at the end [X1]

  // "<kernels> <model> <cache> <logits> <rows>", without a line feed.
  std::string Text() const;
};

// Lines of text, one digest line each; empty ones are passed over. Throws Error naming `where` and
// the line's number for anything else.
std::vector<DigestLine> ParseDigestLines(std::string_view where, std::string_view text);

// The line of one model, table, cache and adapters: a prefill of 9 tokens and 4 greedy decode steps
// (fewer where the context is shorter). REQUIRES: the model's head_dim suits the cache.
DigestLine LineOf(const std::string& name, const std::shared_ptr<const Model>& model,
                  const KernelTable& kernels, const CacheSpec& cache,
                  std::span<const AppliedAdapter> adapters = {});

// The lines of all small synthetic presets, all caches of the registry that suit them, and these
// tables. The presets have every weight type, head shape and pipeline stage between them.
std::vector<DigestLine> LinesOfPresets(std::span<const KernelTable* const> kernels);

}  // namespace lockstep

#endif  // LOCKSTEP_ORACLE_DIGEST_LINE_H_
