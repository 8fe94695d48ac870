// lockstep device-check: the parts of ci/device-check that need no other program, and the table and
// JSON of all of them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "caches/error.h"
#include "caches/file_io.h"
#include "ci/lockstep/commands.h"
#include "ci/lockstep/device_check.h"
#include "engine/stopwatch.h"
#include "reports/table.h"

namespace lockstep::cli {
namespace {

struct DeviceCheckOptions {
  bool simulate = false;
  std::vector<std::string> skip;
  std::string rows;
  std::string json;
};

// What ci/device-check did before: PART<tab>VERDICT<tab>SECONDS<tab>WHAT a line.
std::vector<DeviceCheckRow> RowsOf(const std::string& path) {
  std::vector<DeviceCheckRow> rows;
  if (path.empty()) return rows;
  const std::string bytes = ReadWholeTextFile(path);
  std::string_view text = bytes;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    std::string fields[4];
    for (size_t i = 0; i < std::size(fields); ++i) {
      const size_t end = i + 1 < std::size(fields) ? line.find('\t') : line.size();
      if (end == std::string_view::npos) {
        throw Error({path, "a line has fewer than four fields", "part, verdict, seconds, what"});
      }
      fields[i] = line.substr(0, end);
      line.remove_prefix(std::min(line.size(), end + 1));
    }
    constexpr std::string_view kVerdicts[] = {"ok", "FAILED", "skipped"};
    if (std::ranges::find(kVerdicts, fields[1]) == std::end(kVerdicts)) {
      throw Error({path, fmt::format("'{}' is no verdict", fields[1]), "ok, FAILED, skipped"});
    }
    rows.push_back({.part = fields[0],
                    .verdict = fields[1],
                    .what = fields[3],
                    .seconds = std::strtod(fields[2].c_str(), nullptr)});
  }
  return rows;
}

void RunPart(const DeviceCheckPart& part, const DeviceCheckInput& input,
             std::vector<DeviceCheckRow>* rows) {
  const Stopwatch watch;
  std::vector<DeviceCheckRow> found;
  try {
    found = part.run(input);
  } catch (const std::exception& error) {
    found = {{.part = std::string(part.name), .verdict = "FAILED", .what = error.what()}};
  }
  for (DeviceCheckRow& row : found) row.seconds = watch.seconds();
  rows->insert(rows->end(), found.begin(), found.end());
}

nlohmann::ordered_json JsonOf(const std::vector<DeviceCheckRow>& rows) {
  auto list = nlohmann::ordered_json::array();
  for (const DeviceCheckRow& row : rows) {
    nlohmann::ordered_json object = {
        {"part", row.part}, {"verdict", row.verdict}, {"what", row.what}, {"seconds", row.seconds}};
    if (!row.unit.empty()) {
      object["value"] = row.value;
      object["unit"] = row.unit;
    }
    list.push_back(object);
  }
  return list;
}

void Print(const std::vector<DeviceCheckRow>& rows) {
  Table table{.header = {"part", "verdict", "value", "seconds", "what"}};
  for (const DeviceCheckRow& row : rows) {
    table.rows.push_back({row.part, row.verdict,
                          row.unit.empty() ? "" : fmt::format("{:.1f} {}", row.value, row.unit),
                          fmt::format("{:.1f}", row.seconds), row.what});
  }
  fmt::print("{}", TableText(table));
}

std::string PartNames() {
  std::string names;
  for (const DeviceCheckPart& part : DeviceCheckParts()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", part.name);
  }
  return names;
}

// A name that is misspelt would leave nothing out, or, in a script, something that was meant.
void CheckSkipped(const std::vector<std::string>& skip) {
  for (const std::string& name : skip) {
    if (std::ranges::find(DeviceCheckParts(), name, &DeviceCheckPart::name) !=
        DeviceCheckParts().end()) {
      continue;
    }
    throw Error({"--skip", fmt::format("'{}' is no part", name), "parts: " + PartNames()});
  }
}

ExitCode DeviceCheck(const DeviceCheckOptions& options) {
  CheckSkipped(options.skip);
  std::vector<DeviceCheckRow> rows = RowsOf(options.rows);
  DeviceCheckInput input{.device = options.simulate ? MakeHostExecutor() : MakeCudaDevice(),
                         .simulated = options.simulate};
  if (input.device == nullptr && options.rows.empty()) {
    fmt::print("device-check: skipped: {}\n", WhyNoCudaDevice());
    return ExitCode::kHolds;
  }
  // Whoever has rows has seen a device: that it cannot be used is no reason to be silent about it.
  if (input.device == nullptr) {
    rows.push_back({.part = "device", .verdict = "FAILED", .what = WhyNoCudaDevice()});
  }
  for (const DeviceCheckPart& part : DeviceCheckParts()) {
    if (input.device == nullptr) break;
    if (std::ranges::find(options.skip, part.name) == options.skip.end()) {
      RunPart(part, input, &rows);
    } else {
      rows.push_back(
          {.part = std::string(part.name), .verdict = "skipped", .what = "as --skip asks"});
    }
  }
  Print(rows);
  const auto failed = std::ranges::count(rows, "FAILED", &DeviceCheckRow::verdict);
  const auto skipped = std::ranges::count(rows, "skipped", &DeviceCheckRow::verdict);
  if (!options.json.empty()) {
    const std::string device = input.device == nullptr ? "none" : input.device->Description();
    const nlohmann::ordered_json object = {{"device", device},
                                           {"simulated", options.simulate},
                                           {"failed", failed},
                                           {"skipped", skipped},
                                           {"rows", JsonOf(rows)}};
    WriteWholeTextFile(options.json,
                       object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }
  fmt::print("device-check{}: {} rows, {} failed, {} skipped\n",
             options.simulate ? ", simulated" : "", rows.size(), failed, skipped);
  return failed == 0 ? ExitCode::kHolds : ExitCode::kDifference;
}

}  // namespace

Command DeviceCheckCommand() {
  const auto options = std::make_shared<DeviceCheckOptions>();
  return {"device-check",
          "Check and measure a GPU; ci/device-check builds and tests besides",
          {{"--simulate", "", "on the host executor, with tiny sizes", &options->simulate},
           {"--skip", "PART", "leave a part out; may be given again", &options->skip},
           {"--rows", "FILE", "what ci/device-check did before", &options->rows},
           {"--json-file", "FILE", "write all of it as one JSON object", &options->json}},
          [options] { return DeviceCheck(*options); },
          fmt::format("Parts: {}. Without a GPU it says so and exits with 0; with --rows, that it "
                      "has none is a failure.",
                      PartNames())};
}

}  // namespace lockstep::cli
