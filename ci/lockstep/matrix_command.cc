#include "ci/lockstep/matrix_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/registry.h"
#include "ci/lockstep/matrix_models.h"
#include "ci/lockstep/matrix_outside.h"
#include "ci/lockstep/matrix_picture.h"
#include "ci/lockstep/matrix_shard.h"
#include "ci/lockstep/matrix_types.h"
#include "ci/lockstep/progress_line.h"
#include "ci/lockstep/shell_word.h"
#include "engine/math.h"
#include "oracle/matrix.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

// What makes this matrix, for a line of output.
std::string SubjectLine(const MatrixFlags& flags, const MatrixOptions& options) {
  std::string models;
  if (flags.source.given()) {
    models = flags.source.Description() + flags.adapters.CommandLine();
  } else if (flags.every_model) {
    models = fmt::format("{} synthetic models, each as it is and with an adapter",
                         options.models.size() / 2);
  } else {
    for (const MatrixModel& model : options.models) {
      models += (models.empty() ? "" : ", ") + model.name;
    }
  }
  std::string kernels;
  for (const KernelTable* table : options.kernels) {
    kernels += fmt::format("{}{}", kernels.empty() ? "" : " ", table->name);
  }
  return fmt::format("{}; {} caches; kernels {}; seed {}", models, options.caches.size(), kernels,
                     flags.source.seed);
}

MatrixOptions OptionsOf(const MatrixFlags& flags) {
  MatrixOptions options;
  for (const std::string& axis : flags.axes) options.axes.push_back(ParseMatrixAxis(axis).axis);
  if (!flags.control.empty()) options.planted = &ParseMatrixControl(flags.control);
  for (const std::string& cache : flags.caches) options.caches.push_back(ParseCacheSpec(cache));
  if (options.caches.empty()) options.caches.assign(AllCaches().begin(), AllCaches().end());
  if (!flags.isa.empty()) {
    options.kernels = {&SelectKernels(flags.isa)};
  } else {
    options.kernels.assign(AvailableKernels().begin(), AvailableKernels().end());
  }
  if (!flags.every_type) options.models = MatrixModelsOf(flags);
  options.decode_steps = flags.decode_steps;
  options.seed = flags.source.seed;
  return options;
}

// The flags of a process that prints the digests of the same models, kernels and caches.
std::vector<std::string> DigestArguments(const MatrixFlags& flags, const std::string& control) {
  std::vector<std::string> args = {"verify", "--matrix", "--digests", "--seed",
                                   fmt::format("{}", flags.source.seed)};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) args.insert(args.end(), {name, value});
  };
  add("--model", flags.source.path);
  add("--synthetic", flags.source.synthetic);
  add("--story", flags.source.story);
  add("--isa", flags.isa);
  add("--control", control);
  for (const std::string& cache : flags.caches) add("--cache", cache);
  for (const std::string& file : flags.adapters.files) add("--lora", file);
  if (flags.every_model) args.push_back("--every-model");
  return args;
}

std::vector<OutsideDigests> ProcessRows(const MatrixFlags& flags, const MatrixOptions& options) {
  const KernelTable* odd = ProcessKernels();
  const auto row = [&](std::string value, const std::string& control, bool other_memory) {
    OutsideDigests made{.axis = MatrixAxis::kProcess, .value = std::move(value)};
    made.control = !control.empty();
    const auto text = OutputOfSecondProcess(DigestArguments(flags, control), other_memory);
    made.lines = ParseDigestLines("second process", text);
    made.expected = made.control ? LinesHere(options.models, {&odd, 1}, options.caches)
                                 : LinesHere(options.models, options.kernels, options.caches);
    return made;
  };
  return {row("second process", "", false), row("other memory", "", true),
          row("control", "process-id", false)};
}

bool Wants(const MatrixOptions& options, MatrixAxis axis) {
  return options.axes.empty() || std::ranges::find(options.axes, axis) != options.axes.end();
}

void AddOutside(const MatrixFlags& flags, MatrixOptions* options) {
  const auto add = [&](const std::vector<OutsideDigests>& rows) {
    options->outside.insert(options->outside.end(), rows.begin(), rows.end());
  };
  if (Wants(*options, MatrixAxis::kIsa)) add(Aarch64Rows(flags.aarch64));
  if (Wants(*options, MatrixAxis::kCompiler)) add(CompilerRows(flags.compilers));
  if (Wants(*options, MatrixAxis::kProcess)) add(ProcessRows(flags, *options));
}

