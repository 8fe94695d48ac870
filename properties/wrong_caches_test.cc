// Caches that are wrong in one way, which generated scripts have to find: the runner and the model
// cache are only as good as what they catch.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "caches/quantized_kv_cache.h"
#include "caches/simple_kv_cache.h"
#include "oracle/decorators.h"
#include "properties/script_builder.h"
#include "properties/script_runner.h"

namespace lockstep {
namespace {

constexpr int32_t kOperations = 60;

// Whether one of the first scripts finds something.
bool Found(const std::string& cache, const ScriptSubject& subject, uint64_t scripts = 400) {
  for (uint64_t seed = 1; seed <= scripts; ++seed) {
    if (RunScript(GenerateScript(cache, seed, kOperations), subject).finding) return true;
  }
  return false;
}

// A view that ignores the query, where queries have windows of their own.
class OneViewCache : public ForwardingCache {
 public:
  using ForwardingCache::ForwardingCache;
  void ViewForQuery(int32_t layer, int32_t position, KvView* view) const override {
    inner().ViewForQuery(layer, position, view);
    inner().View(layer, view);
  }
  std::unique_ptr<KvCache> Fork() override {
    return std::make_unique<OneViewCache>(inner().Fork());
  }
};

TEST(WrongCacheTest, ScriptsFindWrongWindowsAndTypes) {
  const std::string cache = "quantized/q8_0+q4_0/w3";
  const ScriptSubject right = RegisteredSubject(cache);
  EXPECT_FALSE(Found(cache, right, 50));
  for (const int32_t window : {2, 4}) {
    ScriptSubject wrong = right;
    wrong.model.window = window;
    EXPECT_TRUE(Found(cache, wrong, 50)) << "a window of 3 passes for one of " << window;
  }
  ScriptSubject exchanged = right;
  std::swap(exchanged.model.key_type, exchanged.model.value_type);
  EXPECT_TRUE(Found(cache, exchanged, 50)) << "types exchanged";
  ScriptSubject one_view = right;
  one_view.make = [&](const CacheScript& script) {
    return std::make_unique<OneViewCache>(right.make(script));
  };
  EXPECT_TRUE(Found(cache, one_view, 50)) << "one view for all queries";
}

// Wrong answers that were given by real engines, or could be. Each breaks the clause it names.
enum class Wrong {
  kNothing,
  kShrinks,                // U5: the length shrinks when an earlier position is rewritten
  kFirstDuplicateWins,     // U2
  kPartialUpdate,          // U1: rows before the bad position are written
  kUpdateKeepsReserved,    // U6
  kStaleGap,               // V2: a gap shows other rows
  kLayerCheckedLate,       // R1
  kRefusesLastPosition,    // R2
  kRefusesOverwrite,       // R2
  kRefusalClosesReserved,  // R2
  kCommitWithout,          // C2: a commit without a reservation passes
  kRepeatedCommitThrows,   // C2
  kCommitShowsAllLayers,   // V1: the first layer's commit makes rows of later layers visible
  kRollbackTooFar,         // B1: a rollback past the length is clamped
  kRollbackKeepsReserved,  // B2
  kRollbackForgetsLayer,   // B1: the last layer keeps its rows
  kForkShares,             // B4
  kForkKeepsReserved,      // B4
  kOutOfMemory,            // M1: a rollback allocates, and fails
  kCount,
};

class WrongCache : public ForwardingCache {
 public:
  WrongCache(std::unique_ptr<KvCache> inner, Wrong wrong)
      : ForwardingCache(std::move(inner)), wrong_(wrong) {}
  WrongCache(KvCache& inner, Wrong wrong) : ForwardingCache(inner), wrong_(wrong) {}

  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override {
    const auto stride = static_cast<size_t>(geometry().kv_stride());
    const bool sized = keys.size() == positions.size() * stride && values.size() == keys.size();
    const bool known = layer >= 0 && layer < geometry().num_layers;
    const int32_t before = known ? length(layer) : 0;
    if (wrong_ == Wrong::kPartialUpdate && sized && known && positions.size() > 1 &&
        positions[0] >= 0 && positions[0] < max_length()) {
      inner().Update(layer, positions.first(1), keys.first(stride), values.first(stride));
    }
    inner().Update(layer, positions, keys, values);
    if (positions.empty()) return;
    const int32_t end = *std::ranges::max_element(positions) + 1;
    if (wrong_ == Wrong::kShrinks && end < before && before == current_length()) Rollback(end);
    if (wrong_ == Wrong::kFirstDuplicateWins) {
      for (size_t i = positions.size(); i-- > 0;) {
        inner().Update(layer, positions.subspan(i, 1), keys.subspan(i * stride, stride),
                       values.subspan(i * stride, stride));
      }
    }
    if (wrong_ == Wrong::kStaleGap && *std::ranges::min_element(positions) > before) {
      inner().Update(layer, std::span(&before, 1), keys.first(stride), values.first(stride));
    }
    if (wrong_ != Wrong::kUpdateKeepsReserved) open_.clear();
  }

  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override {
    if (wrong_ == Wrong::kLayerCheckedLate && positions.empty()) return std::nullopt;
    if (!positions.empty() && layer >= 0 && layer < geometry().num_layers) {
      if (wrong_ == Wrong::kRefusesLastPosition && positions.back() == max_length() - 1) {
        return std::nullopt;
      }
      if (wrong_ == Wrong::kRefusesOverwrite && positions[0] < length(layer)) return std::nullopt;
    }
    const auto slot = inner().TryReserveSlot(layer, positions);
    if (slot) open_.assign(positions.begin(), positions.end());
    if (!slot && wrong_ == Wrong::kRefusalClosesReserved && length(layer) > 0) {
      // An update of a row by itself closes the reservation and changes nothing else.
      KvView view;
      inner().View(layer, &view);
      const KvRows rows = DecodeRows(view, geometry().kv_stride());
      const auto stride = static_cast<size_t>(geometry().kv_stride());
      const int32_t zero = 0;
      inner().Update(layer, std::span(&zero, 1), std::span(rows.keys).first(stride),
                     std::span(rows.values).first(stride));
    }
    return slot;
  }

