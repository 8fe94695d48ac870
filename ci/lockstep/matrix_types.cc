#include "ci/lockstep/matrix_types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "caches/error.h"
#include "caches/file_io.h"
#include "ci/lockstep/matrix_models.h"
#include "ci/lockstep/progress_line.h"
#include "ci/shard/shard.h"
#include "engine/synthetic_types.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

// What a weight type could get wrong; the other axes vary what knows nothing of weights.
constexpr MatrixAxis kAxes[] = {MatrixAxis::kWritePath, MatrixAxis::kChunking, MatrixAxis::kBatch,
                                MatrixAxis::kThreads, MatrixAxis::kIsa};

// Rows of every type, in one piece and in blocks, with an exact window and with a forgetting one.
constexpr std::string_view kCaches[] = {
    "simple",
    "paged/4",
    "quantized/q8_0+q8_0/w0",
    "quantized/q4_0+q4_0/w0",
    "quantized/q8_0+q4_0/w4",
    "quantized/f16+f16/w0",
    "quantized/bf16+bf16/w0",
    "ring/model+3",
};

// Chunks of 7 and 16 leave a rest, and a rest of 4 places the controls' cuts inside 64 columns.
constexpr int32_t kPromptTokens = 18;
constexpr int32_t kDecodeSteps = 2;

struct Case {
  SyntheticSpec family;
  GgmlType type = GgmlType::kF32;
};

struct CaseResult {
  std::string family;
  std::string_view type;
  int64_t combinations = 0;  // with a cache and an adapter or none
  int64_t cells = 0;
  int64_t comparisons = 0;
  DigestBuilder digests = {};  // of the cells
  Digest digest = {};
  MatrixOutcome outcome = MatrixOutcome::kEqual;
  std::string detail = {};  // of the first cell that is not equal
  std::string repeat = {};

  std::string_view verdict() const {
    return outcome == MatrixOutcome::kDiffers ? "DIFFERS" : MatrixOutcomeName(outcome);
  }
};

void CheckFlags(const MatrixFlags& flags) {
  const auto refuse = [](const char* flag, const char* what) {
    throw Error({flag, what, "leave it out"});
  };
  if (flags.every_model) refuse("--every-model", "--every-type is given too");
  if (!flags.source.path.empty() || !flags.source.story.empty()) {
    throw Error({"--every-type", "a model of one type is given too",
                 "leave it out, or choose one family with --synthetic"});
  }
  if (!flags.adapters.files.empty()) {
    refuse("--lora", "--every-type makes an adapter for each model");
  }
  if (!flags.svg.empty()) refuse("--svg", "--every-type has no picture");
  if (!flags.html.empty()) refuse("--html", "--every-type has no page");
  if (flags.digests) refuse("--digests", "--every-type compares inside one process");
  if (!flags.prompt.empty()) refuse("--prompt", "--every-type makes tokens of its own");
  if (flags.decode_steps != MatrixFlags::kDefaultDecodeSteps) {
    refuse("-n", "--every-type decodes two steps");
  }
  if (!flags.compilers.empty()) refuse("--compilers", "--every-type has no such axis");
  if (!flags.aarch64.empty()) refuse("--aarch64", "--every-type compares the tables of this build");
}

std::vector<MatrixAxis> AxesOf(const MatrixOptions& options) {
  if (options.axes.empty()) return {std::begin(kAxes), std::end(kAxes)};
  for (const MatrixAxis axis : options.axes) {
    if (std::ranges::find(kAxes, axis) != std::end(kAxes)) continue;
    const auto info = std::ranges::find(MatrixAxes(), axis, &MatrixAxisInfo::axis);
    throw Error({"--axis", fmt::format("--every-type does not run '{}'", info->name),
                 "choose write-path, chunking, batch, threads or isa"});
  }
  return options.axes;
}

std::vector<Case> CasesOf(const MatrixFlags& flags) {
  std::vector<SyntheticSpec> families = SyntheticFamilies();
  if (!flags.source.synthetic.empty()) {
    families = {FamilyOf(SyntheticPreset(flags.source.synthetic))};
  }
  std::vector<GgmlType> types = WeightTypes();
  if (!flags.weights.empty()) types = {ParseWeightType("--weights", flags.weights)};
  std::vector<Case> cases;
  for (const SyntheticSpec& family : families) {
    for (const GgmlType type : types) cases.push_back({family, type});
  }
  return cases;
}

