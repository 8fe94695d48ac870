#include "ci/lockstep/finding_keeper.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "caches/digest.h"
#include "caches/error.h"

namespace lockstep::cli {

void WriteTextFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.flush();
  if (!file) throw Error({path, "cannot be written", "what was to be in it is printed above"});
}

FindingKeeper::FindingKeeper(KeeperOptions options) : options_(std::move(options)) {
  std::error_code error;
  is_folder_ = options_.out.ends_with('/') || std::filesystem::is_directory(options_.out, error);
  if (is_folder_ && !std::filesystem::is_directory(options_.out, error) &&
      !std::filesystem::create_directories(options_.out, error)) {
    throw Error({options_.out, "cannot be made", "give a folder that can"});
  }
}

void FindingKeeper::Keep(std::string_view target, const FuzzFinding& finding,
                         const std::string& text) {
  seen_.insert(finding.place);
  kept_.push_back({fmt::format("{}: {}", target, finding.place), finding.what, text});
  fmt::print("{}", text);
  const std::string plant = options_.plant.empty() ? "" : " --plant " + options_.plant;
  if (options_.out.empty()) {
    fmt::print("repeat: lockstep replay{} - (with the text above)\n", plant);
  } else {
    std::string path = options_.out;
    if (is_folder_) {
      // Named by the place: another campaign that finds the same fault writes the same file.
      const Digest place = DigestOfBytes(std::as_bytes(std::span(finding.place)));
      path = std::filesystem::path(options_.out) /
             fmt::format("{}-{}.script", target, place.Hex().substr(0, 12));
    }
    WriteTextFile(path, text);
    fmt::print("repeat: lockstep replay{} {}\n", plant, path);
  }
  if (options_.export_test.empty() || faults() > 1) return;
  WriteTextFile(options_.export_test, FuzzTestSource(text, "the finding", options_.plant));
  fmt::print("test: {}\n", options_.export_test);
}

}  // namespace lockstep::cli
