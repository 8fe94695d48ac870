// Decorators are complete: every virtual of the contract reaches the inner cache, with its
// arguments, its result and its exceptions. "A wrapper that forwards reserve but not commit" is one
// of the contract's known wrong answers.
#include "oracle/decorators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "caches/test_paths.h"
#include "oracle/faulty_cache.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr KvGeometry kGeometry{.num_layers = 3, .num_kv_heads = 1, .head_dim = 2, .max_length = 9};

// Notes every call by the name of the virtual; answers nothing like a default would.
class ProbeCache final : public KvCache {
 public:
  explicit ProbeCache(std::vector<std::string>* log) : log_(log) {}

  const KvGeometry& geometry() const override { return Note("geometry"), kGeometry; }
  std::string name() const override { return Note("name"), "probe"; }
  RowType key_type() const override { return Note("key_type"), RowType::kQ4_0; }
  RowType value_type() const override { return Note("value_type"), RowType::kF16; }
  int32_t max_step_rows() const override { return Note("max_step_rows"), 7; }
  int32_t length(int32_t layer) const override { return Note("length"), Check(layer), 4 + layer; }
  int32_t current_length() const override { return Note("current_length"), 6; }
  int32_t attention_window(int32_t layer) const override {
    return Note("attention_window"), Check(layer), 30 + layer;
  }
  int32_t first_position(int32_t layer) const override {
    return Note("first_position"), Check(layer), 40 + layer;
  }
  void View(int32_t layer, KvView* view) const override {
    Note("View"), Check(layer);
    view->length = 4 + layer;
  }
  void ViewForQuery(int32_t layer, int32_t position, KvView* view) const override {
    Note("ViewForQuery"), Check(layer);
    view->length = 10 * layer + position;
  }
  bool view_depends_on_query() const override { return Note("view_depends_on_query"), true; }
  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float>,
              std::span<const float>) override {
    Note("Update"), Check(layer);
    positions_.assign(positions.begin(), positions.end());
  }
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override {
    Note("TryReserveSlot"), Check(layer);
    positions_.assign(positions.begin(), positions.end());
    if (positions.empty()) return std::nullopt;
    return KvSlot{std::span(slot_).first(2), std::span(slot_).last(2)};
  }
  void CommitSlot(int32_t layer, std::span<const int32_t> positions) override {
    Note("CommitSlot"), Check(layer);
    positions_.assign(positions.begin(), positions.end());
  }
  DeviceKv* device_kv(int32_t layer) override { return Note("device_kv"), Check(layer), nullptr; }
  void Rollback(int32_t length) override {
    Note("Rollback");
    if (length > 6) throw std::out_of_range("probe: rollback");
  }
  void Clear() override { Note("Clear"); }
  std::unique_ptr<KvCache> Fork() override {
    return Note("Fork"), std::make_unique<ProbeCache>(log_);
  }
  Digest StorageDigest() const override { return Note("StorageDigest"), Digest{5, 6}; }
  void SaveState(StateWriter*) const override { Note("SaveState"); }
  void LoadState(StateReader*) override { Note("LoadState"); }

  std::vector<int32_t> positions_;  // of the last call that had any
  float slot_[4] = {1, 2, 3, 4};

 private:
  void Note(const char* call) const { log_->emplace_back(call); }
  static void Check(int32_t layer) {
    if (layer < 0 || layer >= 3) throw std::out_of_range("probe: layer");
  }

  std::vector<std::string>* log_;
};

const std::vector<int32_t> kRun = {4};
const std::vector<float> kRow = {1, 2};

