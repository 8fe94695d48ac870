// What ClusterFuzzLite and OSS-Fuzz build the fuzz targets with: .clusterfuzzlite/build.sh runs
// here, by a cmake that configures in earnest and notes what is looked for, and then compiles
// nothing.
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "properties/fuzz.h"
#include "reports/run_process.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

using Names = std::set<std::string>;

const std::string kRoot = LOCKSTEP_SOURCE_DIR;

// What configuring looks for, and the package of Debian and Ubuntu that has it; "" where every
// compiler does.
const std::map<std::string, std::string> kPackages = {
    {"find_package fmt", "libfmt-dev"},
    {"find_package PkgConfig", "pkg-config"},
    {"find_package Threads", ""},
    {"pkg_check_modules libpcre2-8", "libpcre2-dev"},
    {"pkg_check_modules libxxhash", "libxxhash-dev"},
};

constexpr std::string_view kCmake = R"(#!/usr/bin/env bash
set -eu
if [[ "$1" == --build ]]; then
  [[ "$3" == --target ]]
  printf '%s\n' "${@:4}" > "$WORK/targets"
  mkdir -p "$2/properties"
  for target in "${@:4}"; do echo "$target" > "$2/properties/$target"; done
else
  PATH=${PATH#*:}
  exec cmake --trace-expand --trace-format=json-v1 --trace-redirect="$WORK/trace" "$@"
fi
)";

void WriteProgram(const std::string& path, std::string_view text) {
  WriteWholeTextFile(path, text);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

// "libpcre2-8" of "libpcre2-8>=10.40".
std::string WithoutVersion(const std::string& module) {
  return module.substr(0, module.find_first_of("<>="));
}

// The commands of the project's own files that look for something: "find_package fmt".
Names LookedFor(const std::string& trace) {
  Names names;
  std::istringstream lines(trace);
  for (std::string line; std::getline(lines, line);) {
    const auto call = nlohmann::json::parse(line);
    const std::string file = call.value("file", ""), command = call.value("cmd", "");
    if (!file.starts_with(kRoot + "/")) continue;
    const auto args = call.at("args").get<std::vector<std::string>>();
    if (command == "pkg_check_modules") {
      for (const std::string& module : std::vector(args.begin() + 1, args.end())) {
        if (module == "REQUIRED" || module == "IMPORTED_TARGET") continue;
        names.insert(command + " " + WithoutVersion(module));
      }
    } else if (command.starts_with("find_")) {
      names.insert(command + " " + args.at(0));
    }
  }
  return names;
}

// The packages that a Dockerfile installs.
Names PackagesOf(const std::string& dockerfile) {
  std::istringstream words(dockerfile.substr(dockerfile.find("apt-get install") + 15));
  Names names;
  for (std::string word; words >> word && word != "COPY" && word != "&&";) {
    if (!word.starts_with('-') && word != "\\") names.insert(word);
  }
  return names;
}

class FuzzImageTest : public testing::Test {
 protected:
  FuzzImageTest() {
    for (const char* name : {"bin", "out", "work"}) {
      std::filesystem::create_directories(folder_.File(name));
    }
    WriteProgram(folder_.File("bin/cmake"), kCmake);
    WriteProgram(folder_.File("bin/zip"), "#!/bin/sh\n[ \"$(ls)\" ] && echo \"$4\" > \"$3\"\n");
  }

  // By the compiler of this machine, for an engine that would be linked.
  void Build() const {
    const ProcessEnd end = RunProcess(
        {.argv = {"env", "PATH=" + folder_.File("bin") + ":" + std::getenv("PATH"), "CC=cc",
                  "CXX=c++", "CFLAGS=-O1", "CXXFLAGS=-O1", "OUT=" + folder_.File("out"),
                  "WORK=" + folder_.File("work"), "LIB_FUZZING_ENGINE=/usr/lib/libengine.a",
                  kRoot + "/.clusterfuzzlite/build.sh"},
         .folder = kRoot,
         .log = folder_.File("log"),
         .seconds_max = 120});
    ASSERT_TRUE(end.ok()) << ReadWholeTextFile(folder_.File("log"));
  }

  void ExpectNeededPackages() const {
    Names packages = {"cmake", "ninja-build", "zip"};  // what build.sh itself starts
    for (const std::string& name : LookedFor(Work("trace"))) {
      const auto known = kPackages.find(name);
      ASSERT_NE(known, kPackages.end())
          << "fuzz targets are configured with " << name << ": leave it to builds without "
          << "LOCKSTEP_FUZZERS, or name its package here and in .clusterfuzzlite/Dockerfile";
      if (!known->second.empty()) packages.insert(known->second);
    }
    EXPECT_EQ(PackagesOf(ReadWholeTextFile(kRoot + "/.clusterfuzzlite/Dockerfile")), packages);
  }

  // The runner has neither the libraries of the machine that built nor its C++ library.
  void ExpectNothingShared() const {
    std::istringstream lines(Work("lockstep/build.ninja"));
    size_t linked = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.find("LINK_LIBRARIES = ") == line.npos) continue;
      ++linked;
      EXPECT_THAT(line, Not(HasSubstr(".so"))) << "a shared library";
      EXPECT_THAT(line, Not(HasSubstr("fmt"))) << "of another C++ library than the runner's";
      EXPECT_THAT(line, HasSubstr("libpcre2-8.a"));
      EXPECT_THAT(line, HasSubstr("/usr/lib/libengine.a"));
    }
    EXPECT_EQ(linked, FuzzTargets().size());
  }

  void ExpectEveryTarget() const {
    Names wanted, brought;
    for (const FuzzTargetInfo& target : FuzzTargets()) {
      const std::string name = "fuzz_" + std::string(target.name);
      wanted.insert(name);
      wanted.insert(name + "_seed_corpus.zip");
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder_.File("out"))) {
      brought.insert(entry.path().filename());
    }
    EXPECT_EQ(brought, wanted);
  }

  std::string Work(const std::string& name) const {
    return ReadWholeTextFile(folder_.File("work/" + name));
  }

  const TemporaryFolder folder_;
};

// One test, because configuring takes seconds.
TEST_F(FuzzImageTest, HasWhatItsBuildAsksForAndItsRunnerNeedsNothing) {
  ASSERT_NO_FATAL_FAILURE(Build());
  ExpectNeededPackages();
  ExpectNothingShared();
  ExpectEveryTarget();
}

}  // namespace
}  // namespace lockstep
