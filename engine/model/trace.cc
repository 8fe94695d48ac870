#include "engine/trace.h"

#include "caches/check.h"

namespace lockstep {

std::string_view StageName(Stage stage) {
  switch (stage) {
    case Stage::kEmbedding:
      return "embedding";
    case Stage::kAttnNorm:
      return "attn_norm";
    case Stage::kQuery:
      return "query";
    case Stage::kKey:
      return "key";
    case Stage::kValue:
      return "value";
    case Stage::kQueryRope:
      return "query_rope";
    case Stage::kKeyRope:
      return "key_rope";
    case Stage::kCacheKey:
      return "cache_key";
    case Stage::kCacheValue:
      return "cache_value";
    case Stage::kAttention:
      return "attention";
    case Stage::kAttnOut:
      return "attn_out";
    case Stage::kFfnNorm:
      return "ffn_norm";
    case Stage::kFfnRouter:
      return "ffn_router";
    case Stage::kFfnHidden:
      return "ffn_hidden";
    case Stage::kFfnOut:
      return "ffn_out";
    case Stage::kFinalNorm:
      return "final_norm";
    case Stage::kLogits:
      return "logits";
  }
  LS_CHECK(false, "stage {}", static_cast<int>(stage));
  return {};
}

void RecordingTrace::OnStage(const StageRows& rows) {
  if (used_ == entries_.size()) entries_.emplace_back();
  Entry& entry = entries_[used_];
  entry.layer = rows.layer;
  entry.stage = rows.stage;
  entry.positions.assign(rows.positions.begin(), rows.positions.end());
  entry.rows.assign(rows.rows.begin(), rows.rows.end());
  entry.width = rows.width;
  ++used_;  // last: an entry that ran out of memory is not shown
}

void DigestTrace::OnStage(const StageRows& rows) {
  entries_.push_back({rows.layer, rows.stage, DigestOfFloats(rows.rows)});
}

}  // namespace lockstep
