// Wrong use of the real binary: exit code 2, a sentence that names the place and what to do, and
// nothing on standard output.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "caches/test_paths.h"
#include "ci/lockstep/test_process.h"
#include "engine/gguf.h"
#include "engine/synthetic.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kPreset = "tiny-gqa-9x3-q8_0";

void ExpectRefused(const std::vector<std::string>& args, const std::vector<std::string_view>& parts,
                   const std::vector<std::string>& environment = {}) {
  SCOPED_TRACE(testing::PrintToString(args));
  const ProcessResult result = RunLockstepCommand(args, environment);
  EXPECT_EQ(result.exit_code, 2) << "signal " << result.signal;
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(result.err.starts_with("lockstep: error: ")) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  for (const std::string_view part : parts) {
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err << "lacks: " << part;
  }
}

std::vector<std::string> RunOf(const std::string& model) {
  return {"run", "--model", model, "--prompt", "Once", "-n", "2"};
}

std::vector<std::string> SyntheticRun(std::initializer_list<std::string> more) {
  std::vector<std::string> args = {"run", "--synthetic", std::string(kPreset)};
  args.insert(args.end(), more);
  return args;
}

// A model file that lives as long as the object.
class ModelFile {
 public:
  ModelFile(std::string_view name, std::span<const std::byte> bytes)
      : path_(WriteTestFile(name, bytes)) {}
  ~ModelFile() { unlink(path_.c_str()); }
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<std::byte> GoodImage() { return MakeSyntheticImage(SyntheticPreset(kPreset), 1); }

// What a device is asked for and the host would do alone.
TEST(WrongUseTest, ADeviceThatWouldHaveNothingToDo) {
  ExpectRefused(SyntheticRun({"--prompt", "x", "--device", "host-executor", "--cache", "paged/4"}),
                {"--device: cache 'paged/4' has no rows on a device", "leave out --cache"});
  ExpectRefused(SyntheticRun({"--prompt", "x", "--gpu-layers", "2"}),
                {"--gpu-layers: ", "give --device too"});
  const std::vector<std::string> verify = {"verify", "--synthetic", std::string(kPreset)};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), verify.begin(), verify.end());
    return more;
  };
  ExpectRefused(with({"--gpu-layers", "2"}), {"--gpu-layers: ", "give --device too"});
  ExpectRefused(with({"--device", "host-executor", "--plant", "skip-commit:layer=1"}),
                {"plant skip-commit:layer=1: ", "the host's calls"});
}

TEST(WrongUseTest, CommandLine) {
  ExpectRefused({}, {"no subcommand", "run", "verify", "doctor", "--help"});
  ExpectRefused({"explode"}, {"'explode'", "--help"});
  ExpectRefused({"conform"}, {"plugin", "lockstep conform --help"});
  ExpectRefused({"run", "--synthetic", std::string(kPreset)}, {"--prompt", "empty"});
  ExpectRefused({"run", "--nope"}, {"--nope"});
  ExpectRefused({"doctor", "extra"}, {"extra", "lockstep doctor --help"});
}

TEST(WrongUseTest, NoModelOrTwo) {
  ExpectRefused({"chat"}, {"--model", "--synthetic"});
  ExpectRefused(SyntheticRun({"--prompt", "x", "--model", "a.gguf"}), {"--model", "--synthetic"});
  ExpectRefused(SyntheticRun({"--prompt", "x", "--story", "f32"}), {"--story", "--synthetic"});
  ExpectRefused({"run", "--story", "q4_0"}, {"q4_0", "f32, q8_0"});
  ExpectRefused({"chat", "--story", "q8_0"}, {"tokenizer.chat_template"});
  ExpectRefused({"run", "--synthetic", "nope", "--prompt", "x"}, {"nope", "smollm-135m"});
}

TEST(WrongUseTest, FileThatIsAbsentAFolderOrEmpty) {
  ExpectRefused(RunOf("no/such/model.gguf"), {"no/such/model.gguf"});
  const std::string folder = SourceDir();
  ExpectRefused(RunOf(folder), {folder});
  const ModelFile empty("empty.gguf", {});
  ExpectRefused(RunOf(empty.path()), {empty.path()});
  const std::string_view text = "This is no model, it is a text of some length.";
  const ModelFile prose("prose.gguf", std::as_bytes(std::span(text)));
  ExpectRefused(RunOf(prose.path()), {prose.path()});
}

TEST(WrongUseTest, TruncatedFile) {
  const std::vector<std::byte> image = GoodImage();
  for (const size_t size : {size_t{3}, size_t{8}, size_t{23}, size_t{24}, size_t{200},
                            image.size() / 2, image.size() - 1}) {
    const ModelFile file("truncated.gguf", std::span(image).first(size));
    ExpectRefused(RunOf(file.path()), {file.path()});
  }
}

