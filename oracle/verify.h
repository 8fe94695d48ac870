// `lockstep verify`: for every cache kind, direct write path against legacy path against the model
// cache, over one model and one prompt: prefill, decode steps, then a rollback and other tokens.
#ifndef LOCKSTEP_ORACLE_VERIFY_H_
#define LOCKSTEP_ORACLE_VERIFY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "caches/registry.h"
#include "engine/model.h"
#include "oracle/driver.h"

namespace lockstep {

struct VerifyOptions {
  std::shared_ptr<const Model> model;
  const KernelTable* kernels = nullptr;  // nullptr: SelectKernels()
  std::vector<int32_t> prompt;           // token ids
  int32_t decode_steps = 8;
  std::vector<std::string> caches;  // names of caches/registry.h; empty: AllCaches()
  std::vector<CacheSpec> own;       // kinds of the caller's, verified besides
  // The engine's device, by name, for the caches that have rows there; empty: the host alone. Each
  // side has one of its own. At most so many layers run on it. Without a cache whose rows it wrote
  // in place the outcome is kInconclusive.
  std::string device;
  int32_t device_layers = INT32_MAX;
  std::vector<AppliedAdapter> adapters = {};  // of all sides
  std::string plant;  // a fault of faulty_cache.h planted into the direct side; without a device
  std::function<void(const std::string& text)> on_progress;  // may be empty
};

// One row of the table.
struct VerifyCell {
  enum class Verdict : uint8_t { kHolds, kDiffers, kNotApplicable };

  std::string cache;       // "simple", "paged/16", "quantized/q8_0+q8_0/w0", "model/f32"
  std::string write_path;  // "direct", "direct, refused", "legacy", "oracle"; with a device
                           // "direct, device", "legacy, device"
  Verdict verdict = Verdict::kHolds;
  SideResult result = {};
  std::optional<Difference> difference = {};
  std::string against = {};  // what the cell was compared with
  std::string reason = {};   // for kNotApplicable: one sentence
};

enum class VerifyOutcome : uint8_t {
  kHolds,         // every cell agrees, and at least one took the direct path
  kDiffers,       // at least one cell differs
  kInconclusive,  // nothing differs, and nothing took the direct path, on the device that was asked
};

struct VerifyResult {
  std::vector<VerifyCell> cells;
  int32_t steps = 0;  // compared in each cell, the prefill included
  VerifyOutcome outcome = VerifyOutcome::kInconclusive;
  std::string verdict;  // one sentence
};

// Throws Error for unknown cache names, devices or plants, for a plant with a device, and for a
// prompt that does not fit the context.
VerifyResult Verify(const VerifyOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_ORACLE_VERIFY_H_