ordered_json RowJson(const MatrixRow& row) {
  ordered_json json = {{"axis", row.axis->name},
                       {"what", row.axis->what},
                       {"test", row.axis->test},
                       {"control", row.control},
                       {"control_caught", row.control_caught},
                       {"control_detail", row.control_detail}};
  for (const MatrixCell& cell : row.cells) {
    ordered_json cell_json = {{"value", cell.value},
                              {"verdict", MatrixVerdictName(cell.verdict)},
                              {"comparisons", cell.comparisons}};
    if (cell.verdict != MatrixCell::Verdict::kNotAvailable) {
      cell_json["digest"] = cell.digest.Hex();
    }
    if (!cell.detail.empty()) cell_json["detail"] = cell.detail;
    json["cells"].push_back(std::move(cell_json));
  }
  return json;
}

std::string JsonText(const MatrixFlags& flags, const MatrixOptions& options,
                     const MatrixResult& result, const std::string& repeat) {
  ordered_json json = {{"seed", flags.source.seed},
                       {"decode_steps", options.decode_steps},
                       {"outcome", MatrixOutcomeName(result.outcome)},
                       {"verdict", result.verdict},
                       {"comparisons", result.comparisons},
                       {"command", repeat}};
  for (const MatrixModel& model : options.models) {
    json["models"].push_back({{"name", model.name}, {"prompt_tokens", model.prompt.size()}});
  }
  for (const KernelTable* table : options.kernels) json["kernels"].push_back(table->name);
  for (const CacheSpec& cache : options.caches) json["caches"].push_back(cache.name);
  for (const MatrixRow& row : result.rows) json["axes"].push_back(RowJson(row));
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

void PrintRow(const MatrixRow& row) {
  std::string_view axis = row.axis->name;
  const std::string control = fmt::format("{} {}", row.control.empty() ? "no control" : row.control,
                                          row.control_caught ? "caught" : "NOT CAUGHT");
  for (const MatrixCell& cell : row.cells) {
    if (cell.verdict == MatrixCell::Verdict::kNotAvailable) {
      fmt::print("{:<11} {:<27} {}: {}\n", axis, cell.value, MatrixVerdictName(cell.verdict),
                 cell.detail);
    } else {
      const bool first = &cell == row.cells.data();
      fmt::print("{:<11} {:<27} {:<9} {:>9}  {:.16}{}{}\n", axis, cell.value,
                 MatrixVerdictName(cell.verdict), cell.comparisons, cell.digest.Hex(),
                 first ? "  " : "", first ? control : "");
    }
    axis = "";
  }
}

// Digests are cut to their first 16 digits here: --json has all 32.
void PrintTable(const MatrixResult& result) {
  fmt::print("{:<11} {:<27} {:<9} {:>9}  {:<16}  {}\n", "axis", "value", "verdict", "compared",
             "digest", "control");
  for (const MatrixRow& row : result.rows) PrintRow(row);
  for (const MatrixRow& row : result.rows) {
    for (const MatrixCell& cell : row.cells) {
      const bool bad = cell.verdict == MatrixCell::Verdict::kDiffers ||
                       cell.verdict == MatrixCell::Verdict::kUnproved;
      if (!bad) continue;
      fmt::print("\n{} {}: {}\n  {}\n", row.axis->name, cell.value, MatrixVerdictName(cell.verdict),
                 cell.detail);
    }
  }
  fmt::print("\n{}\n", result.verdict);
}

void WriteText(const std::string& path, const std::string& text) {
  if (!path.empty()) WriteWholeTextFile(path, text);
}

ExitCode CodeOf(MatrixOutcome outcome) {
  switch (outcome) {
    case MatrixOutcome::kEqual:
      return ExitCode::kHolds;
    case MatrixOutcome::kDiffers:
      return ExitCode::kDifference;
    case MatrixOutcome::kUnproved:
      return ExitCode::kInconclusive;
  }
  return ExitCode::kInternal;
}

// What a second process is asked for: nothing but lines.
ExitCode PrintDigests(const MatrixOptions& options, bool probe) {
  std::vector<const KernelTable*> kernels = options.kernels;
  if (options.planted != nullptr && options.planted->kernels != nullptr) {
    kernels = {options.planted->kernels()};
  }
  const auto lines =
      probe ? LinesOfPresets(kernels) : LinesHere(options.models, kernels, options.caches);
  for (const DigestLine& line : lines) fmt::print("{}\n", line.Text());
  return ExitCode::kHolds;
}

}  // namespace

std::vector<Flag> MatrixFlags::Flags() {
  return {
      {"--matrix", "", "the determinism matrix instead: everything that must not change a bit",
       &matrix},
      {"--axis", "AXIS", "an axis of the matrix, once for each (default: all)", &axes},
      {"--control", "CONTROL", "a control as the subject of its axis, to see it found", &control},
      {"--every-model", "", "every small synthetic model, as it is and with an adapter",
       &every_model},
      {"--every-type", "", "every family in every weight type, on rows of every type", &every_type},
      {"--weights", "TYPE", "with --every-type: this weight type alone", &weights},
      {"--compilers", "FILE", "what ci/compilers wrote (default: beside the binary)", &compilers},
      {"--aarch64", "FILE", "what the probe printed on aarch64 (default: beside the binary)",
       &aarch64},
      {"--json-file", "FILE", "the matrix as JSON, in a file", &json_file},
      {"--svg", "FILE", "the matrix as a picture", &svg},
      {"--html", "FILE", "the matrix as a page", &html},
      {"--digests", "", "print digests for another process to compare, and nothing else", &digests},
      {"--probe", "", "with --digests: those that ci/probe.cc prints", &probe},
      {"--shard", "I/N", "only every N-th axis, from the I-th", &shard},
      {"--shard-file", "FILE", "what ran, for lockstep merge", &shard_file},
  };
}