TEST(WrongUseTest, UnknownArchitecture) {
  GgufWriter writer;
  writer.AddString("general.architecture", "perceptron");
  const ModelFile file("perceptron.gguf", writer.Finish());
  ExpectRefused(RunOf(file.path()), {file.path(), "perceptron", "llama"});
}

TEST(WrongUseTest, UnsupportedTensorType) {
  std::vector<std::byte> image = GoodImage();
  // A tensor's entry: its name, the number of dimensions (U32), the dimensions (U64 each), the
  // type.
  constexpr std::string_view kName = "blk.0.attn_q.weight";
  const auto name = std::as_bytes(std::span(kName));
  const auto at = std::search(image.begin(), image.end(), name.begin(), name.end());
  ASSERT_NE(at, image.end());
  std::byte* type = &*at + kName.size() + sizeof(uint32_t) + 2 * sizeof(uint64_t);
  const uint32_t q8_1 = 9;  // of activations: no model file has it
  std::memcpy(type, &q8_1, sizeof(q8_1));
  const ModelFile file("q8_1.gguf", image);
  ExpectRefused(RunOf(file.path()), {file.path(), kName, "q8_1"});
}

TEST(WrongUseTest, PromptAndNumberOfTokens) {
  const int32_t context = SyntheticPreset(kPreset).context_length;
  ExpectRefused(SyntheticRun({"--prompt", ""}), {"--prompt", "empty"});
  ExpectRefused(SyntheticRun({"--prompt", std::string(static_cast<size_t>(context) * 8, '~')}),
                {"--prompt", "context", std::to_string(context)});
  for (const std::string n : {"0", "-1", "2147483648", "many", ""}) {
    ExpectRefused(SyntheticRun({"--prompt", "x", "-n", n}), {"-n", "'" + n + "'"});
  }
  ExpectRefused(SyntheticRun({"--prompt", "x", "-n", "2147483647"}), {"-n", "context"});
}

// Positions 0 .. context - 1 exist, and the last new token needs none: exactly so many fit.
TEST(WrongUseTest, FirstPositionOutsideTheContext) {
  const ProcessResult one =
      RunLockstepCommand(SyntheticRun({"--prompt", "x", "-n", "1", "--json"}));
  ASSERT_EQ(one.exit_code, 0) << one.err;
  const auto prompt = nlohmann::json::parse(one.out)["prompt_tokens"].size();
  const auto context = static_cast<size_t>(SyntheticPreset(kPreset).context_length);
  const size_t most = context - prompt + 1;
  const ProcessResult fits =
      RunLockstepCommand(SyntheticRun({"--prompt", "x", "-n", std::to_string(most)}));
  EXPECT_EQ(fits.exit_code, 0) << fits.err;
  ExpectRefused(SyntheticRun({"--prompt", "x", "-n", std::to_string(most + 1)}),
                {"--prompt", std::to_string(context + 1) + " positions"});
  ExpectRefused({"verify", "--synthetic", std::string(kPreset), "--prompt", "x", "-n",
                 std::to_string(context - prompt + 1)},
                {"--prompt", std::to_string(context + 1) + " positions"});
}

TEST(WrongUseTest, UnknownCacheAndKernels) {
  ExpectRefused(SyntheticRun({"--prompt", "x", "--cache", "magic"}), {"magic", "simple"});
  ExpectRefused(SyntheticRun({"--prompt", "x", "--cache", "paged/0"}), {"paged/0"});
  ExpectRefused(SyntheticRun({"--prompt", "x", "--isa", "mmx"}), {"mmx", "scalar"});
  ExpectRefused(SyntheticRun({"--prompt", "x"}), {"LOCKSTEP_ISA", "mmx", "scalar"},
                {"LOCKSTEP_ISA=mmx"});
}

TEST(WrongUseTest, Verify) {
  const std::vector<std::string> tiny = {"verify", "--synthetic", std::string(kPreset)};
  const auto with = [&](std::initializer_list<std::string> more) {
    std::vector<std::string> args = tiny;
    args.insert(args.end(), more);
    return args;
  };
  ExpectRefused({"verify", "--model", "no/such/model.gguf"}, {"no/such/model.gguf"});
  ExpectRefused(with({"--cache", "simple", "--cache", "magic"}), {"magic", "paged"});
  ExpectRefused(with({"--plant", "gremlin"}), {"gremlin", "flip-k"});
  ExpectRefused(with({"--plant", "flip-k:layer=1"}), {"position", "flip-k"});
  ExpectRefused(with({"--prompt", ""}), {"--prompt", "empty"});
  ExpectRefused(with({"-n", "0"}), {"-n", "'0'"});
  ExpectRefused(with({"-n", "2147483647"}), {"context"});
  ExpectRefused(with({"--isa", "mmx"}), {"mmx", "scalar"});
}

TEST(WrongUseTest, OutputThatCannotBeWritten) {
  const ProcessResult result =
      RunLockstepCommand(SyntheticRun({"--prompt", "x", "-n", "2"}), {}, "/dev/full");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("standard output"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace lockstep::cli
