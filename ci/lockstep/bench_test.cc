// `lockstep bench` and `lockstep synth`, as a user calls them: what was measured is not judged,
// that it was measured and that the bits are the specified ones is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "caches/digest.h"
#include "caches/temporary_folder.h"
#include "ci/lockstep/test_process.h"
#include "engine/synthetic.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Of the smoke setting. It changes only with engine/ARITHMETIC.md, the synthetic preset, the prompt
// or the list of points, never with a kernel table or a number of threads.
constexpr const char* kSmokeDigest = "5d7d8fc23b1d6df5ea944a724a8e5301";

TEST(BenchTest, SmokeRunHasTheSpecifiedBits) {
  const ProcessResult result = RunLockstepCommand({"bench", "engine", "--smoke", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(result.err, "") << "progress belongs on a terminal alone";
  const json object = json::parse(result.out);
  EXPECT_EQ(object["digest"], kSmokeDigest);
  EXPECT_EQ(object["mismatches"], json::array());
  for (const json& point : object["points"]) {
    for (const json& sample : point["samples"]) {
      EXPECT_GT(sample["seconds"], 0.0);
      EXPECT_GT(sample["limit_seconds"], 0.0);
    }
  }
  EXPECT_GT(object["rounds"][0]["limits"][0]["read_bytes_per_second"], 0.0);
}

TEST(BenchTest, TextSaysSeedLimitsAndDigest) {
  const ProcessResult result = RunLockstepCommand(
      {"bench", "engine", "--smoke", "--isa", "scalar", "--threads", "1", "--seed", "3"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(result.out.starts_with("seed 3\n")) << result.out;
  for (const char* part : {"prefill 16", "decode 20", "of the limit", "read GB/s", "digest "}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
}

TEST(BenchTest, PageKeepsWhatIsAroundItsSection) {
  const TemporaryFolder folder;
  const std::string page = folder.File("page.md");
  std::ofstream(page) << "# Performance\n";
  for (int i = 0; i < 2; ++i) {
    const ProcessResult result = RunLockstepCommand(
        {"bench", "engine", "--smoke", "--isa", "scalar", "--threads", "1", "--markdown", page});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  std::stringstream text;
  text << std::ifstream(page).rdbuf();
  EXPECT_TRUE(text.str().starts_with("# Performance\n"));
  EXPECT_EQ(text.str().find("<!-- begin"), text.str().rfind("<!-- begin"));
  EXPECT_EQ(text.str().find("| prefill 16 | simple"), text.str().rfind("| prefill 16 | simple"));
}

TEST(BenchTest, ModelOfTheEnvironmentIsUsedUnlessOneIsGiven) {
  const ProcessResult absent =
      RunLockstepCommand({"bench", "engine"}, {"LOCKSTEP_BENCH_MODEL=/absent.gguf"});
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_THAT(absent.err, HasSubstr("/absent.gguf"));
}

TEST(BenchTest, KernelsComputeTheSameOnEveryTable) {
  const ProcessResult result = RunLockstepCommand({"bench", "kernels", "--smoke", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(json::parse(result.out)["mismatches"], json::array());
}

TEST(BenchTest, KernelsSayTheCommandThatRepeatsThem) {
  const ProcessResult result =
      RunLockstepCommand({"bench", "kernels", "--smoke", "--isa", "scalar", "--seed", "3"});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("lockstep bench kernels --isa scalar --seed 3 "));
}

TEST(BenchTest, ServeGivesTheBitsOfOneAfterAnother) {
  const ProcessResult result = RunLockstepCommand({"bench", "serve", "--smoke"});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("together / in turn"));
  EXPECT_THAT(result.out, HasSubstr("equal"));
}

TEST(BenchTest, PeerThatIsNotInstalledIsSaidSo) {
  const ProcessResult result =
      RunLockstepCommand({"bench", "peer", "--smoke", "--peer", "/absent", "--cache", "simple"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("reports/peer/install"));
}

TEST(BenchTest, WrongUse) {
  const auto refused = [](std::vector<std::string> args, const char* part) {
    args.insert(args.begin(), "bench");
    const ProcessResult result = RunLockstepCommand(args);
    EXPECT_EQ(result.exit_code, 2) << result.out;
    EXPECT_THAT(result.err, HasSubstr(part));
  };
  refused({}, "no subcommand is given");
  refused({"oven"}, "oven");
  refused({"engine", "--smoke", "--isa", "mmx"}, "mmx");
  refused({"engine", "--smoke", "--threads", "0"}, "--threads");
  refused({"engine", "--smoke", "--threads", "1,x"}, "--threads");
  refused({"engine", "--smoke", "--threads", "5000"}, "--threads");
  refused({"engine", "--smoke", "--threads", ""}, "nothing is left to measure");
  refused({"engine", "--prefill", "", "--depth", ""}, "nothing is left to measure");
  refused({"engine", "--prefill", "4000"}, "4000 positions");
  refused({"engine", "--smoke", "--cache", "cuda/9"}, "cuda");
}

TEST(SynthTest, FileIsTheSyntheticImage) {
  const TemporaryFolder folder;
  const std::string path = folder.File("synthetic.gguf");
  const ProcessResult result =
      RunLockstepCommand({"synth", "--preset", "tiny-mha-4x4-f32", "--seed", "5", "--out", path});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string bytes = text.str();
  const auto image = MakeSyntheticImage(SyntheticPreset("tiny-mha-4x4-f32"), 5);
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(bytes)), image));
  EXPECT_THAT(result.out, HasSubstr(DigestOfBytes(image).Hex()));
}

TEST(SynthTest, AnotherWeightTypeIsThePresetInIt) {
  const TemporaryFolder folder;
  const std::string path = folder.File("other.gguf");
  const auto synth = [&](const char* type) {
    return RunLockstepCommand(
        {"synth", "--preset", "tiny-qwen2-3x1-q8_0", "--weights", type, "--out", path});
  };
  const ProcessResult result = synth("q3_k");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("in q3_k (256 wide, 8 heads)"));
  const auto file = GgufFile::Open(path);
  EXPECT_EQ(file->FindTensor("blk.0.attn_k.weight")->type, GgmlType::kQ3_K);
  EXPECT_EQ(file->FindTensor("token_embd.weight")->type, GgmlType::kQ3_K);
  EXPECT_EQ(file->FindTensor("blk.0.attn_k.bias")->type, GgmlType::kF32);
  const ProcessResult bench = RunLockstepCommand(
      {"bench", "engine", "--model", path, "--smoke", "--threads", "1", "--isa", "scalar"});
  EXPECT_EQ(bench.exit_code, 0) << bench.err;
  const ProcessResult bad = synth("q3_x");
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr("--weights: there is no weight type 'q3_x'"));
}

}  // namespace
}  // namespace lockstep::cli
