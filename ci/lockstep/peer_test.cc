// `lockstep peer`, as a user calls it. lockstep's own engine is the subject and the peer, so that
// these tests need nothing else; where llama.cpp is installed (reports/peer/install) it is asked as
// well.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "ci/lockstep/test_process.h"
#include "engine/synthetic.h"
#include "engine/synthetic_types.h"
#include "reports/peer_check.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kServe = std::string(LOCKSTEP_BINARY) + " peer serve";

// Axes by the verdicts of their cells.
std::map<std::string, std::set<std::string>> VerdictsOf(const json& matrix) {
  std::map<std::string, std::set<std::string>> verdicts;
  for (const json& cell : matrix["cells"]) verdicts[cell["axis"]].insert(cell["verdict"]);
  return verdicts;
}

json MatrixOf(const std::string& engine, std::vector<std::string> more, int expected_exit) {
  std::vector<std::string> args = {"peer",     "matrix", "--engine",  engine, "--json",
                                   "--tokens", "20",     "--threads", "2,3"};
  args.insert(args.end(), more.begin(), more.end());
  const ProcessResult result = RunLockstepCommand(args);
  EXPECT_EQ(result.exit_code, expected_exit) << result.out << result.err;
  return json::parse(result.out);
}

TEST(PeerMatrixTest, LockstepIsInvariantUnderEveryAxis) {
  const json matrix = MatrixOf(kServe, {}, 0);
  for (const auto& [axis, verdicts] : VerdictsOf(matrix)) {
    EXPECT_EQ(verdicts, std::set<std::string>{"equal"}) << axis;
  }
  EXPECT_EQ(matrix["models"].size(), 5u);
}

TEST(PeerMatrixTest, EachAxisShowsAFaultThatDependsOnIt) {
  struct Case {
    const char* control;
    const char* axis;
    bool alone;  // on no other axis
  };
  // Quantized weights round a fault in a last bit away, so the model's are F32.
  for (const auto& [control, axis, alone] :
       {Case{"token-count", "chunking", false}, Case{"thread-range", "threads", true},
        Case{"token-order", "batch", false}, Case{"stale-row", "rollback", true},
        Case{"nudged-fork", "fork", true}, Case{"process-id", "repeat", false}}) {
    std::vector<std::string> args = {"--synthetic", "tiny-ragged-3x1-f32"};
    if (!alone) args.insert(args.end(), {"--axis", axis});
    const json matrix = MatrixOf(fmt::format("{} --control {}", kServe, control), args, 1);
    for (const auto& [name, verdicts] : VerdictsOf(matrix)) {
      if (name == axis) {
        EXPECT_TRUE(verdicts.contains("DIFFERS")) << control << " on " << name;
      } else if (alone) {
        EXPECT_FALSE(verdicts.contains("DIFFERS")) << control << " on " << name;
      }
    }
  }
}

TEST(PeerMatrixTest, CrashesAndHangsAreFindingsAndTheRestGoesOn) {
  const std::vector<std::string> axis = {"--axis",           "repeat",    "--synthetic",
                                         "tiny-mha-4x4-f32", "--timeout", "3"};
  for (const char* end : {"sed -u 70q", "(sed -u 70q; sleep 60)"}) {
    const json matrix = MatrixOf(fmt::format("sh -c '{} | {}'", end, kServe), axis, 1);
    ASSERT_EQ(matrix["cells"].size(), 3u);
    EXPECT_EQ(matrix["cells"][1]["verdict"], "FAILED") << end;
    EXPECT_NE(matrix["cells"][1]["detail"], "") << end;
    EXPECT_EQ(matrix["cells"][2]["verdict"], "equal") << end;
  }
}

TEST(PeerMatrixTest, AnEngineThatTakesWhatItHasToRefuseIsSeen) {
  const json matrix = MatrixOf(fmt::format("sh -c 'sed -u s/forget/reset/ | {}'", kServe),
                               {"--axis", "refusals", "--synthetic", "tiny-mha-4x4-f32"}, 1);
  for (const json& cell : matrix["cells"]) {
    EXPECT_EQ(cell["verdict"], cell["value"] == "unknown request" ? "FAILED" : "equal") << cell;
  }
}

