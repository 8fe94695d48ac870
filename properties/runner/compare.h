// Compares the two sides of a sequence: lengths, every row to the bit as every query reads it, both
// hashes, the blocks in use.
//
// Every row is compared after every operation, from the subject's memory. What is not done twice is
// work whose result cannot differ: the model's rows are read again only when the model changed,
// stored bytes that equal those decoded last are not decoded again, and a row that two queries read
// from the same place is compared once.
#ifndef LOCKSTEP_PROPERTIES_RUNNER_COMPARE_H_
#define LOCKSTEP_PROPERTIES_RUNNER_COMPARE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "properties/runner/sequence.h"
#include "properties/script_runner.h"

namespace lockstep::runner {

class Comparer {
 public:
  // `subject` must outlive the comparer.
  Comparer(const KvGeometry& geometry, const ScriptSubject& subject)
      : geometry_(geometry), subject_(subject) {}

  // The first difference after an operation of that kind; `sequences` are alive. Its `op` is unset.
  std::optional<ScriptFinding> Compare(Sequence* sequence, ScriptOpKind kind, size_t sequences);

  int64_t rows_compared() const { return rows_compared_; }

 private:
  struct Place {  // where a row lies on both sides
    RowOf<const std::byte*> subject;
    RowOf<const float*> model;
    friend bool operator==(const Place&, const Place&) = default;
  };

  void ReadModel(Sequence* s, int32_t layer);
  void CompareLayer(Sequence* s, int32_t layer);
  // Rows [0, visible) of subject_view_; `query` is -1 for View.
  void CompareRows(Sequence* s, int32_t layer, int32_t visible, int32_t query,
                   const std::vector<RowOf<const float*>>& model);
  void CompareSegment(Sequence* s, int32_t layer, int32_t visible, int32_t query,
                      const KvSegment& segment, const std::vector<RowOf<const float*>>& model);
  bool SegmentsCover(const KvView& view, int32_t first);
  void CompareHalf(char half, int32_t layer, int32_t position, int32_t query, RowType type,
                   const std::byte* stored, const float* model, KnownLayer::Decoded* decoded);
  void CompareHashes(Sequence* s);
  void CompareBlocks(const Sequence& s);
  void Find(std::string_view clause, std::string what);

  const KvGeometry& geometry_;
  const ScriptSubject& subject_;
  KvView subject_view_, model_view_;
  std::vector<std::vector<Place>> agreed_;  // by position, in this layer after this operation
  int64_t rows_compared_ = 0;
  ScriptOpKind kind_ = ScriptOpKind::kClear;
  size_t sequences_ = 0;
  std::optional<ScriptFinding> finding_;
};

}  // namespace lockstep::runner

#endif  // LOCKSTEP_PROPERTIES_RUNNER_COMPARE_H_
