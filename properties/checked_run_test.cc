// Every registered cache under the memory checks, and caches whose misuse of memory shows nowhere
// else.
#include "properties/checked_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "caches/cache_file.h"
#include "caches/registry.h"
#include "oracle/decorators.h"
#include "properties/script_builder.h"

namespace lockstep {
namespace {

constexpr int32_t kOperations = 40;

class CheckedRunTest : public testing::TestWithParam<std::string> {};

std::vector<std::string> CacheNames() {
  std::vector<std::string> names;
  for (const CacheSpec& spec : AllCaches()) names.push_back(spec.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Registered, CheckedRunTest, testing::ValuesIn(CacheNames()),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

TEST_P(CheckedRunTest, WritesItsRowsAloneAndDependsOnRowsAlone) {
  const ScriptSubject subject = RegisteredSubject(GetParam());
  MemoryCounts counts;
  int64_t operations = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const CacheScript script = GenerateScript(GetParam(), seed, kOperations);
    const CheckedRun checked = RunScriptChecked(script, subject, seed);
    ASSERT_FALSE(checked.run.finding)
        << "seed " << seed << ": " << checked.run.finding->clause << " "
        << checked.run.finding->what << " after operation " << checked.run.finding->op << "\n"
        << ScriptText(script);
    counts += checked.memory;
    operations += checked.run.counts.operations;
  }
  EXPECT_EQ(counts.states_hashed, operations);
  EXPECT_GE(counts.buffers_watched, 2 * operations);
  EXPECT_GT(counts.bytes_changed, 5000);
}

// What a cache can do wrong in memory that no row, length or exception shows.
enum class Misuse {
  kWritesPastItsRows,  // an update writes one float past its last row
  kZeroesRoundedUp,    // an update zeroes up to a multiple of 8 rows
  kCommitWritesPast,   // a commit writes a float past its run
  kRefusalWrites,      // a refused reservation touches the row that it would have given
  kReadWrites,         // a view writes past the rows that it shows
  kSavesStaleRows,     // a cache file carries the row past the length
  kReadsRoundedUp,     // a storage hash reads a multiple of 8 rows, and forgets what it read
  kHashesRoundedUp,    // ... and does not
};

class MisusingCache : public ForwardingCache {
 public:
  MisusingCache(std::unique_ptr<KvCache> inner, Misuse misuse)
      : ForwardingCache(std::move(inner)), misuse_(misuse) {}

  void View(int32_t layer, KvView* view) const override {
    inner().View(layer, view);
    if (misuse_ == Misuse::kReadWrites) WritePast(layer, 1);
  }

  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override {
    inner().Update(layer, positions, keys, values);
    if (positions.empty()) return;
    if (misuse_ == Misuse::kWritesPastItsRows) WritePast(layer, 1);
    if (misuse_ == Misuse::kZeroesRoundedUp) {
      const int32_t rows = 7 - (length(layer) + 7) % 8;
      WritePast(layer, rows * static_cast<int64_t>(geometry().kv_stride()));
    }
  }

  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override {
    const auto slot = inner().TryReserveSlot(layer, positions);
    if (!slot && misuse_ == Misuse::kRefusalWrites) WritePast(layer, 1);
    return slot;
  }

  void CommitSlot(int32_t layer, std::span<const int32_t> positions) override {
    inner().CommitSlot(layer, positions);
    if (misuse_ == Misuse::kCommitWritesPast && !positions.empty()) WritePast(layer, 1);
  }

  Digest StorageDigest() const override {
    const bool reads = misuse_ == Misuse::kReadsRoundedUp;
    if (!reads && misuse_ != Misuse::kHashesRoundedUp) return inner().StorageDigest();
    Digest digest = inner().StorageDigest();
    for (int32_t layer = 0; layer < geometry().num_layers; ++layer) {
      const int32_t rows = 7 - (length(layer) + 7) % 8;
      const uint64_t sum = SumPast(layer, rows * geometry().kv_stride());
      if (!reads && sum != 0) digest.low = ~digest.low;
    }
    return digest;
  }

  void SaveState(StateWriter* writer) const override {
    inner().SaveState(writer);
    if (misuse_ != Misuse::kSavesStaleRows || length(0) == 0 || length(0) == max_length()) return;
    writer->WriteBytes({End(0), sizeof(float)});
  }

  std::unique_ptr<KvCache> Fork() override {
    return std::make_unique<MisusingCache>(inner().Fork(), misuse_);
  }

 private:
  // Right behind the last key of the layer.
  const std::byte* End(int32_t layer) const {
    KvView view;
    inner().View(layer, &view);
    const KvSegment& last = view.segments.back();
    return last.keys + last.count * RowBytes(last.key_type, geometry().kv_stride());
  }

  void WritePast(int32_t layer, int64_t floats) const {
    if (layer < 0 || layer >= geometry().num_layers || inner().length(layer) == 0) return;
    auto* end = reinterpret_cast<float volatile*>(const_cast<std::byte*>(End(layer)));
    for (int64_t i = 0; i < floats; ++i) end[i] = 0.25f + static_cast<float>(++writes_);
  }

  uint64_t SumPast(int32_t layer, int64_t floats) const {
    if (inner().length(layer) == 0) return 0;
    const auto* end = reinterpret_cast<const uint32_t volatile*>(End(layer));
    uint64_t sum = 0;
    for (int64_t i = 0; i < floats; ++i) sum = sum + end[i] % 3;
    return sum;
  }

  Misuse misuse_;
  mutable int64_t writes_ = 0;  // so that no two write the same
};

ScriptSubject Misusing(const std::string& cache, Misuse misuse) {
  ScriptSubject subject = RegisteredSubject(cache);
  subject.make = [make = subject.make, misuse](const CacheScript& script) {
    return std::make_unique<MisusingCache>(make(script), misuse);
  };
  return subject;
}

// The first finding of the first scripts.
std::optional<ScriptFinding> FirstFinding(const std::string& cache, const ScriptJudge& judge) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    if (auto finding = judge(GenerateScript(cache, seed, kOperations))) return finding;
  }
  return std::nullopt;
}

struct MisuseCase {
  Misuse misuse;
  std::vector<std::string> clauses;  // any of these; empty: any at all
};

class MisusedMemoryTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Caches, MisusedMemoryTest, testing::Values("simple", "paged/4"),
                         [](const auto& param_info) { return param_info.param.substr(0, 5); });

