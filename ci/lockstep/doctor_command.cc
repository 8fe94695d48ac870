// lockstep doctor: what this machine and this build are, whether the ground that the digests stand
// on holds here, and what the machine lacks. Exit code 1 when the ground does not hold: a tool that
// is missing makes no digest wrong.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "caches/device.h"
#include "caches/error.h"
#include "caches/registry.h"
#include "ci/lockstep/cli.h"
#include "ci/lockstep/commands.h"
#include "ci/lockstep/doctor_machine.h"
#include "ci/lockstep/doctor_tools.h"
#include "engine/generate.h"
#include "engine/kernels.h"
#include "engine/math.h"
#include "engine/model.h"
#include "engine/synthetic.h"
#include "engine/transformer.h"

namespace lockstep::cli {
namespace {

// Small, quantized, with heads that share KV heads.
constexpr std::string_view kDoctorPreset = "tiny-gqa-9x3-q8_0";

struct Line {
  std::string topic;
  std::string text;
  bool ok = true;
};

// The value of the first "key : value" line of a file under /proc.
std::string ProcValue(const char* path, std::string_view key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "unknown";
}

Line Machine() {
  utsname names = {};
  uname(&names);
  return {"machine", fmt::format("{} {} {}, {}, {} threads", names.sysname, names.release,
                                 names.machine, ProcValue("/proc/cpuinfo", "model name"),
                                 std::thread::hardware_concurrency())};
}

Line Memory() { return {"memory", MemoryText(MemoryOfThisMachine())}; }
Line Limits() { return {"limits", LimitsText(LimitsOfThisProcess())}; }
Line Features() { return {"features", FeaturesText(FeaturesOfTables())}; }

Line Compiler() {
#ifdef NDEBUG
  constexpr std::string_view kMemory = "";
#else
  constexpr std::string_view kMemory = ", cache memory poisoned";
#endif
#ifdef __clang__
  constexpr std::string_view kName = "";  // __VERSION__ begins with it
#else
  constexpr std::string_view kName = "g++ ";
#endif
  return {"compiler", fmt::format("{}{}{}", kName, __VERSION__, kMemory)};
}

Line Libraries() {
  const unsigned xxh = XXH_versionNumber();
  return {"libraries", fmt::format("fmt {}.{}.{}, {}, nlohmann-json {}.{}.{}, xxHash {}.{}.{}",
                                   FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100,
                                   CommandLineLibrary(), NLOHMANN_JSON_VERSION_MAJOR,
                                   NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH,
                                   xxh / 10000, xxh / 100 % 100, xxh % 100)};
}

Line Kernels() {
  std::vector<std::string_view> names;
  for (const KernelTable* table : AvailableKernels()) names.push_back(table->name);
  std::string text = fmt::format("available {}; ", fmt::join(names, ", "));
  try {
    return {"kernels", text + fmt::format("chosen {}", SelectKernels().name)};
  } catch (const Error& error) {
    return {"kernels", text + error.what(), false};
  }
}

// CheckFloatingPointEnvironment aborts where the ground does not hold: a child process tries it.
Line FloatingPoint() {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    CheckFloatingPointEnvironment();
    _exit(0);
  }
  int status = 0;
  const bool ok = child > 0 && waitpid(child, &status, 0) == child && status == 0;
  return {"floating point",
          ok ? "rounds to nearest even, keeps subnormals, contracts nothing"
             : "is not what engine/ARITHMETIC.md asks for; see the check that failed above",
          ok};
}

// Every kernel table computes the same small model: one digest, or the bits are wrong somewhere.
Line Arithmetic() {
  const auto model = Model::Load(MakeSyntheticModel(SyntheticPreset(kDoctorPreset), 1));
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7};
  GenerateOptions generate;
  generate.max_new_tokens = 8;
  std::vector<std::string> digests;
  for (const KernelTable* table : AvailableKernels()) {
    Transformer transformer(model, {.kernels = table});
    const auto cache = ParseCacheSpec("simple").make({.geometry = model->config().geometry(16)});
    digests.push_back(Generate(transformer, *cache, prompt, generate).logits_digest.Hex());
  }
  const bool ok = std::equal(digests.begin() + 1, digests.end(), digests.begin());
  return {"arithmetic",
          fmt::format("{} on {}: {}", kDoctorPreset, ok ? "all kernels" : "kernels differ",
                      ok ? digests[0] : fmt::format("{}", fmt::join(digests, ", "))),
          ok};
}