std::string MatrixFlags::NeedsMatrix() const {
  if (matrix) return "";
  if (!axes.empty()) return "--axis";
  if (every_model) return "--every-model";
  if (every_type) return "--every-type";
  if (digests) return "--digests";
  if (probe) return "--probe";
  if (shard != "1/1") return "--shard";
  const std::pair<const char*, const std::string*> texts[] = {
      {"--control", &control}, {"--weights", &weights},      {"--compilers", &compilers},
      {"--aarch64", &aarch64}, {"--json-file", &json_file},  {"--svg", &svg},
      {"--html", &html},       {"--shard-file", &shard_file}};
  for (const auto& [name, value] : texts) {
    if (!value->empty()) return name;
  }
  return "";
}

std::string MatrixFlags::CommandLine(std::string_view axis) const {
  std::string line = "lockstep verify --matrix";
  line += source.given() ? " " + source.CommandLine() : fmt::format(" --seed {}", source.seed);
  line += adapters.CommandLine();
  if (every_model) line += " --every-model";
  if (every_type) line += " --every-type";
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) line += fmt::format(" {} {}", name, ShellWord(value));
  };
  add("--weights", weights);
  add("--prompt", prompt);
  if (!every_type) line += fmt::format(" -n {}", decode_steps);
  for (const std::string& cache : caches) add("--cache", cache);
  add("--isa", isa);
  add("--control", control);
  add("--compilers", compilers);
  add("--aarch64", aarch64);
  if (!axis.empty()) {
    add("--axis", std::string(axis));
  } else {
    for (const std::string& given : axes) add("--axis", given);
  }
  return line;
}

std::string MatrixDetails() {
  std::string text = "\n\nAxes of the matrix:";
  for (const MatrixAxisInfo& info : MatrixAxes()) {
    text += fmt::format("\n  {:<11} {}", info.name, info.what);
  }
  text += "\n\nControls, which each axis has to find:";
  for (const MatrixControl& control : MatrixControls()) {
    text += fmt::format("\n  {:<20} {}", control.name, control.what);
  }
  return text + "\n";
}

ExitCode RunMatrixCommand(const MatrixFlags& flags) {
  CheckFloatingPointEnvironment();
  MatrixOptions options = OptionsOf(flags);
  if (flags.every_type) return RunEveryType(flags, std::move(options));
  if (!flags.weights.empty()) {
    throw Error({"--weights", "the models of this matrix are of the types that they are",
                 "give --every-type too"});
  }
  if (flags.digests) return PrintDigests(options, flags.probe);
  const int64_t axes_of_all = KeepAxesOfShard(ParseShard(flags.shard), &options);
  if (options.axes.empty()) {
    fmt::print("holds: no axis of {} is in shard {}\n", axes_of_all, flags.shard);
    WriteMatrixShard(flags, axes_of_all, {});
    return ExitCode::kHolds;
  }
  const std::string subject = SubjectLine(flags, options);
  if (!flags.json) {
    fmt::print("lockstep verify --matrix: seed {}\n{}\n\n", flags.source.seed, subject);
    std::fflush(stdout);
  }
  AddOutside(flags, &options);
  ProgressLine line;
  options.on_progress = [&](const std::string& text) { line.Show(text); };
  const MatrixResult result = RunMatrix(options);
  line.Clear();

  std::string first;
  for (const MatrixAxisInfo& info : MatrixAxes()) {
    if (result.first_difference == info.axis) first = info.name;
  }
  const std::string repeat = flags.CommandLine(first);
  const std::string json = JsonText(flags, options, result, repeat);
  const PictureText picture = {"Determinism matrix", subject, repeat};
  WriteText(flags.json_file, json);
  WriteMatrixShard(flags, axes_of_all, result);
  if (!flags.svg.empty()) WriteText(flags.svg, MatrixSvg(result, picture));
  if (!flags.html.empty()) WriteText(flags.html, MatrixHtml(result, picture));
  if (flags.json) {
    fmt::print("{}", json);
  } else {
    PrintTable(result);
    fmt::print("repeat: {}\n", repeat);
  }
  return CodeOf(result.outcome);
}

}  // namespace lockstep::cli