TEST(PeerMatrixTest, WhatIsNoEngineIsWrongUse) {
  for (const char* engine : {"false", "/absent/engine", "echo hello"}) {
    const ProcessResult result = RunLockstepCommand({"peer", "matrix", "--engine", engine});
    EXPECT_EQ(result.exit_code, 2) << engine;
    EXPECT_THAT(result.err, HasSubstr("speaks the protocol")) << engine;
  }
  EXPECT_EQ(RunLockstepCommand({"peer", "matrix", "--engine", kServe, "--axis", "moon"}).exit_code,
            2);
  EXPECT_EQ(RunLockstepCommand({"peer", "check", "--peer", "/absent"}).exit_code, 2);
}

json CheckOf(const std::string& engine, std::vector<std::string> more, int expected_exit) {
  std::vector<std::string> args = {"peer", "check", "--engine", engine, "--json"};
  args.insert(args.end(), more.begin(), more.end());
  const ProcessResult result = RunLockstepCommand(args);
  EXPECT_EQ(result.exit_code, expected_exit) << result.out << result.err;
  return json::parse(result.out);
}

TEST(PeerCheckTest, LockstepAgreesWithItself) {
  const json check = CheckOf(kServe,
                             {"--synthetic", "tiny-gqa-9x3-q8_0", "--synthetic",
                              "tiny-headdim80-2x2-bf16", "--synthetic", "tiny-linear-4x1-f32"},
                             0);
  for (const json& row : check["models"]) {
    EXPECT_EQ(row["verdict"], "holds") << row;
    EXPECT_EQ(row["twin"]["log_max"], 0.0);
    EXPECT_EQ(row["greedy_equal"], 24);
    EXPECT_EQ(row["texts_equal"], row["texts"]);
  }
}

TEST(PeerCheckTest, EveryPlantedFaultIsFound) {
  const std::pair<const char*, const char*> cases[] = {
      {"rope-pairing", "tiny-qwen3-5x1-f16"},      {"rope-base", "tiny-granite-6x3-q8_0"},
      {"rope-scaling", "tiny-linear-4x1-f32"},     {"rope-scaling", "tiny-llama3-4x2-bf16"},
      {"position", "tiny-gqa-9x3-q8_0"},           {"no-bias", "tiny-qwen2-3x1-q8_0"},
      {"no-qk-norm", "tiny-qwen3-5x1-f16"},        {"heads", "tiny-gqa-9x3-q8_0"},
      {"no-multipliers", "tiny-granite-6x3-q8_0"}, {"norm-eps", "tiny-granite-6x3-q8_0"},
      {"window", "tiny-mistral-6x2-q8_0"},         {"window", "tiny-gemma2-5x1-q8_0"},
      {"soft-caps", "tiny-gemma2-5x1-q8_0"},       {"experts", "tiny-mixtral-4x2-q8_0"},
      {"stored-rows", "tiny-qwen3moe-4x1-q4_0"},   {"stored-rows", "tiny-gqa-9x3-q8_0"},
      {"stored-rows", "tiny-bias-6x2-f16"},
  };
  for (const auto& [plant, preset] : cases) {
    const json check = CheckOf(kServe, {"--synthetic", preset, "--plant", plant}, 1);
    EXPECT_EQ(check["models"][0]["verdict"], "DIFFERS") << plant;
    // By far, not by a little: 40 times the bound of the twin, or three times what rounding costs.
    const json& row = check["models"][0];
    if (plant == std::string("stored-rows")) {
      EXPECT_GT(row["our_rounding"]["log_mean"],
                3 * row["bound"]["rounding"].get<double>() *
                    row["their_rounding"]["log_mean"].get<double>());
    } else {
      EXPECT_GT(row["twin"]["log_max"], 0.04) << plant;
    }
  }
  EXPECT_EQ(RunLockstepCommand({"peer", "check", "--engine", kServe, "--synthetic",
                                "tiny-mha-4x4-f32", "--plant", "no-bias"})
                .exit_code,
            2)
      << "nothing was planted";
}