  void CommitSlot(int32_t layer, std::span<const int32_t> positions) override {
    const bool keeps = wrong_ == Wrong::kUpdateKeepsReserved ||
                       wrong_ == Wrong::kRollbackKeepsReserved ||
                       wrong_ == Wrong::kForkKeepsReserved;
    try {
      inner().CommitSlot(layer, positions);
    } catch (const std::out_of_range&) {
      throw;
    } catch (const std::logic_error&) {
      if (wrong_ == Wrong::kCommitWithout) return;
      if (keeps && std::ranges::equal(open_, positions)) return;
      throw;
    }
    if (wrong_ == Wrong::kRepeatedCommitThrows && !positions.empty()) {
      if (!std::ranges::equal(open_, positions)) throw std::logic_error("wrong");
      open_.clear();
    }
    if (wrong_ == Wrong::kCommitShowsAllLayers && layer == 0 && geometry().num_layers > 1 &&
        length(0) > length(1)) {
      const int32_t last = length(0) - 1;
      const std::vector<float> zeros(static_cast<size_t>(geometry().kv_stride()));
      inner().Update(1, std::span(&last, 1), zeros, zeros);
    }
  }

  void Rollback(int32_t length) override {
    if (wrong_ == Wrong::kOutOfMemory && length == 1) throw std::bad_alloc();
    if (wrong_ == Wrong::kRollbackTooFar) length = std::min(length, current_length());
    const int32_t last = geometry().num_layers - 1;
    KvView view;
    inner().View(last, &view);
    const KvRows rows = DecodeRows(view, geometry().kv_stride());
    inner().Rollback(length);
    if (wrong_ == Wrong::kRollbackForgetsLayer) {
      std::vector<int32_t> positions;
      for (int32_t p = 0; p < view.length; ++p) positions.push_back(p);
      inner().Update(last, positions, rows.keys, rows.values);
    }
    if (wrong_ != Wrong::kRollbackKeepsReserved) open_.clear();
  }

  std::unique_ptr<KvCache> Fork() override {
    if (wrong_ == Wrong::kForkShares) return std::make_unique<WrongCache>(inner(), wrong_);
    if (wrong_ != Wrong::kForkKeepsReserved) open_.clear();
    return std::make_unique<WrongCache>(inner().Fork(), wrong_);
  }

 private:
  Wrong wrong_;
  std::vector<int32_t> open_;
};

TEST(WrongCacheTest, ScriptsFindEveryWrongAnswerOfTheContract) {
  for (int wrong = 0; wrong < static_cast<int>(Wrong::kCount); ++wrong) {
    ScriptSubject subject = RegisteredSubject("simple");
    subject.saves = false;
    // A shared fork borrows the source, which must not end before it.
    std::vector<std::shared_ptr<KvCache>> kept;
    subject.make = [&](const CacheScript& script) -> std::unique_ptr<KvCache> {
      kept.push_back(std::make_shared<SimpleKvCache>(script.geometry));
      return std::make_unique<WrongCache>(*kept.back(), static_cast<Wrong>(wrong));
    };
    const bool is_right = static_cast<Wrong>(wrong) == Wrong::kNothing;
    EXPECT_EQ(Found("simple", subject, is_right ? 100 : 4000), !is_right) << "wrong " << wrong;
  }
}

// Updates of more rows than a step may have, which registered caches of tiny geometries never meet.
TEST(WrongCacheTest, AStepLimitIsKept) {
  ScriptSubject subject = RegisteredSubject("quantized/q4_0+q8_0/w2");
  subject.make = [](const CacheScript& script) {
    return std::make_unique<QuantizedKvCache>(QuantizedKvOptions{.geometry = script.geometry,
                                                                 .key_type = RowType::kQ4_0,
                                                                 .value_type = RowType::kQ8_0,
                                                                 .window = 2,
                                                                 .max_step_rows = 7});
  };
  EXPECT_FALSE(Found("quantized/q4_0+q8_0/w2", subject, 100));
}

}  // namespace
}  // namespace lockstep
