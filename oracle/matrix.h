// The determinism matrix: everything that must not change a bit, varied on purpose.
//
// One computation (a prefill, then decode steps) is done once in the plainest way: the model cache
// through Update, the prefill in one step, the scalar kernels, one thread, alone. Then it is done
// again in every way that each axis lists, and everything is compared with that: the logits of
// every step, the rows of the cache at the end as they read, and the bytes that it stores. Caches
// of other row types have a reference of their own.
//
// What is equal proves little unless the comparison would have seen a difference. So every axis has
// a control (matrix_controls.h), a fault that depends on that axis and on nothing else; when the
// axis does not show it, its cells are unproved.
#ifndef LOCKSTEP_ORACLE_MATRIX_H_
#define LOCKSTEP_ORACLE_MATRIX_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caches/registry.h"
#include "engine/adapter.h"
#include "engine/model.h"
#include "oracle/digest_line.h"
#include "oracle/matrix_controls.h"

namespace lockstep {

struct MatrixAxisInfo {
  MatrixAxis axis = MatrixAxis::kWritePath;
  std::string_view name;  // as --axis takes it
  std::string_view what;  // what varies
  std::string_view test;  // "folder/x_test.cc: Suite.Case", which backs it in the small
  bool outside = false;   // computed by other builds, machines or processes, and handed in
};

// All axes, in the order of MatrixAxis.
std::span<const MatrixAxisInfo> MatrixAxes();

// Throws Error naming the axes when there is none of that name.
const MatrixAxisInfo& ParseMatrixAxis(std::string_view name);

// What is computed. REQUIRES: the prompt and the decode steps fit into the context, and 3 more.
struct MatrixModel {
  std::string name;
  std::shared_ptr<const Model> model;
  std::vector<int32_t> prompt = {};  // token ids, not empty
  // Of every step of the sequence under test; its neighbours in a batch have none.
  std::vector<AppliedAdapter> adapters = {};
};

// Digests that something else computed, as one value of an axis.
struct OutsideDigests {
  MatrixAxis axis = MatrixAxis::kCompiler;
  std::string value = {};                 // "g++ -O2"
  bool control = false;                   // made to differ, and must
  std::string unavailable = {};           // why there are none, one sentence; else empty
  std::vector<DigestLine> lines = {};     // what it computed
  std::vector<DigestLine> expected = {};  // what this process computes for the same
};

struct MatrixOptions {
  std::vector<MatrixModel> models;
  int32_t decode_steps = 4;
  uint64_t seed = 1;                             // of the random cuts
  std::vector<MatrixAxis> axes = {};             // empty: all
  std::vector<CacheSpec> caches = {};            // empty: AllCaches()
  std::vector<const KernelTable*> kernels = {};  // empty: AvailableKernels()
  std::vector<int32_t> threads = {1, 2, 3, 7, 16, 65};
  std::vector<OutsideDigests> outside = {};
  std::span<const MatrixControl> controls = MatrixControls();
  const MatrixControl* planted = nullptr;  // runs as the subject of its axis: must be found
  std::function<void(const std::string& text)> on_progress = {};  // may be empty
};

struct MatrixCell {
  enum class Verdict : uint8_t {
    kEqual,
    kDiffers,
    kUnproved,      // equal, and the axis's control was not caught
    kNotAvailable,  // nothing to compare here; `detail` says why
  };

  std::string value;  // "direct", "paged/4", "7"
  Verdict verdict = Verdict::kNotAvailable;
  int64_t comparisons = 0;  // digests that were equal
  Digest digest = {};       // over the cell's digests, in order: equal matrices agree in it
  std::string detail = {};  // the first difference, or the reason
};

struct MatrixRow {
  const MatrixAxisInfo* axis = nullptr;
  std::vector<MatrixCell> cells = {};
  std::string control = {};  // its name, empty when there is none
  bool control_caught = false;
  std::string control_detail = {};  // where it was caught, or why it was not
};

enum class MatrixOutcome : uint8_t {
  kEqual,     // every cell that could be computed is equal, and proved
  kDiffers,   // at least one differs
  kUnproved,  // none differs; a control was not caught, or nothing was compared
};

struct MatrixResult {
  std::vector<MatrixRow> rows;
  MatrixOutcome outcome = MatrixOutcome::kUnproved;
  std::string verdict;                         // one sentence
  std::optional<MatrixAxis> first_difference;  // the axis of the first
  int64_t comparisons = 0;
};

std::string_view MatrixVerdictName(MatrixCell::Verdict verdict);  // "equal", "DIFFERS", ...
std::string_view MatrixOutcomeName(MatrixOutcome outcome);        // "equal", "differs", "unproved"

MatrixResult RunMatrix(const MatrixOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_ORACLE_MATRIX_H_
