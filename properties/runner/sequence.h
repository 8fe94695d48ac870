// One sequence of a script that runs, on both sides.
#ifndef LOCKSTEP_PROPERTIES_RUNNER_SEQUENCE_H_
#define LOCKSTEP_PROPERTIES_RUNNER_SEQUENCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "caches/digest.h"
#include "caches/kv_cache.h"

namespace lockstep::runner {

// K and V of one position at one layer.
template <typename T>
struct RowOf {
  T key = {};
  T value = {};
  friend bool operator==(const RowOf&, const RowOf&) = default;
};

// What the comparer keeps of one layer. Nothing of it may be older than the model's last change.
struct KnownLayer {
  bool known = false;  // the model's part below
  int32_t length = 0;
  int32_t first = 0;                                       // the lowest row that is not forgotten
  std::vector<RowOf<const float*>> view;                   // the model's rows, by position
  std::vector<std::vector<RowOf<const float*>>> by_query;  // the same as each query reads them

  // By position: the stored bytes that were decoded last, and what they are as floats. A decoded
  // row is a function of its bytes, so equal bytes need not be decoded again.
  struct Decoded {
    RowType type = RowType::kF32;
    std::vector<std::byte> stored;
    std::vector<float> floats;
  };
  std::vector<RowOf<Decoded>> decoded;
};

struct Sequence {
  struct Open {
    std::vector<int32_t> positions;  // empty: no reservation
    bool written = false;
    KvSlot subject, model;
  };

  explicit Sequence(int32_t layers)
      : unspecified(static_cast<size_t>(layers)),
        open(static_cast<size_t>(layers)),
        known(static_cast<size_t>(layers)) {}

  // To be called with every change of the model.
  void LayerChanged(int32_t layer) {
    known[static_cast<size_t>(layer)].known = false;
    hashes_agreed = false;
    model_storage.reset();
  }
  void AllChanged() {
    for (size_t layer = 0; layer < known.size(); ++layer) LayerChanged(static_cast<int32_t>(layer));
  }

  int32_t id = 0;  // in order of creation
  std::unique_ptr<KvCache> subject;
  std::unique_ptr<KvCache> model;  // a ModelCache
  // By layer: rows whose content is unspecified until they are written again [R4, R5].
  std::vector<std::set<int32_t>> unspecified;
  std::vector<Open> open;         // by layer
  std::vector<KnownLayer> known;  // by layer
  bool hashes_agreed = false;     // the cache hashes, since the model's last change
  std::optional<Digest> model_storage;
};

}  // namespace lockstep::runner

#endif  // LOCKSTEP_PROPERTIES_RUNNER_SEQUENCE_H_
