#include "engine/model/weight_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "engine/model/test_support.h"
#include "engine/thread_team.h"
#include "engine/transformer.h"

namespace lockstep::testing {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(WeightArenaTest, HandsOutAlignedPiecesOneAfterAnother) {
  for (int64_t bytes : {int64_t{640}, 5 * kMiB}) {
    WeightArena arena(bytes);
    EXPECT_GE(arena.size(), bytes);
    const auto first = arena.Take(100);
    const auto second = arena.Take(bytes - 128);
    EXPECT_EQ(first.size(), 100u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first.data()) % 64, 0u);
    EXPECT_EQ(second.data(), first.data() + 128);
    std::memset(second.data(), 7, second.size());
    EXPECT_GE(arena.HugePageBytes(), 0);
    EXPECT_LE(arena.HugePageBytes(), arena.size());
  }
  WeightArena large(5 * kMiB);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large.Take(1).data()) % (2 * kMiB), 0u);
}

TEST(WeightArenaDeathTest, RefusesMoreThanItHas) {
  WeightArena arena(128);
  arena.Take(65);
  EXPECT_DEATH(arena.Take(1), "1 bytes of 0 left");
}

// Where each matrix of a step begins, in the order in which the step reads them.
std::vector<const std::byte*> MatricesInOrder(const Model& model) {
  std::vector<const std::byte*> begins;
  for (const LayerWeights& w : model.layers()) {
    const auto add = [&](std::initializer_list<const PackedMatrix*> matrices) {
      for (const PackedMatrix* m : matrices) begins.push_back(m->data());
    };
    add({&w.wq, &w.wk, &w.wv, &w.wo});
    if (w.moe.experts.empty()) {
      add({&w.w_gate, &w.w_up, &w.w_down});
      continue;
    }
    add({&w.moe.router});
    for (const ExpertWeights& expert : w.moe.experts) add({&expert.gate, &expert.up, &expert.down});
    const ExpertWeights& shared = w.moe.shared;
    if (shared.gate.rows() > 0) add({&shared.gate, &shared.up, &shared.down});
  }
  begins.push_back(model.output().data());
  return begins;
}

TEST(ModelMemoryTest, AStepIsOneForwardStream) {
  for (const std::string& preset : SmallPresets()) {
    const auto model = PresetModel(preset);
    const auto begins = MatricesInOrder(*model);
    EXPECT_TRUE(std::is_sorted(begins.begin(), begins.end())) << preset;
    EXPECT_LE(begins.back() - begins.front(), model->weight_bytes()) << preset;
    EXPECT_LE(model->HugePageBytes(), model->weight_bytes()) << preset;
  }
}

// Packing in pieces on any number of threads gives the bytes of packing at once.
TEST(ModelMemoryTest, AnyTeamPacksTheSameBytes) {
  for (const char* preset : {"tiny-gqa-9x3-q8_0", "tiny-bias-6x2-f16", "tiny-mha-4x4-f32"}) {
    const auto file = MakeSyntheticModel(SyntheticPreset(preset), 1);
    for (int32_t threads : {1, 2, 5, 33}) {
      ThreadTeam team(threads);
      const auto model = Model::Load(file, {.team = &team});
      const LayerWeights& w = model->layers()[1];
      const GgufTensor& tensor = *file->FindTensor("blk.1.ffn_up.weight");
      const PackedMatrix whole(tensor.type, w.w_up.rows(), w.w_up.cols(), tensor.data);
      const auto bytes =
          static_cast<size_t>(PackedMatrix::PackedBytes(tensor.type, whole.rows(), whole.cols()));
      EXPECT_EQ(std::memcmp(w.w_up.data(), whole.data(), bytes), 0) << preset << " " << threads;
    }
  }
}

TEST(ModelMemoryTest, ProgressGrowsToTheWhole) {
  std::vector<int64_t> done;
  int64_t whole = 0;
  const auto progress = [&](int64_t bytes, int64_t total) {
    done.push_back(bytes);
    whole = total;
  };
  const auto file = MakeSyntheticModel(SyntheticPreset("tiny-gqa-9x3-q8_0"), 1);
  Model::Load(file, {.progress = progress});
  ASSERT_GT(done.size(), 10u);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), whole);
}

}  // namespace
}  // namespace lockstep::testing
