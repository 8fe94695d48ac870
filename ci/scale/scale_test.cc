// One campaign by every way that it can be cut: GNU parallel with shards that are killed, and the
// environment of a Slurm array and of a Kubernetes Indexed Job.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "ci/shard/shard.h"
#include "reports/run_process.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

const std::string kScale = LOCKSTEP_SOURCE_DIR "/ci/scale";
constexpr std::string_view kCampaign = "fuzz --target plugin --scripts 140 --seed 5";

struct Ran {
  int code = -1;
  std::string out;
};

class ScaleTest : public testing::Test {
 protected:
  ScaleTest() { std::filesystem::create_directories(folder_); }

  Ran Shell(const std::string& line) const {
    const std::string log = folder_ + "/log";
    const ProcessEnd end = RunProcess(
        {.argv = {"bash", "-c", "export LOCKSTEP=" + Lockstep() + "; cd " + folder_ + "; " + line},
         .folder = folder_,
         .log = log,
         .seconds_max = 120});
    return {end.kind == ProcessEnd::Kind::kExited ? end.code : -1, ReadWholeTextFile(log)};
  }

  static std::string Lockstep() { return LOCKSTEP_BINARY; }
  static std::string Campaign() { return Lockstep() + " " + std::string(kCampaign); }

  // What one run gives, by the digest that it prints.
  std::string DigestLine() const {
    const Ran whole = Shell(Campaign());
    EXPECT_EQ(whole.code, 0) << whole.out;
    const size_t at = whole.out.find("digest ");
    return whole.out.substr(at, whole.out.find('\n', at) + 1 - at);
  }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(ScaleTest, KilledShardsAreNamedAndMadeGood) {
  const std::string digest = DigestLine();
  // A command that is killed as shard 3, as long as a file says so.
  std::ofstream(folder_ + "/flaky")
      << "#!/bin/sh\ncase \"$*\" in *'--shard 3/7'*)\n"
         "  test -e "
      << folder_ << "/healthy || kill -KILL $$ ;; esac\nexec " << Lockstep() << " \"$@\"\n";
  ASSERT_EQ(Shell("chmod +x flaky").code, 0);
  const std::string command =
      fmt::format("{}/parallel 7 out {}/flaky {}", kScale, folder_, kCampaign);
  const Ran lost = Shell(command);
  EXPECT_EQ(lost.code, 3) << lost.out;
  EXPECT_THAT(lost.out, HasSubstr("shards 3 of 7 are missing"));
  EXPECT_THAT(lost.out, HasSubstr("INCONCLUSIVE: 120 of 140 inputs in 7 shards"));

  const Ran again = Shell("touch healthy; touch -d '2000-01-01' out/1-of-7.json; " + command);
  EXPECT_EQ(again.code, 0) << again.out;
  EXPECT_THAT(again.out, HasSubstr("holds: 140 of 140 inputs in 7 shards"));
  EXPECT_THAT(again.out, HasSubstr(digest));
  EXPECT_EQ(Shell("find out -name 1-of-7.json -newermt 2001-01-01").out, "")
      << "what was there is not run again";

  const Ran twice = Shell(Lockstep() + " merge out/*.json out/2-of-7.json out/5-of-7.json");
  EXPECT_EQ(twice.code, 0) << twice.out;
  EXPECT_THAT(twice.out, HasSubstr("shards 2, 5 of 7 ran more than once, with one result"));
  EXPECT_THAT(twice.out, HasSubstr(digest));
}

TEST_F(ScaleTest, SchedulersThatCountFromOneAndFromZeroMeetInOneUnion) {
  const std::string digest = DigestLine();
  std::string line = "export SHARDS=3 OUT=out; ";
  line += fmt::format("SLURM_ARRAY_TASK_ID=1 {}/shard {} && ", kScale, Campaign());
  line += fmt::format("JOB_COMPLETION_INDEX=1 {}/shard {} && ", kScale, Campaign());
  line += fmt::format("SHARD=3 {}/shard {} && {} merge out/*.json", kScale, Campaign(), Lockstep());
  const Ran ran = Shell(line);
  EXPECT_EQ(ran.code, 0) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("holds: 140 of 140 inputs in 3 shards"));
  EXPECT_THAT(ran.out, HasSubstr(digest));
}

TEST_F(ScaleTest, AFindingIsTheMergesToTell) {
  const Ran ran =
      Shell(fmt::format("{}/parallel 3 out {} --plant invent-memory", kScale, Campaign()));
  EXPECT_EQ(ran.code, 1) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("FOUND: plugin: "));
}

// An axis is an input of the matrix; 13 shards leave one without any.
TEST_F(ScaleTest, TheMatrixIsCutByAxes) {
  const std::string matrix = Lockstep() +
                             " verify --matrix --synthetic tiny-mha-4x4-f32 -n 1 --cache simple "
                             "--axis rollback --axis save --axis chunking";
  const Ran one = Shell(matrix + " --shard-file one.json");
  EXPECT_EQ(one.code, 0) << one.out;
  const Ran four = Shell(fmt::format("{}/parallel 4 out {}", kScale, matrix));
  EXPECT_EQ(four.code, 0) << four.out << Shell("cat out/log").out;
  EXPECT_THAT(four.out, HasSubstr("holds: 3 of 3 inputs in 4 shards"));
  const ShardResult whole = ParseShardJson(ReadWholeTextFile(folder_ + "/one.json"), "one.json");
  EXPECT_THAT(four.out, HasSubstr("digest " + whole.sum.Hex()));
}

TEST_F(ScaleTest, AMisuseSaysWhatIsMissing) {
  EXPECT_EQ(Shell(kScale + "/shard true").code, 1);
  EXPECT_THAT(Shell("SHARDS=2 OUT=out " + kScale + "/shard true").out,
              HasSubstr("neither SHARD, SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set"));
  EXPECT_EQ(Shell("SHARDS=2 OUT=out SHARD=1 " + kScale + "/shard true").code, 4)
      << "a command that writes no result did not run";
  EXPECT_EQ(Shell(kScale + "/parallel 2").code, 2);
  EXPECT_EQ(Shell(kScale + "/parallel 2 out false").code, 3);
}

}  // namespace
}  // namespace lockstep