TEST_P(MisusedMemoryTest, EveryMisuseIsFound) {
  const std::vector<MisuseCase> cases = {{Misuse::kWritesPastItsRows, {"U2"}},
                                         {Misuse::kZeroesRoundedUp, {}},
                                         {Misuse::kCommitWritesPast, {"C1"}},
                                         {Misuse::kRefusalWrites, {"R2"}},
                                         {Misuse::kReadWrites, {}},
                                         {Misuse::kSavesStaleRows, {"X2"}},
                                         {Misuse::kReadsRoundedUp, {"crash"}},
                                         {Misuse::kHashesRoundedUp, {"X2", "crash"}}};
  for (const auto& [misuse, clauses] : cases) {
    // What lies past a block is another block: not even a guard page sees that it is read.
    if (misuse == Misuse::kReadsRoundedUp && GetParam() != "simple") continue;
    const auto finding = FirstFinding(GetParam(), CheckedJudge(Misusing(GetParam(), misuse)));
    ASSERT_TRUE(finding) << "misuse " << static_cast<int>(misuse);
    EXPECT_TRUE(clauses.empty() || std::ranges::count(clauses, finding->clause) > 0)
        << "misuse " << static_cast<int>(misuse) << ": " << finding->clause << " " << finding->what;
  }
}

// They do nothing that the plain comparison could see: a write past the rows is gone when the rows
// grow over it, and a file is not looked into.
TEST_P(MisusedMemoryTest, ThePlainRunDoesNotSeeThem) {
  for (const Misuse misuse : {Misuse::kCommitWritesPast, Misuse::kSavesStaleRows}) {
    const ScriptSubject subject = Misusing(GetParam(), misuse);
    const auto judge = [&](const CacheScript& script) {
      return RunScript(script, subject).finding;
    };
    const auto finding = FirstFinding(GetParam(), judge);
    EXPECT_TRUE(!finding || finding->clause == "S1") << static_cast<int>(misuse);
  }
}

}  // namespace
}  // namespace lockstep