// Adds what one matrix gave.
void Add(const MatrixResult& matrix, CaseResult* sum) {
  for (const MatrixRow& row : matrix.rows) {
    for (const MatrixCell& cell : row.cells) {
      if (cell.verdict == MatrixCell::Verdict::kNotAvailable) continue;
      ++sum->cells;
      sum->digests.AddText(cell.digest.Hex());
      if (cell.verdict == MatrixCell::Verdict::kEqual || !sum->detail.empty()) continue;
      sum->detail = fmt::format("{} {}: {}", row.axis->name, cell.value, cell.detail);
    }
  }
  sum->comparisons += matrix.comparisons;
  if (matrix.outcome == MatrixOutcome::kEqual) return;
  if (sum->outcome != MatrixOutcome::kDiffers) sum->outcome = matrix.outcome;
  if (sum->detail.empty()) sum->detail = matrix.verdict;
}

class EveryType {
 public:
  EveryType(const MatrixFlags& flags, MatrixOptions options)
      : flags_(flags), options_(std::move(options)), axes_(AxesOf(options_)) {
    if (flags.caches.empty()) {
      options_.caches.clear();
      for (const std::string_view cache : kCaches) options_.caches.push_back(ParseCacheSpec(cache));
    }
    options_.decode_steps = kDecodeSteps;
    options_.threads = {1, 2, 3};
    kernels_ = options_.kernels;
  }

  CaseResult Run(const Case& one, const std::string& progress) {
    const SyntheticSpec spec = InWeightType(one.family, one.type);
    options_.models =
        WithAndWithoutAdapter(SyntheticModel(spec, kPromptTokens, options_.seed), options_.seed);
    options_.on_progress = [&](const std::string& text) {
      line_.Show(fmt::format("{}: {}", progress, text));
    };
    CaseResult sum{.family = spec.name, .type = TraitsOf(one.type)->name};
    for (const MatrixModel& model : options_.models) {
      for (const CacheSpec& cache : options_.caches) {
        sum.combinations += Misfit(cache, model.model->config().geometry(1)).empty() ? 1 : 0;
      }
    }
    // All tables on the axis that compares them; on the others the one that people run.
    std::vector<MatrixAxis> others = axes_;
    const bool tables = std::erase(others, MatrixAxis::kIsa) > 0;
    if (!others.empty()) Add(RunOn(others, {kernels_.back()}), &sum);
    if (tables) Add(RunOn({MatrixAxis::kIsa}, kernels_), &sum);
    line_.Clear();
    sum.digest = sum.digests.Finish();
    sum.repeat = RepeatOf(one);
    return sum;
  }

 private:
  MatrixResult RunOn(std::vector<MatrixAxis> axes, std::vector<const KernelTable*> kernels) {
    options_.axes = std::move(axes);
    options_.kernels = std::move(kernels);
    return RunMatrix(options_);
  }

  std::string RepeatOf(const Case& one) const {
    MatrixFlags flags = flags_;
    flags.source.synthetic = one.family.name;
    flags.weights = TraitsOf(one.type)->name;
    return flags.CommandLine();
  }

  const MatrixFlags& flags_;
  MatrixOptions options_;
  std::vector<MatrixAxis> axes_;
  std::vector<const KernelTable*> kernels_;
  ProgressLine line_;
};

void PrintCase(const CaseResult& result) {
  fmt::print("{:<28} {:<7} {:>4} {:>9}  {:.16}  {}\n", result.family, result.type,
             result.combinations, result.comparisons, result.digest.Hex(), result.verdict());
  if (!result.detail.empty()) fmt::print("  {}\n  repeat: {}\n", result.detail, result.repeat);
  std::fflush(stdout);
}

struct Totals {
  int64_t cases = 0, combinations = 0, comparisons = 0, differ = 0, unproved = 0;

  void Add(const CaseResult& result) {
    ++cases;
    combinations += result.combinations;
    comparisons += result.comparisons;
    differ += result.outcome == MatrixOutcome::kDiffers ? 1 : 0;
    unproved += result.outcome == MatrixOutcome::kUnproved ? 1 : 0;
  }

  MatrixOutcome outcome() const {
    if (differ > 0) return MatrixOutcome::kDiffers;
    return unproved > 0 ? MatrixOutcome::kUnproved : MatrixOutcome::kEqual;
  }