// One call of each virtual, with what has to come back.
const std::map<std::string, std::function<void(KvCache&)>>& Calls() {
  static const std::map<std::string, std::function<void(KvCache&)>> calls = {
      {"geometry", [](KvCache& c) { EXPECT_EQ(c.geometry(), kGeometry); }},
      {"name", [](KvCache& c) { EXPECT_THAT(c.name(), HasSubstr("probe")); }},
      {"key_type", [](KvCache& c) { EXPECT_EQ(c.key_type(), RowType::kQ4_0); }},
      {"value_type", [](KvCache& c) { EXPECT_EQ(c.value_type(), RowType::kF16); }},
      {"max_step_rows", [](KvCache& c) { EXPECT_EQ(c.max_step_rows(), 7); }},
      {"length", [](KvCache& c) { EXPECT_EQ(c.length(2), 6); }},
      {"current_length", [](KvCache& c) { EXPECT_EQ(c.current_length(), 6); }},
      {"attention_window", [](KvCache& c) { EXPECT_EQ(c.attention_window(2), 32); }},
      {"first_position", [](KvCache& c) { EXPECT_EQ(c.first_position(1), 41); }},
      {"View",
       [](KvCache& c) {
         KvView view;
         c.View(1, &view);
         EXPECT_EQ(view.length, 5);
       }},
      {"ViewForQuery",
       [](KvCache& c) {
         KvView view;
         c.ViewForQuery(2, 3, &view);
         EXPECT_EQ(view.length, 23);
       }},
      {"view_depends_on_query", [](KvCache& c) { EXPECT_TRUE(c.view_depends_on_query()); }},
      {"Update", [](KvCache& c) { c.Update(2, kRun, kRow, kRow); }},
      {"TryReserveSlot", [](KvCache& c) { EXPECT_TRUE(c.TryReserveSlot(2, kRun).has_value()); }},
      {"CommitSlot", [](KvCache& c) { c.CommitSlot(2, kRun); }},
      {"device_kv", [](KvCache& c) { EXPECT_EQ(c.device_kv(1), nullptr); }},
      {"Rollback", [](KvCache& c) { c.Rollback(3); }},
      {"Clear", [](KvCache& c) { c.Clear(); }},
      {"Fork", [](KvCache& c) { EXPECT_NE(c.Fork(), nullptr); }},
      {"StorageDigest",
       [](KvCache& c) {
         EXPECT_EQ(c.StorageDigest(), (Digest{5, 6}));
       }},
      {"SaveState", [](KvCache& c) { c.SaveState(nullptr); }},
      {"LoadState", [](KvCache& c) { c.LoadState(nullptr); }},
  };
  return calls;
}

// The names of the virtuals that kv_cache.h declares.
std::set<std::string> DeclaredVirtuals() {
  std::ifstream file(SourceDir() + "/caches/kv_cache.h");
  std::stringstream text;
  text << file.rdbuf();
  const std::string source = text.str();
  std::set<std::string> names;
  const std::regex declaration(R"(virtual\s+[^;{]*?(\w+)\s*\()");
  for (std::sregex_iterator it(source.begin(), source.end(), declaration), end; it != end; ++it) {
    if ((*it)[1] != "KvCache") names.insert((*it)[1]);  // the destructor
  }
  return names;
}

TEST(DecoratorTest, TheProbeKnowsEveryVirtualOfTheContract) {
  std::set<std::string> probed;
  for (const auto& [name, call] : Calls()) probed.insert(name);
  EXPECT_EQ(DeclaredVirtuals(), probed);
}

using Wrap = std::function<std::unique_ptr<KvCache>(std::unique_ptr<KvCache>)>;

template <typename Decorator>
Wrap Owning() {
  return
      [](std::unique_ptr<KvCache> inner) { return std::make_unique<Decorator>(std::move(inner)); };
}

void ExpectForwardsEverything(const Wrap& wrap, const std::set<std::string>& except) {
  for (const auto& [name, call] : Calls()) {
    if (except.count(name) != 0) continue;
    SCOPED_TRACE(name);
    std::vector<std::string> log;
    std::unique_ptr<KvCache> decorated = wrap(std::make_unique<ProbeCache>(&log));
    log.clear();
    call(*decorated);
    EXPECT_EQ(std::count(log.begin(), log.end(), name), 1) << "calls that reached the inner cache";
  }
}

TEST(DecoratorTest, CountingForwardsEverything) {
  ExpectForwardsEverything(Owning<CountingCache>(), {});
}

