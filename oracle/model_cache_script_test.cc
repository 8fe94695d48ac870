// Every cache against ModelCache over random scripts, and caches that are wrong in one way, which
// the scripts have to find.
//
// LOCKSTEP_SCRIPT_SEED=n runs the one script of that seed, LOCKSTEP_SCRIPTS=n the first n.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "caches/block_pool.h"
#include "caches/paged_kv_cache.h"
#include "caches/quantized_kv_cache.h"
#include "caches/registry.h"
#include "caches/simple_kv_cache.h"
#include "oracle/decorators.h"
#include "oracle/faulty_cache.h"
#include "oracle/model_cache.h"
#include "oracle/script/cache_script.h"

namespace lockstep::oracle {
namespace {

constexpr int32_t kOperations = 60;

// Debug builds are there for sanitizers, and slow: a sample of the same scripts.
#ifdef NDEBUG
constexpr uint64_t kScripts = 200;
#else
constexpr uint64_t kScripts = 30;
#endif

ScriptSubject Simple() {
  ScriptSubject subject;
  subject.name = "simple";
  subject.make = [](const KvGeometry& g) { return std::make_unique<SimpleKvCache>(g); };
  return subject;
}

// Every kind of the registry. Pools are roomy: which of several sequences gets the last block is
// not the model's to say.
ScriptSubject Registered(const CacheSpec& spec) {
  ScriptSubject subject;
  subject.name = spec.name;
  subject.make = [spec](const KvGeometry& g) { return spec.make({.geometry = g, .sequences = 8}); };
  subject.model.key_type = spec.key_type;
  subject.model.value_type = spec.value_type;
  subject.model.window = spec.window;
  subject.model.block_size = spec.block_size;
  subject.model.refuses_host_slots = !spec.grants_host_slots;
  subject.head_dim_multiple = spec.head_dim_multiple;
  return subject;
}

// One sequence on a pool that is too small for max_length.
ScriptSubject ShortPool(int32_t block_size, int32_t blocks) {
  ScriptSubject subject;
  subject.name = fmt::format("paged/{} on {} blocks", block_size, blocks);
  subject.make = [=](const KvGeometry& g) {
    auto pool = std::make_shared<BlockPool>(
        BlockPoolOptions{.geometry = g, .block_size = block_size, .num_blocks = blocks});
    return std::make_unique<PagedKvCache>(
        PagedKvCacheOptions{.geometry = g, .block_size = block_size, .pool = std::move(pool)});
  };
  subject.model.block_size = block_size;
  subject.model.blocks_available = blocks;
  subject.forks = false;
  return subject;
}

ScriptSubject Quantized(RowType keys, RowType values, int32_t window) {
  ScriptSubject subject;
  subject.name =
      fmt::format("quantized {} {} window {}", RowTypeName(keys), RowTypeName(values), window);
  subject.make = [=](const KvGeometry& g) {
    return std::make_unique<QuantizedKvCache>(QuantizedKvOptions{.geometry = g,
                                                                 .key_type = keys,
                                                                 .value_type = values,
                                                                 .window = window,
                                                                 .max_step_rows = 7});
  };
  subject.model.key_type = keys;
  subject.model.value_type = values;
  subject.model.window = window;
  subject.model.refuses_host_slots = true;
  subject.head_dim_multiple = 32;
  return subject;
}

std::vector<ScriptSubject> Subjects() {
  std::vector<ScriptSubject> subjects;
  for (const CacheSpec& spec : AllCaches()) subjects.push_back(Registered(spec));
  subjects.push_back(Registered(ParseCacheSpec("paged/3")));
  subjects.push_back(ShortPool(2, 3));
  subjects.push_back(ShortPool(3, 2));
  subjects.push_back(ShortPool(1, 5));
  subjects.push_back(Quantized(RowType::kQ8_0, RowType::kQ4_0, 0));
  subjects.push_back(Quantized(RowType::kQ8_0, RowType::kQ8_0, 1));
  subjects.push_back(Quantized(RowType::kQ4_0, RowType::kQ8_0, 2));
  subjects.push_back(Quantized(RowType::kQ4_0, RowType::kQ4_0, 3));
  subjects.push_back(Quantized(RowType::kF32, RowType::kQ8_0, 5));
  subjects.push_back(Quantized(RowType::kQ4_0, RowType::kF32, 8));
  subjects.push_back(Quantized(RowType::kQ8_0, RowType::kQ4_0, 40));  // longer than max_length
  return subjects;
}

class ModelCacheScriptTest : public ::testing::TestWithParam<ScriptSubject> {};
INSTANTIATE_TEST_SUITE_P(, ModelCacheScriptTest, ::testing::ValuesIn(Subjects()),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

std::optional<uint64_t> Environment(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  return std::strtoull(text, nullptr, 0);
}

TEST_P(ModelCacheScriptTest, AgreesAfterEveryOperation) {
  // Windows are compared query by query, which takes longer.
  const uint64_t usual = GetParam().model.window > 0 ? kScripts / 4 : kScripts;
  const std::optional<uint64_t> one = Environment("LOCKSTEP_SCRIPT_SEED");
  const uint64_t first = one.value_or(1);
  const uint64_t scripts = one ? 1 : Environment("LOCKSTEP_SCRIPTS").value_or(usual);
  ScriptCounts counts;
  for (uint64_t seed = first; seed < first + scripts; ++seed) {
    const auto finding = RunScript(GetParam(), seed, kOperations, &counts);
    ASSERT_FALSE(finding) << GetParam().name << ": LOCKSTEP_SCRIPT_SEED=" << seed << "\n"
                          << *finding;
  }
  if (scripts < 200) return;  // the counts below are of 200 scripts
  // The scripts reach what they are there for.
  if (!GetParam().model.refuses_host_slots) {
    EXPECT_GT(counts.granted, 500);
    EXPECT_GT(counts.committed, 300);
  }
  EXPECT_GT(counts.refused, 500);
  EXPECT_GT(counts.updated, 800);
  EXPECT_GT(counts.threw, 500);
  EXPECT_GT(counts.rolled_back, 300);
  EXPECT_GT(counts.forked, GetParam().forks ? 100 : -1);
  EXPECT_GT(counts.exhausted, GetParam().model.blocks_available > 0 ? 50 : -1);
  EXPECT_GT(counts.rows_compared, 20000);
}

// Whether one of the first scripts finds something.
bool Found(const ScriptSubject& subject, uint64_t scripts = 200) {
  ScriptCounts counts;
  for (uint64_t seed = 1; seed <= scripts; ++seed) {
    if (RunScript(subject, seed, kOperations, &counts)) return true;
  }
  return false;
}

TEST(ModelCacheMutantTest, ScriptsFindEveryPlantThatChangesBitsOrGrants) {
  for (const PlantInfo& info : KnownPlants()) {
    ScriptSubject subject = Simple();
    Plant plant;
    plant.kind = info.kind;
    subject.make = [&](const KvGeometry& g) {
      return std::make_unique<FaultyCache>(std::make_unique<SimpleKvCache>(g), plant);
    };
    EXPECT_TRUE(Found(subject)) << info.name;
    plant.step = 1000;  // never
    EXPECT_FALSE(Found(subject, 10)) << info.name;
  }
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

TEST(ModelCacheMutantTest, ScriptsFindWrongWindowsAndTypes) {
  const ScriptSubject right = Quantized(RowType::kQ8_0, RowType::kQ4_0, 3);
  ScriptSubject wrong = right;
  wrong.model.window = 2;
  EXPECT_TRUE(Found(wrong, 20)) << "window longer than said";
  wrong.model.window = 4;
  EXPECT_TRUE(Found(wrong, 20)) << "window shorter than said";
  wrong = right;
  std::swap(wrong.model.key_type, wrong.model.value_type);
  EXPECT_TRUE(Found(wrong, 20)) << "types exchanged";
  wrong = right;
  wrong.make = [&](const KvGeometry& g) { return std::make_unique<OneViewCache>(right.make(g)); };
  EXPECT_TRUE(Found(wrong, 20)) << "one view for all queries";
  EXPECT_FALSE(Found(right, 20));
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

TEST(ModelCacheMutantTest, ScriptsFindEveryWrongAnswerOfTheContract) {
  for (int wrong = 0; wrong < static_cast<int>(Wrong::kCount); ++wrong) {
    ScriptSubject subject = Simple();
    // A shared fork borrows the source, which must not end before it.
    std::vector<std::shared_ptr<KvCache>> kept;
    subject.make = [&](const KvGeometry& g) -> std::unique_ptr<KvCache> {
      kept.push_back(std::make_shared<SimpleKvCache>(g));
      return std::make_unique<WrongCache>(*kept.back(), static_cast<Wrong>(wrong));
    };
    if (static_cast<Wrong>(wrong) == Wrong::kNothing) {
      EXPECT_FALSE(Found(subject, kScripts));
    } else {
      EXPECT_TRUE(Found(subject)) << "wrong " << wrong;
    }
  }
}

}  // namespace
}  // namespace lockstep::oracle