  std::string Verdict() const {
    if (differ > 0) return fmt::format("DIFFERS: {} of {} models and types", differ, cases);
    if (unproved > 0) return fmt::format("UNPROVED: {} of {} models and types", unproved, cases);
    return fmt::format(
        "EQUAL: {} combinations of a family, a weight type, a cache and an adapter or none; {} "
        "digests compared, every control caught",
        combinations, comparisons);
  }
};

ordered_json CaseJson(const CaseResult& result) {
  ordered_json json = {{"family", result.family},
                       {"weights", result.type},
                       {"combinations", result.combinations},
                       {"cells", result.cells},
                       {"comparisons", result.comparisons},
                       {"digest", result.digest.Hex()},
                       {"verdict", result.verdict()}};
  if (!result.detail.empty()) json["detail"] = result.detail;
  json["command"] = result.repeat;
  return json;
}

std::string JsonText(const MatrixFlags& flags, const std::vector<CaseResult>& results,
                     const Totals& totals) {
  ordered_json json = {
      {"seed", flags.source.seed},         {"outcome", MatrixOutcomeName(totals.outcome())},
      {"verdict", totals.Verdict()},       {"combinations", totals.combinations},
      {"comparisons", totals.comparisons}, {"command", flags.CommandLine()},
      {"rows", ordered_json::array()}};
  for (const CaseResult& result : results) json["rows"].push_back(CaseJson(result));
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

// A case that proved nothing counts as one that did not run.
ShardResult ShardOf(const MatrixFlags& flags, const std::vector<CaseResult>& results) {
  ShardResult shard;
  shard.campaign = flags.CommandLine();
  const Shard part = ParseShard(flags.shard);
  for (size_t i = 0; i < results.size(); ++i) {
    const CaseResult& result = results[i];
    shard.counters["combinations"] += result.combinations;
    shard.counters["digests compared"] += result.comparisons;
    const std::string place = fmt::format("{} {}", result.family, result.type);
    if (result.outcome == MatrixOutcome::kDiffers) {
      shard.findings.push_back({place, result.detail, result.repeat});
    }
    if (result.outcome == MatrixOutcome::kUnproved) continue;
    shard.Add(part.index - 1 + static_cast<int64_t>(i) * part.count,
              fmt::format("{} {}", place, result.digest.Hex()));
  }
  return shard;
}

ExitCode CodeOf(MatrixOutcome outcome) {
  if (outcome == MatrixOutcome::kEqual) return ExitCode::kHolds;
  return outcome == MatrixOutcome::kDiffers ? ExitCode::kDifference : ExitCode::kInconclusive;
}

}  // namespace

ExitCode RunEveryType(const MatrixFlags& flags, MatrixOptions options) {
  CheckFlags(flags);
  std::vector<Case> cases = CasesOf(flags);
  const int64_t of_all = KeepShard(ParseShard(flags.shard), &cases);
  if (cases.empty()) fmt::print(stderr, "none of {} is in shard {}\n", of_all, flags.shard);
  EveryType run(flags, std::move(options));
  if (!flags.json) {
    fmt::print("lockstep verify --matrix --every-type: seed {}, {} of {} models and types\n\n",
               flags.source.seed, cases.size(), of_all);
    fmt::print("{:<28} {:<7} {:>4} {:>9}  {:<16}  {}\n", "family", "weights", "comb", "compared",
               "digest", "verdict");
    std::fflush(stdout);
  }
  std::vector<CaseResult> results;
  Totals totals;
  for (const Case& one : cases) {
    results.push_back(run.Run(one, fmt::format("{} of {}, {} {}", results.size() + 1, cases.size(),
                                               one.family.name, TraitsOf(one.type)->name)));
    totals.Add(results.back());
    if (!flags.json) PrintCase(results.back());
  }
  const std::string json = JsonText(flags, results, totals);
  if (!flags.json_file.empty()) WriteWholeTextFile(flags.json_file, json);
  ShardResult shard = ShardOf(flags, results);
  shard.inputs_of_all = of_all;
  WriteShardFile(flags.shard_file, flags.shard, std::move(shard));
  if (flags.json) {
    fmt::print("{}", json);
  } else {
    fmt::print("\n{}\nrepeat: {}\n", totals.Verdict(), flags.CommandLine());
  }
  return CodeOf(totals.outcome());
}

}  // namespace lockstep::cli
