// The golden files of this tree, held by every kernel table, number of threads and write path.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "caches/file_io.h"
#include "caches/test_paths.h"
#include "engine/test_models.h"
#include "golden/store.h"

namespace lockstep {
namespace {

void ExpectHolds(const RecordOptions& options) {
  CheckOptions check{.tree = {.folder = SourceDir() + "/golden/cases"}, .record = options};
  check.record.models = TestModelsDirectory();
  const std::vector<GoldenStatus> found = CheckGoldens(check);
  EXPECT_GE(found.size(), 30u);
  for (const GoldenStatus& status : found) {
    EXPECT_TRUE(HoldsWith(status.state))
        << status.scenario << "/" << status.file << " is " << GoldenStateName(status.state) << ": "
        << status.detail << "\nlockstep golden check " << status.scenario;
  }
  // At most those of real model files.
  EXPECT_LE(std::ranges::count(found, GoldenState::kSkipped, &GoldenStatus::state), 4);
}

TEST(GoldensTest, HoldOnEveryKernelTable) {
  for (const KernelTable* kernels : AvailableKernels()) {
    SCOPED_TRACE(kernels->name);
    ExpectHolds({.kernels = kernels});
  }
}

TEST(GoldensTest, HoldOnAnyNumberOfThreads) {
  for (const int32_t threads : {2, 16}) ExpectHolds({.threads = threads});
}

TEST(GoldensTest, HoldOnTheLegacyPath) { ExpectHolds({.legacy = true}); }

// A bound that keeps the files reviewable, and the repository small.
TEST(GoldensTest, AreSmall) {
  const GoldenTree tree{.folder = SourceDir() + "/golden/cases"};
  size_t all = 0;
  for (const std::string& name : tree.CaseNames()) {
    for (const RowsGroup& group : GroupsOf(ReadScenario(tree.folder, name))) {
      const std::string path = tree.GoldenPath(name, group.rows);
      const size_t size = ReadWholeTextFile(path).size();
      EXPECT_LE(size, size_t{40} << 10) << path;
      all += size;
    }
  }
  EXPECT_LE(all, size_t{1500} << 10);
}

}  // namespace
}  // namespace lockstep