TEST(DecoratorTest, RecordingForwardsEverything) {
  ExpectForwardsEverything(Owning<RecordingCache>(), {"device_kv"});  // hidden
}

TEST(DecoratorTest, UpdateOnlyForwardsAllButReserve) {
  ExpectForwardsEverything(Owning<UpdateOnlyCache>(), {"TryReserveSlot"});
}

TEST(DecoratorTest, FaultyForwardsEverythingBeforeItsStep) {
  for (const PlantInfo& info : KnownPlants()) {
    SCOPED_TRACE(info.name);
    Plant plant;
    plant.kind = info.kind;
    plant.step = 1000;
    ExpectForwardsEverything(
        [&](std::unique_ptr<KvCache> inner) {
          return std::make_unique<FaultyCache>(std::move(inner), plant);
        },
        // The first is asked more than once, as a plant's place is checked against it; the second
        // is hidden.
        {"geometry", "device_kv"});
  }
}

TEST(DecoratorTest, ForksAreDecoratedTheSameWay) {
  std::vector<std::string> log;
  const auto probe = [&] { return std::make_unique<ProbeCache>(&log); };
  UpdateOnlyCache update_only(probe());
  EXPECT_NE(dynamic_cast<UpdateOnlyCache*>(update_only.Fork().get()), nullptr);
  CountingCache counting(probe());
  counting.Clear();
  const auto counting_fork = counting.Fork();
  ASSERT_NE(dynamic_cast<CountingCache*>(counting_fork.get()), nullptr);
  EXPECT_EQ(static_cast<CountingCache&>(*counting_fork).total(), Counters{});
  RecordingCache recording(probe(), {.reads = true});
  const auto recording_fork = recording.Fork();
  ASSERT_NE(dynamic_cast<RecordingCache*>(recording_fork.get()), nullptr);
  KvView view;
  recording_fork->View(0, &view);
  EXPECT_EQ(static_cast<RecordingCache&>(*recording_fork).records().size(), 1u);
}

TEST(DecoratorTest, BorrowedInnerCacheIsUsedAndNotOwned) {
  std::vector<std::string> log;
  ProbeCache probe(&log);
  {
    UpdateOnlyCache update_only(probe);
    update_only.Update(1, kRun, kRow, kRow);
  }
  EXPECT_THAT(probe.positions_, ElementsAre(4));
  EXPECT_EQ(probe.current_length(), 6);
}

TEST(UpdateOnlyCacheTest, RefusesEveryRunAfterTheLayerCheckR1) {
  std::vector<std::string> log;
  UpdateOnlyCache cache(std::make_unique<ProbeCache>(&log));
  EXPECT_FALSE(cache.TryReserveSlot(0, kRun));
  EXPECT_FALSE(cache.TryReserveSlot(2, {}));
  EXPECT_THROW(cache.TryReserveSlot(3, kRun), std::out_of_range);
  EXPECT_THROW(cache.TryReserveSlot(-1, {}), std::out_of_range);
  EXPECT_EQ(std::count(log.begin(), log.end(), "TryReserveSlot"), 0);
  EXPECT_EQ(cache.name(), "update-only(probe)");
}