TEST(PeerCheckTest, OtherTokenIdsARefusalAndACrashAreFindings) {
  const std::vector<std::string> model = {"--synthetic", "tiny-mha-4x4-f32", "--timeout", "5"};
  const auto filtered = [](const char* filter) {
    return fmt::format("sh -c 'sed -u {} | {}'", filter, kServe);
  };
  json row = CheckOf(filtered("s/girl/boy/"), model, 1)["models"][0];
  EXPECT_THAT(row["detail"].get<std::string>(), HasSubstr("token ids"));
  EXPECT_EQ(row["texts_equal"].get<int>() + 1, row["texts"].get<int>());
  row = CheckOf(filtered("s/.gguf/.absent/"), model, 1)["models"][0];
  EXPECT_EQ(row["verdict"], "DIFFERS");
  row = CheckOf(filtered("60q"), model, 1)["models"][0];
  EXPECT_THAT(row["detail"].get<std::string>(), HasSubstr("exit code 0"));
}

// Answers under the name for which differences are known: of the first line, for steps answer
// bytes.
const std::string kRenamed = kServe + " | (sed -u -e 1s/lockstep/llama.cpp/ -e 1q; cat)";

TEST(PeerCheckTest, AKnownDifferenceThatIsNotThereIsAFinding) {
  // This peer has a window: without ours, which is what is known of llama.cpp, the two differ.
  const json row = CheckOf(fmt::format("sh -c '{}'", kRenamed),
                           {"--synthetic", "tiny-mistral-6x2-q8_0"}, 1)["models"][0];
  EXPECT_EQ(row["verdict"].get<std::string>(), "DIFFERS");
  EXPECT_THAT(row["detail"].get<std::string>(), HasSubstr("on the twin"));
}

// A model of which the peer reads another file.
class KnownDifferenceTest : public testing::Test {
 protected:
  static SyntheticSpec Spec() {
    return InWeightType(SyntheticPreset("tiny-mistral-6x2-q8_0"), GgmlType::kF32);
  }

  PeerCheckModel Model(std::span<const std::byte> theirs) {
    const PeerCheckModel model = {.name = "known",
                                  .path = folder_.File("theirs.gguf"),
                                  .file = MakeSyntheticModel(Spec(), 1)};
    WriteWholeFile(model.path, theirs);
    return model;
  }

  static PeerCheckRow Check(const PeerCheckModel& model, const char* filter) {
    const std::string command = fmt::format("sed -u {} | {}", filter, kRenamed);
    return RunPeerCheck({&model, 1}, {.command = {"sh", "-c", command}, .timeout_seconds = 20})
        .rows.at(0);
  }

  TemporaryFolder folder_;
};

TEST_F(KnownDifferenceTest, OfAnIgnoredKeyIsThatAndNothingElse) {
  SyntheticSpec without = Spec();
  without.window = 0;
  PeerCheckModel model = Model(MakeSyntheticImage(without, 1));
  EXPECT_EQ(Check(model, "s/a/a/").verdict, PeerCheckRow::Verdict::kDiffers);
  model.known = {.kind = PeerKnown::Kind::kIgnoresKey,
                 .text = "llama.attention.sliding_window",
                 .why = "it has no window"};
  const PeerCheckRow known = Check(model, "s/a/a/");
  EXPECT_EQ(known.verdict, PeerCheckRow::Verdict::kKnown) << known.detail;
  EXPECT_THAT(known.detail, HasSubstr("it has no window"));
  EXPECT_EQ(known.twin.log_max, 0.0);
  const PeerCheckRow texts = Check(model, "s/girl/boy/");
  EXPECT_EQ(texts.verdict, PeerCheckRow::Verdict::kDiffers);
  EXPECT_THAT(texts.detail, HasSubstr("token ids"));
  // One token of the random ones is another.
  const PeerCheckRow token = Check(model, "'60 s/:.[0-9]*.}]/:[7]}]/'");
  EXPECT_EQ(token.verdict, PeerCheckRow::Verdict::kDiffers) << token.detail;
}

