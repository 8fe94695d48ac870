// One run of the matrix's computation, done in a stated way.
#ifndef LOCKSTEP_ORACLE_MATRIX_RUN_H_
#define LOCKSTEP_ORACLE_MATRIX_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "caches/digest.h"
#include "engine/transformer.h"
#include "oracle/decorators.h"
#include "oracle/matrix.h"

namespace lockstep {

// What decides the bits of a cache's rows: caches that agree in it have to agree in every digest.
struct RowSemantics {
  RowType key_type = RowType::kF32;
  RowType value_type = RowType::kF32;
  int32_t window = 0;
  RowType window_type = RowType::kF32;
  std::vector<int32_t> windows = {};  // of layers that forget rows, and how many can be undone
  int32_t undo_rows = 0;

  auto operator<=>(const RowSemantics&) const = default;
};

// How a run differs from the plainest one. Each axis varies one field.
struct Variation {
  enum class Path : uint8_t {
    kDirect,           // as the cache grants it
    kOneLayerRefused,  // layer 0 refuses, the others grant
    kLegacy,           // through Update alone
  };
  enum class Detour : uint8_t {
    kNone,
    kReject,   // `rejected` other tokens after the prefill, rolled back
    kRestart,  // the prefill and a token, rolled back to nothing, and the prefill again
    kRestore,  // saved after a decode step, and restored into a new cache
    kFork,     // forked after a decode step; the source goes on with other tokens
  };
  enum class Batch : uint8_t {
    kAlone,
    kFirst,   // before two others in every step
    kMiddle,  // between two others, one of which starts its prefill while this one decodes
    kLast,    // after two others
  };
  enum class On : uint8_t {
    kHost,      // the engine alone: caches with rows on a device are reached by the host's calls
    kExecutor,  // the host executor, everything in order
    kAnyOrder,  // the same in a random order of blocks, threads and streams
    kCuda,
  };
  static constexpr int32_t kWhole = 0;
  static constexpr int32_t kRandom = -1;

  Path path = Path::kDirect;
  int32_t chunk = kWhole;  // tokens of a prefill step
  int32_t threads = 1;
  Batch batch = Batch::kAlone;
  Detour detour = Detour::kNone;
  int32_t rejected = 0;  // tokens
  On on = On::kHost;
  int32_t device_layers = INT32_MAX;  // at most, of those that the cache has there
};

struct RunOutcome {
  std::vector<Digest> logits;  // of the prefill, then of each decode step
  Digest rows;                 // the cache hash at the end [X1]
  Digest storage;              // the bytes behind it [X2]
  std::string failure;         // what was thrown; else empty
  std::string unsupported;     // or why the device has no kernels for this model
  int64_t granted = 0;         // slots
  int64_t refused = 0;
};

// Makes an empty cache of at least so many positions, with room for one fork. The device is the
// engine's, or null.
using CacheMaker = std::function<std::unique_ptr<KvCache>(const KvGeometry& geometry,
                                                          const std::shared_ptr<Device>& device)>;

// Runs one model. Keeps its engine between runs of the same kernels and threads.
class MatrixRunner {
 public:
  MatrixRunner(const MatrixModel& model, int32_t decode_steps, uint64_t seed);

  // The plainest run, greedy; the tokens that it decodes are written to `decoded`.
  RunOutcome RunReference(const RowSemantics& semantics, const KernelTable& kernels,
                          std::vector<int32_t>* decoded);

  // The same computation, on given tokens.
  RunOutcome Run(const CacheMaker& make, const KernelTable& kernels, const Variation& variation,
                 const std::vector<int32_t>& decoded);

 private:
  class Sequence;

  // The prefill and what comes before the first decode step. Returns the prefill's logits.
  std::span<const float> Begin(Sequence* sequence, const Variation& variation,
                               const std::vector<int32_t>& decoded);
  // The engine of a variation; its device is made with it.
  Transformer& Engine(const KernelTable& kernels, const Variation& variation);
  std::vector<int32_t> Cuts(int32_t chunk) const;
  KvGeometry Geometry() const;

  const MatrixModel& model_;
  int32_t decode_steps_;
  uint64_t seed_;
  std::unique_ptr<Transformer> engine_;
  // What engine_ was made for.
  struct EngineKind {
    const KernelTable* kernels = nullptr;
    int32_t threads = 0;
    Variation::On on = Variation::On::kHost;
    int32_t device_layers = 0;
    friend bool operator==(const EngineKind&, const EngineKind&) = default;
  };
  EngineKind engine_kind_;
  std::shared_ptr<Device> device_;  // of engine_, null on the host
  std::vector<float> logits_;       // of the prefill, while other tokens are decoded and rejected
};

}  // namespace lockstep

#endif  // LOCKSTEP_ORACLE_MATRIX_RUN_H_