TEST(CountingCacheTest, CountsByLayerAndInTotal) {
  std::vector<std::string> log;
  CountingCache cache(std::make_unique<ProbeCache>(&log));
  const std::vector<int32_t> two = {1, 2};
  const std::vector<float> two_rows(4);
  KvView view;
  cache.TryReserveSlot(0, kRun);
  cache.TryReserveSlot(0, {});
  cache.TryReserveSlot(2, two);
  cache.CommitSlot(2, two);
  cache.Update(1, two, two_rows, two_rows);
  cache.Update(1, {}, {}, {});
  cache.View(1, &view);
  cache.ViewForQuery(1, 0, &view);
  cache.Rollback(0);
  cache.Clear();
  cache.Fork();
  EXPECT_EQ(cache.layer(0),
            (Counters{.reserve_granted = 1, .reserve_refused = 1, .rows_reserved = 1}));
  EXPECT_EQ(cache.layer(1), (Counters{.updates = 2, .rows_updated = 2, .views = 2}));
  EXPECT_EQ(
      cache.layer(2),
      (Counters{.reserve_granted = 1, .rows_reserved = 2, .commits = 1, .rows_committed = 2}));
  EXPECT_EQ(cache.total(), (Counters{.reserve_granted = 2,
                                     .reserve_refused = 1,
                                     .rows_reserved = 3,
                                     .commits = 1,
                                     .rows_committed = 2,
                                     .updates = 2,
                                     .rows_updated = 2,
                                     .views = 2,
                                     .rollbacks = 1,
                                     .clears = 1,
                                     .forks = 1}));
  cache.Reset();
  EXPECT_EQ(cache.total(), Counters{});
  EXPECT_THROW(cache.layer(3), std::out_of_range);
}

TEST(CountingCacheTest, CallsThatThrowCountAsThrownAlone) {
  std::vector<std::string> log;
  CountingCache cache(std::make_unique<ProbeCache>(&log));
  KvView view;
  EXPECT_THROW(cache.Update(3, kRun, kRow, kRow), std::out_of_range);
  EXPECT_THROW(cache.TryReserveSlot(-1, kRun), std::out_of_range);
  EXPECT_THROW(cache.CommitSlot(3, kRun), std::out_of_range);
  EXPECT_THROW(cache.View(3, &view), std::out_of_range);
  EXPECT_THROW(cache.Rollback(7), std::out_of_range);
  EXPECT_EQ(cache.total(), (Counters{.threw = 5}));
  EXPECT_EQ(cache.layer(0), Counters{});
}

TEST(RecordingCacheTest, RecordsWhatWasWrittenAsReadableLines) {
  std::vector<std::string> log;
  RecordingCache cache(std::make_unique<ProbeCache>(&log), {.rows = true});
  cache.Update(1, kRun, kRow, kRow);
  cache.TryReserveSlot(2, kRun);
  cache.CommitSlot(2, std::vector<int32_t>{0, 1});  // another run: what it wrote is not known
  cache.CommitSlot(2, kRun);
  cache.TryReserveSlot(0, {});
  cache.Rollback(3);
  EXPECT_THROW(cache.Rollback(7), std::out_of_range);
  EXPECT_THROW(
      cache.Update(3, std::vector<int32_t>{3, 1}, std::vector<float>(4), std::vector<float>(4)),
      std::out_of_range);
  const auto& records = cache.records();
  ASSERT_EQ(records.size(), 8u);
  EXPECT_EQ(records[0].keys, DigestOfFloats(kRow));
  EXPECT_EQ(records[2].keys, Digest{});
  EXPECT_THAT(records[3].key_rows, ElementsAre(1, 2));
  EXPECT_THAT(records[3].value_rows, ElementsAre(3, 4));
  EXPECT_EQ(records[3].values, DigestOfFloats(std::vector<float>{3, 4}));
  const std::string row = DigestOfFloats(kRow).Hex().substr(0, 8);
  EXPECT_EQ(CacheRecordText(records[0]),
            "update layer 1 positions 4 keys " + row + " values " + row + " done");
  EXPECT_EQ(CacheRecordText(records[1]), "reserve layer 2 positions 4 granted");
  EXPECT_EQ(CacheRecordText(records[2]), "commit layer 2 positions 0..1 done");
  EXPECT_EQ(CacheRecordText(records[4]), "reserve layer 0 positions none refused");
  EXPECT_EQ(CacheRecordText(records[5]), "rollback to 3 done");
  EXPECT_EQ(CacheRecordText(records[6]), "rollback to 7 threw: probe: rollback");
  EXPECT_THAT(CacheRecordText(records[7]), HasSubstr("update layer 3 positions [3,1] keys"));
  EXPECT_THAT(CacheRecordText(records[7]), HasSubstr("threw: probe: layer"));
}

}  // namespace
}  // namespace lockstep