TEST_F(KnownDifferenceTest, OfARefusalIsThatMessageAndNothingElse) {
  std::vector<std::byte> image = MakeSyntheticImage(Spec(), 1);
  const auto text = [&](std::string_view wanted, size_t from) {
    const std::string_view all(reinterpret_cast<const char*>(image.data()), image.size());
    return all.find(wanted, from);
  };
  std::memcpy(image.data() + text("llama", text("general.architecture", 0)), "cloud", 5);
  PeerCheckModel model = Model(image);
  model.known = {.kind = PeerKnown::Kind::kRefuses, .text = "cloud", .why = "it has no weather"};
  const PeerCheckRow known = Check(model, "s/a/a/");
  EXPECT_EQ(known.verdict, PeerCheckRow::Verdict::kKnown) << known.detail;
  EXPECT_THAT(known.detail, HasSubstr("it has no weather: "));
  const PeerCheckRow texts = Check(model, "s/girl/boy/");
  EXPECT_EQ(texts.verdict, PeerCheckRow::Verdict::kDiffers);
  EXPECT_THAT(texts.detail, HasSubstr("token ids"));
  model.known.text = "wrong number of tensors";
  EXPECT_EQ(Check(model, "s/a/a/").verdict, PeerCheckRow::Verdict::kDiffers);
}

TEST(PeerCheckTest, WhatGoesWrongOnlyWhenThePeerGoesOnAloneIsFound) {
  // From its rollback on, it gets another token than it chose.
  const std::string filter = R"(/rollback/,/never/ s/:.[0-9]*.}]/:[7]}]/)";
  const json row = CheckOf(fmt::format("sh -c 'sed -u \"{}\" | {}'", filter, kServe),
                           {"--synthetic", "tiny-mha-4x4-f32"}, 1)["models"][0];
  EXPECT_EQ(row["twin"]["log_max"], 0.0);
  EXPECT_LT(row["greedy_equal"].get<int>(), 24);
  EXPECT_THAT(row["detail"].get<std::string>(), HasSubstr("alone"));
}

// llama.cpp, where it is installed.
class LlamaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(std::string(LOCKSTEP_PEER_FOLDER) + "/engine.mjs")) {
      GTEST_SKIP() << "llama.cpp is not installed in " LOCKSTEP_PEER_FOLDER
                      ": run reports/peer/install, which needs npm";
    }
  }
};

TEST_F(LlamaTest, AgreesOnEachArchitectureAndFormOfRope) {
  std::vector<std::string> args = {"peer", "check", "--json", "--random", "12", "--greedy", "8"};
  std::set<std::string> architectures;
  for (const SyntheticSpec& spec : SyntheticPresets()) {
    if (spec.name == "smollm-135m") continue;  // large
    const bool is_new = architectures.insert(spec.architecture).second;
    if (!is_new && spec.rope_linear == 1 && !spec.rope_factors && spec.yarn == 1) continue;
    args.insert(args.end(), {"--synthetic", spec.name});
  }
  const ProcessResult result = RunLockstepCommand(args);
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const json parsed = json::parse(result.out);
  for (const json& row : parsed["models"]) EXPECT_EQ(row["verdict"], "holds") << row;
}

TEST_F(LlamaTest, SpeaksTheProtocol) {
  const ProcessResult result =
      RunLockstepCommand({"peer", "matrix", "--json", "--axis", "fork", "--axis", "refusals",
                          "--tokens", "16", "--synthetic", "tiny-mha-4x4-f32"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
}

}  // namespace
}  // namespace lockstep::cli