// A machine without a GPU is a healthy one.
Line Devices() {
#if defined(LOCKSTEP_CUDA)
  const auto cuda = MakeCudaDevice();
  const std::string found = cuda != nullptr
                                ? fmt::format("{}: {}", cuda->name(), cuda->Description())
                                : fmt::format("no GPU ({})", WhyNoCudaDevice());
  const std::string text = "built with the CUDA Toolkit, " + found;
#else
  const std::string text = WhyNoCudaDevice();
#endif
  return {"devices", fmt::format("{}; {}", MakeHostExecutor()->Description(), text)};
}

Line Models() {
  const char* chosen = std::getenv("LOCKSTEP_MODELS");
  const std::filesystem::path folder =
      chosen != nullptr && *chosen != '\0' ? chosen : LOCKSTEP_MODELS_DEFAULT;
  size_t count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".gguf") ++count;
  }
  return {"test models",
          count > 0 ? fmt::format("{} files in {}", count, folder.string())
                    : fmt::format("none in {}: tests of real models skip; set LOCKSTEP_MODELS",
                                  folder.string())};
}

// Everything, in the order of the output.
std::vector<Line> Examine(std::span<const FoundTool> tools) {
  std::vector<Line> lines;
  for (const auto examine : {Machine, Memory, Limits, Compiler, Libraries, Features, Kernels,
                             Devices, FloatingPoint, Arithmetic, Models}) {
    lines.push_back(examine());
  }
  lines.push_back({"tools", ToolsText(tools)});
  for (const std::string& text : LackingTexts(tools)) lines.push_back({"lacks", text});
  return lines;
}

nlohmann::ordered_json ToolsJson(std::span<const FoundTool> tools) {
  auto list = nlohmann::ordered_json::array();
  for (const FoundTool& found : tools) {
    nlohmann::ordered_json tool = {{"name", found.tool.name}, {"there", !found.path.empty()}};
    if (found.path.empty()) {
      tool["get"] = found.tool.get;
    } else {
      tool["path"] = found.path;
      if (found.fault.empty()) tool["version"] = found.version;
    }
    list.push_back(std::move(tool));
  }
  return list;
}

nlohmann::ordered_json FeaturesJson() {
  auto object = nlohmann::ordered_json::object();
  for (const TableFeatures& table : FeaturesOfTables()) {
    for (const ProcessorFeature& feature : table.features) {
      object[table.table][feature.name] = feature.there;
    }
  }
  return object;
}

ExitCode Doctor(bool json) {
  const std::vector<FoundTool> tools = FindTools(SearchOfThisProcess());
  const std::vector<Line> lines = Examine(tools);
  const bool healthy = std::ranges::all_of(lines, &Line::ok);
  if (json) {
    nlohmann::ordered_json object;
    for (const Line& line : lines) {
      object["checks"].push_back({{"topic", line.topic}, {"ok", line.ok}, {"text", line.text}});
    }
    object["features"] = FeaturesJson();
    object["tools"] = ToolsJson(tools);
    object["healthy"] = healthy;
    fmt::print("{}\n", object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    for (const Line& line : lines) {
      fmt::print("{:<15} {}{}\n", line.topic, line.ok ? "" : "PROBLEM: ", line.text);
    }
    fmt::print("{}\n", healthy ? "healthy" : "NOT HEALTHY: digests of this build mean nothing");
  }
  return healthy ? ExitCode::kHolds : ExitCode::kDifference;
}

}  // namespace

Command DoctorCommand() {
  const auto json = std::make_shared<bool>(false);
  return {"doctor",
          "Describe this machine and build, check what the digests stand on, name what is missing",
          {{"--json", "", "one JSON object on standard output", json.get()}},
          [json] { return Doctor(*json); }};
}

}  // namespace lockstep::cli
