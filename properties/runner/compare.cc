#include "properties/runner/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "caches/check.h"
#include "caches/codec.h"
#include "caches/registry.h"
#include "properties/script_clauses.h"

namespace lockstep::runner {

void Comparer::Find(std::string_view clause, std::string what) {
  if (finding_) return;
  finding_ = ScriptFinding{.clause = std::string(clause), .what = std::move(what)};
}

std::optional<ScriptFinding> Comparer::Compare(Sequence* s, ScriptOpKind kind, size_t sequences) {
  kind_ = kind;
  sequences_ = sequences;
  finding_.reset();
  for (int32_t layer = 0; layer < geometry_.num_layers && !finding_; ++layer) {
    CompareLayer(s, layer);
  }
  if (finding_) return std::move(finding_);
  if (s->subject->current_length() != s->model->current_length()) {
    Find(LengthClause(kind_),
         fmt::format("current length: subject {}, model {}", s->subject->current_length(),
                     s->model->current_length()));
  }
  CompareBlocks(*s);
  const auto specified = [](const std::set<int32_t>& rows) { return rows.empty(); };
  if (!finding_ && std::ranges::all_of(s->unspecified, specified)) CompareHashes(s);
  return std::move(finding_);
}

void Comparer::ReadModel(Sequence* s, int32_t layer) {
  KnownLayer& known = s->known[static_cast<size_t>(layer)];
  if (known.known) return;
  known.known = true;
  known.length = s->model->length(layer);
  known.decoded.resize(static_cast<size_t>(geometry_.max_length));
  const auto rows = [this](std::vector<RowOf<const float*>>* into) {
    into->assign(static_cast<size_t>(model_view_.first()), {});
    for (const KvSegment& segment : model_view_.segments) {  // one F32 row each
      into->push_back({reinterpret_cast<const float*>(segment.keys),
                       reinterpret_cast<const float*>(segment.values)});
    }
    LS_CHECK(static_cast<int32_t>(into->size()) == model_view_.length, "{} segments for {} rows",
             into->size(), model_view_.length);
  };
  known.first = s->model->first_position(layer);
  s->model->View(layer, &model_view_);
  rows(&known.view);
  known.by_query.clear();
  if (!s->model->view_depends_on_query()) return;
  known.by_query.resize(static_cast<size_t>(known.length));
  for (int32_t query = 0; query < known.length; ++query) {
    s->model->ViewForQuery(layer, query, &model_view_);
    rows(&known.by_query[static_cast<size_t>(query)]);
  }
}

void Comparer::CompareLayer(Sequence* s, int32_t layer) {
  ReadModel(s, layer);
  const KnownLayer& known = s->known[static_cast<size_t>(layer)];
  if (s->subject->length(layer) != known.length) {
    return Find(LengthClause(kind_), fmt::format("length of layer {}: subject {}, model {}", layer,
                                                 s->subject->length(layer), known.length));
  }
  if (s->subject->first_position(layer) != known.first ||
      s->subject->attention_window(layer) != s->model->attention_window(layer)) {
    return Find("W1", fmt::format("layer {}: subject keeps rows from {} in a window of {}, model "
                                  "from {} in one of {}",
                                  layer, s->subject->first_position(layer),
                                  s->subject->attention_window(layer), known.first,
                                  s->model->attention_window(layer)));
  }
  agreed_.resize(static_cast<size_t>(geometry_.max_length));
  for (auto& places : agreed_) places.clear();
  s->subject->View(layer, &subject_view_);
  CompareRows(s, layer, known.length, -1, known.view);
  for (size_t query = 0; query < known.by_query.size() && !finding_; ++query) {
    const auto at = static_cast<int32_t>(query);
    s->subject->ViewForQuery(layer, at, &subject_view_);
    CompareRows(s, layer, at + 1, at, known.by_query[query]);
  }
}

bool Comparer::SegmentsCover(const KvView& view, int32_t first) {
  int32_t next = first;
  for (const KvSegment& segment : view.segments) {
    if (segment.first != next || segment.count <= 0 || segment.count > view.length - next) {
      return false;
    }
    next += segment.count;
  }
  return next == view.length;
}

void Comparer::CompareRows(Sequence* s, int32_t layer, int32_t visible, int32_t query,
                           const std::vector<RowOf<const float*>>& model) {
  const int32_t length = s->known[static_cast<size_t>(layer)].length;
  if (subject_view_.length != length) {
    return Find("V1", fmt::format("view of layer {}: subject {} rows, model {}", layer,
                                  subject_view_.length, length));
  }
  const int32_t first = s->known[static_cast<size_t>(layer)].first;
  if (!SegmentsCover(subject_view_, first)) {
    return Find("V1", fmt::format("view of layer {}: its segments are not [{}, {}) in order", layer,
                                  first, length));
  }
  for (const KvSegment& segment : subject_view_.segments) {
    if (finding_ || segment.first >= visible) return;
    CompareSegment(s, layer, visible, query, segment, model);
  }
}

void Comparer::CompareSegment(Sequence* s, int32_t layer, int32_t visible, int32_t query,
                              const KvSegment& segment,
                              const std::vector<RowOf<const float*>>& model) {
  const int64_t key_bytes = RowBytes(segment.key_type, geometry_.kv_stride());
  const int64_t value_bytes = RowBytes(segment.value_type, geometry_.kv_stride());
  KnownLayer& known = s->known[static_cast<size_t>(layer)];
  const std::set<int32_t>& skipped = s->unspecified[static_cast<size_t>(layer)];
  const int32_t end = std::min(segment.first + segment.count, visible);
  for (int32_t p = segment.first; p < end; ++p) {
    if (!skipped.empty() && skipped.contains(p)) continue;
    ++rows_compared_;
    const auto at = static_cast<size_t>(p);
    const int64_t row = p - segment.first;
    const Place place = {{segment.keys + row * key_bytes, segment.values + row * value_bytes},
                         model[at]};
    std::vector<Place>& agreed = agreed_[at];
    if (std::ranges::find(agreed, place) != agreed.end()) continue;
    CompareHalf('K', layer, p, query, segment.key_type, place.subject.key, place.model.key,
                &known.decoded[at].key);
    CompareHalf('V', layer, p, query, segment.value_type, place.subject.value, place.model.value,
                &known.decoded[at].value);
    if (finding_) return;
    agreed.push_back(place);
  }
}

void Comparer::CompareHalf(char half, int32_t layer, int32_t position, int32_t query, RowType type,
                           const std::byte* stored, const float* model,
                           KnownLayer::Decoded* decoded) {
  const auto stride = static_cast<size_t>(geometry_.kv_stride());
  const auto bytes = static_cast<size_t>(RowBytes(type, geometry_.kv_stride()));
  const auto* subject = reinterpret_cast<const float*>(stored);
  if (type != RowType::kF32) {
    const bool same = decoded->type == type && decoded->stored.size() == bytes &&
                      std::memcmp(decoded->stored.data(), stored, bytes) == 0;
    if (!same) {
      decoded->type = type;
      decoded->stored.assign(stored, stored + bytes);
      decoded->floats.resize(stride);
      DecodeRow(type, decoded->stored, decoded->floats);
    }
    subject = decoded->floats.data();
  }
  if (std::memcmp(subject, model, stride * sizeof(float)) == 0) return;
  const bool gap = std::all_of(model, model + stride, [](float x) { return x == 0.0f; });
  for (size_t e = 0; e < stride; ++e) {
    if (CanonicalBits(subject[e]) == CanonicalBits(model[e])) continue;
    const std::string reader = query < 0 ? "" : fmt::format(" read by query {}", query);
    return Find(RowClause(kind_, gap, sequences_ > 1),
                fmt::format("{} row {} of layer {}, element {}{}: subject 0x{:08x}, model 0x{:08x}",
                            half, position, layer, e, reader, CanonicalBits(subject[e]),
                            CanonicalBits(model[e])));
  }
}

void Comparer::CompareHashes(Sequence* s) {
  if (!s->hashes_agreed) {
    if (DigestOfCache(*s->subject) != DigestOfCache(*s->model)) {
      return Find("X1", "the hashes differ");
    }
    s->hashes_agreed = true;
  }
  if (!subject_.compares_storage) return;
  if (!s->model_storage) s->model_storage = s->model->StorageDigest();
  if (s->subject->StorageDigest() != *s->model_storage) Find("X2", "the stored bytes differ");
}

// Of one sequence alone, which no block is shared with [B3].
void Comparer::CompareBlocks(const Sequence& s) {
  if (sequences_ > 1 || subject_.model.block_size == 0) return;
  const auto is_open = [](const Sequence::Open& open) { return !open.positions.empty(); };
  if (std::ranges::any_of(s.open, is_open)) return;
  const auto blocks = BlockCountsOf(*s.subject);
  const int32_t needed = static_cast<const ModelCache&>(*s.model).blocks_used();
  if (!blocks || blocks->used_blocks == needed) return;
  Find("B3", fmt::format("{} blocks in use, rows need {}", blocks->used_blocks, needed));
}

}  // namespace lockstep::runner
