// Real models on a device: the host's bits, in shuffled orders and in the checked mode. The files
// are not committed; without them these tests are skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "caches/error.h"
#include "engine/device/forward_test_util.h"
#include "engine/test_models.h"

namespace lockstep::testing {
namespace {

// Below the folder of models: every one that a device runs.
constexpr std::array<std::string_view, 15> kFiles = {
    "ollama_llama-2-tiny-random.gguf",
    "quant/stories260K-pad256-bf16.gguf",
    "quant/stories260K-pad256-f16.gguf",
    "quant/stories260K-pad256-f32.gguf",
    "quant/stories260K-pad256-q4_0.gguf",
    "quant/stories260K-pad256-q4_k_m.gguf",
    "quant/stories260K-pad256-q5_0.gguf",
    "quant/stories260K-pad256-q6_k.gguf",
    "quant/stories260K-pad256-q8_0.gguf",
    "stories260K-f16.gguf",
    "stories260K-f32-untied.gguf",
    "stories260K-f32.gguf",
    "stories260K-q4_0-ffn192.gguf",
    "stories260K-q8_0-ffn192.gguf",
    "stories260K-q8_0.gguf",
};

std::shared_ptr<const Model> LoadModel(const std::string& path) {
  return Model::Load(GgufFile::Open(path));
}

class GivenModelTest : public ::testing::TestWithParam<std::string_view> {};

TEST_P(GivenModelTest, GivesTheBitsOfTheHostInAnyOrder) {
  LOCKSTEP_TEST_MODEL_OR_SKIP(path, GetParam());
  const auto model = LoadModel(path);
  const std::vector<std::shared_ptr<Device>> devices = {
      NewDefaultDevice(), MakeHostExecutor({.seed = 1}),
      MakeHostExecutor({.seed = 2, .threads = 2})};
  for (const auto& device : devices) {
    for (const char* cache : {"cuda", "hybrid/2", "cuda-quantized/q8_0+q8_0/w4"}) {
      if (!Takes(*model, cache)) continue;
      SCOPED_TRACE(std::string(cache) + " on " + device->Description());
      Pair pair(model, cache, device);
      pair.ExpectEqualGeneration();
      EXPECT_GT(pair.device.engine.device_use().layer_steps, 0);
    }
  }
}

// In steps as short as they can be: every access of every thread is looked up.
TEST_P(GivenModelTest, MakesNoAccessThatTheModelOfADeviceForbids) {
  LOCKSTEP_TEST_MODEL_OR_SKIP(path, GetParam());
  const auto model = LoadModel(path);
  const auto device = MakeHostExecutor({.seed = 5, .checked = true});
  const auto run = [&](const std::string& cache, int32_t prefill) {
    SCOPED_TRACE(cache);
    Pair pair(model, cache, device);
    pair.ExpectEqualStep(prefill, 3);
    pair.ExpectEqualStep(1, 4);
    pair.ExpectEqualRows();
  };
  run("cuda", 3);
  run("hybrid/2", 2);
  // Longer than the window, whose oldest row the second step reads as it is stored.
  const std::string windowed = "cuda-quantized/q8_0+q8_0/w2";
  run(Takes(*model, windowed) ? windowed : "cuda-quantized/f16+f16/w2", 2);
}

INSTANTIATE_TEST_SUITE_P(Files, GivenModelTest, ::testing::ValuesIn(kFiles), [](const auto& i) {
  return TestName(std::filesystem::path(i.param).stem().string());
});

TEST(GivenModelsTest, AreAllThatADeviceRuns) {
  const std::filesystem::path folder = TestModelsDirectory();
  if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << "no folder " << folder;
  for (const auto& below : {folder, folder / "quant"}) {
    if (!std::filesystem::is_directory(below)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(below)) {
      if (entry.path().extension() != ".gguf") continue;
      const std::string name = std::filesystem::relative(entry.path(), folder).string();
      if (std::ranges::find(kFiles, name) != kFiles.end()) continue;
      const auto make = [&] {
        Transformer(LoadModel(entry.path().string()), {.device = MakeHostExecutor()});
      };
      EXPECT_THROW(make(), Error) << name << " is in no test";
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
