// What `lockstep doctor` says of a machine, on machines that are made up.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "caches/test_paths.h"
#include "ci/lockstep/doctor_machine.h"
#include "ci/lockstep/doctor_tools.h"
#include "engine/kernels.h"

namespace lockstep::cli {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

// Folders with programs that print what real ones print.
class DoctorToolsTest : public testing::Test {
 protected:
  std::string Folder(const std::string& name) const { return folder_.File(name); }

  void Program(const std::string& name, const std::string& body,
               const std::string& folder = "bin") const {
    std::filesystem::create_directories(Folder(folder));
    const std::string path = Folder(folder) + "/" + name;
    WriteWholeTextFile(path, "#!/bin/sh\n" + body + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }

  std::vector<FoundTool> Find(const std::string& path, double seconds_max = 10) const {
    return FindTools({.path = path, .cuda_folders = Folder("cuda"), .seconds_max = seconds_max});
  }

  const TemporaryFolder folder_;
};

const FoundTool& ToolNamed(std::string_view name, const std::vector<FoundTool>& tools) {
  return *std::ranges::find(tools, name, [](const FoundTool& found) { return found.tool.name; });
}

TEST_F(DoctorToolsTest, ReadsTheVersionsOfRealPrograms) {
  Program("g++", "echo 'g++ (Debian 12.2.0-14+deb12u1) 12.2.0'");
  Program("clang++", "echo 'Debian clang version 14.0.6'; echo 'Target: x86_64-pc-linux-gnu'");
  Program("parallel", "echo 'GNU parallel 20221122'; echo 'Copyright (C) 2007-2022 Ole Tange'");
  Program("valgrind", "echo valgrind-3.19.0 >&2");
  Program("ninja", "echo 1.11.1");
  const auto tools = Find(Folder("bin"));
  EXPECT_EQ(ToolsText(tools),
            "g++ 12.2.0, clang++ 14.0.6, ninja 1.11.1, valgrind 3.19.0, parallel 20221122");
  EXPECT_EQ(ToolNamed("g++", tools).path, Folder("bin/g++"));
}

#if defined(__x86_64__)
// The name itself has a number in it.
TEST_F(DoctorToolsTest, ReadsTheVersionBehindANameWithANumber) {
  Program("aarch64-linux-gnu-g++", "echo 'aarch64-linux-gnu-g++ (Debian 12.2.0-14) 12.2.0'");
  Program("qemu-aarch64", "echo 'qemu-aarch64 version 7.2.13 (Debian 1:7.2+dfsg-7+deb12u7)'");
  EXPECT_EQ(ToolsText(Find(Folder("bin"))), "aarch64-linux-gnu-g++ 12.2.0, qemu-aarch64 7.2.13");
}
#endif

TEST_F(DoctorToolsTest, NamesWhatIsMissingWithWhatBringsIt) {
  for (const Tool& tool : KnownTools()) {
    if (tool.name == "npm" || tool.name == "valgrind" || tool.name == "shellcheck") continue;
    Program(std::string(tool.name), "echo 1.0");
  }
  EXPECT_THAT(LackingTexts(Find(Folder("bin"))),
              ElementsAre("valgrind: ci/install", "shellcheck: ci/install --lint",
                          "npm: ci/install --pages"));
  Program("npm", "echo 9.2.0");
  Program("shellcheck", "echo 0.9.0");
  Program("valgrind", "echo 3.19.0");
  EXPECT_THAT(LackingTexts(Find(Folder("bin"))), IsEmpty());
  std::filesystem::remove(Folder("bin/g++"));
  std::filesystem::remove(Folder("bin/cmake"));
  EXPECT_THAT(LackingTexts(Find(Folder("bin"))), ElementsAre("g++, cmake: ci/install"));
}

TEST_F(DoctorToolsTest, AMachineWithNothingHasNothing) {
  const auto tools = Find("");
  EXPECT_EQ(ToolsText(tools), "none");
  EXPECT_THAT(LackingTexts(tools), testing::SizeIs(4));
  EXPECT_THAT(LackingTexts(tools), Contains(HasSubstr("nvcc: the CUDA Toolkit")));
}

TEST_F(DoctorToolsTest, AProgramThatDoesNotAnswerIsThereAndItIsSaid) {
  Program("g++", "exit 1");
  Program("clang++", "echo none");
  Program("cmake", "kill -9 $$");
  EXPECT_EQ(ToolsText(Find(Folder("bin"))),
            "g++ (does not tell its version: exit code 1), "
            "clang++ (does not tell its version: it prints no number), "
            "cmake (does not tell its version: it crashes)");
  std::filesystem::remove_all(Folder("bin"));
  Program("g++", "exec sleep 30");
  const auto tools = Find(Folder("bin"), /*seconds_max=*/0.2);
  EXPECT_EQ(ToolsText(tools), "g++ (does not tell its version: no answer in 0.2 s)");
  EXPECT_THAT(LackingTexts(tools), Not(Contains(StartsWith("g++"))));
}

TEST_F(DoctorToolsTest, TheFirstFolderOfThePathCountsAndOnlyWhatRuns) {
  Program("g++", "echo 1.5", "first");
  Program("g++", "echo 2.5", "second");
  std::filesystem::permissions(Folder("first/g++"), std::filesystem::perms::owner_read);
  std::filesystem::create_directories(Folder("third/g++"));
  const std::string path = Folder("third") + "::" + Folder("none") + ":" + Folder("first");
  EXPECT_EQ(ToolsText(Find(path)), "none");
  EXPECT_EQ(ToolsText(Find(path + ":" + Folder("second"))), "g++ 2.5");
}

TEST_F(DoctorToolsTest, NvccIsFoundWhereTheBuildFindsIt) {
  Program("nvcc", "echo 'Cuda compilation tools, release 13.0, V13.0.88'", "cuda");
  Program("g++", "echo 12.2", "cuda");
  EXPECT_EQ(ToolsText(Find("")), "nvcc 13.0") << "and nothing else from there";
}

// The names of an array of ci/install.
std::vector<std::string> PackagesOf(const std::string& script, const std::string& array) {
  const size_t begin = script.find("\n" + array + "=(") + array.size() + 3;
  std::vector<std::string> names;
  std::string name;
  for (const char c : script.substr(begin, script.find(')', begin) - begin) + " ") {
    if (c != ' ' && c != '\n') {
      name += c;
    } else if (!name.empty()) {
      names.push_back(std::exchange(name, {}));
    }
  }
  return names;
}

TEST(DoctorPackagesTest, CiInstallBringsWhatItIsSaidToBring) {
  const std::string script = ReadWholeTextFile(SourceDir() + "/ci/install");
  std::vector<std::string> built = PackagesOf(script, "packages");
  for (const std::string cross : {"g++-aarch64-linux-gnu", "qemu-user"}) {
    EXPECT_THAT(script, HasSubstr("packages+=(")) << cross;
    EXPECT_THAT(script, HasSubstr(cross));
    built.push_back(cross);
  }
  for (const Tool& tool : KnownTools()) {
    const std::string package(tool.package);
    if (tool.get == "ci/install") {
      EXPECT_THAT(built, Contains(package));
    } else if (tool.get == "ci/install --lint") {
      EXPECT_THAT(PackagesOf(script, "lint_packages"), Contains(package));
    } else if (tool.get == "ci/install --pages") {
      EXPECT_THAT(PackagesOf(script, "page_packages"), Contains(package));
    } else {
      EXPECT_EQ(package, "") << tool.name;
    }
  }
}

TEST(DoctorFeaturesTest, TheTablesOfThisMachineAreThoseWhoseFeaturesItHas) {
  const auto features = FeaturesOfTables();
  bool all = true;
  size_t there = 1;  // scalar needs nothing
  for (const TableFeatures& table : features) {
    all = all && table.all();
    const bool available = std::ranges::any_of(
        AvailableKernels(), [&](const KernelTable* known) { return known->name == table.table; });
    EXPECT_EQ(available, all) << table.table;
    there += available ? 1 : 0;
  }
  EXPECT_EQ(there, AvailableKernels().size()) << "a table whose features nobody names";
}

TEST(DoctorFeaturesTest, NamesWhatIsThereOrWhatIsMissing) {
  const std::vector<TableFeatures> tables = {
      {"avx2", {{"avx2", true}, {"fma", true}}},
      {"avx512", {{"avx512f", true}, {"avx512bw", false}, {"avx512vl", false}}}};
  EXPECT_EQ(FeaturesText(tables), "avx2 has avx2 fma; avx512 lacks avx512bw avx512vl");
  EXPECT_THAT(FeaturesText({}), HasSubstr("no table"));
}

TEST(DoctorMemoryTest, ReadsWhatTheSystemSays) {
  const std::string_view meminfo =
      "MemTotal:       32863952 kB\nMemFree:         1048576 kB\nMemAvailable:   2097152 kB\n";
  EXPECT_EQ(MemoryText(ParseMemory(meminfo, "")), "31.3 GiB, 2.0 GiB of them available");
  EXPECT_EQ(MemoryText(ParseMemory(meminfo, "max\n")), "31.3 GiB, 2.0 GiB of them available");
  EXPECT_EQ(MemoryText(ParseMemory(meminfo, "536870912\n")),
            "31.3 GiB, 2.0 GiB of them available; this container may take 512.0 MiB");
  EXPECT_EQ(MemoryText(ParseMemory("MemTotalX: 1 kB\nMemTotal: many\n", "")),
            "unknown, unknown of them available");
  const MachineMemory memory = MemoryOfThisMachine();
  EXPECT_GT(memory.available.value_or(0), 0);
  EXPECT_GE(memory.total.value_or(0), memory.available.value_or(0));
}

TEST(DoctorLimitsTest, SaysWhatALimitTakesAway) {
  ProcessLimits limits = {.stack = 8 << 20, .files = 1024};
  EXPECT_EQ(LimitsText(limits),
            "stack 8.0 MiB, open files 1024, core unlimited, address space unlimited");
  limits = {.core = 0, .address_space = uint64_t{4} << 30};
  EXPECT_EQ(LimitsText(limits),
            "stack unlimited, open files unlimited, core 0 B (a crash leaves no dump: ulimit -c "
            "unlimited), address space 4.0 GiB (AddressSanitizer reserves terabytes of it: ulimit "
            "-v unlimited)");
}

}  // namespace
}  // namespace lockstep::cli
