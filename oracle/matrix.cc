#include "oracle/matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "caches/check.h"
#include "oracle/matrix/axes.h"
#include "oracle/matrix/run.h"

namespace lockstep {
namespace {

using Verdict = MatrixCell::Verdict;

// The plainest run of one model and row semantics, and the tokens that it decoded.
struct Reference {
  RunOutcome outcome;
  std::vector<int32_t> decoded;
};

RowSemantics SemanticsOf(const CacheSpec& cache, const KvGeometry& geometry) {
  std::vector<int32_t> windows = WindowsOf(cache, geometry);
  const int32_t undo_rows = windows.empty() ? 0 : cache.undo_rows;
  return {cache.key_type,    cache.value_type,   cache.window,
          cache.window_type, std::move(windows), undo_rows};
}

void AddDigest(const Digest& digest, DigestBuilder* builder) {
  builder->AddU64(digest.high);
  builder->AddU64(digest.low);
}

// What is wrong with a run, in a few words; empty when nothing is.
std::string Complaint(const RunOutcome& run, const RunOutcome& reference, SlotCheck slots) {
  if (!run.failure.empty()) return fmt::format("it threw: {}", run.failure);
  LS_CHECK(run.logits.size() == reference.logits.size(), "{} steps against {}", run.logits.size(),
           reference.logits.size());
  if (run.logits[0] != reference.logits[0]) return "the logits of the prefill differ";
  for (size_t i = 1; i < run.logits.size(); ++i) {
    if (run.logits[i] == reference.logits[i]) continue;
    return fmt::format("the logits of decode step {} differ", i);
  }
  if (run.rows != reference.rows) return "the cache's rows differ";
  if (run.storage != reference.storage) return "the cache's stored bytes differ";
  const bool some = slots == SlotCheck::kSomeGranted || slots == SlotCheck::kBoth;
  const bool refused = slots == SlotCheck::kNoneGranted || slots == SlotCheck::kBoth;
  if (some && run.granted == 0) return "no slot was granted";
  if (refused && run.refused == 0) return "no slot was refused";
  if (slots == SlotCheck::kNoneGranted && run.granted > 0) return "a slot was granted";
  return "";
}

class Matrix {
 public:
  explicit Matrix(const MatrixOptions& options) : options_(options) {
    for (const MatrixModel& model : options.models) {
      runners_.emplace_back(model, options.decode_steps, options.seed);
    }
  }

  MatrixResult Run() {
    for (const MatrixAxisInfo& info : MatrixAxes()) {
      if (!options_.axes.empty() &&
          std::ranges::find(options_.axes, info.axis) == options_.axes.end()) {
        continue;
      }
      result_.rows.push_back(RunAxis(info));
    }
    Conclude();
    return std::move(result_);
  }

 private:
  MatrixRow RunAxis(const MatrixAxisInfo& info) {
    MatrixRow row{.axis = &info};
    unsupported_.clear();
    const bool planted = options_.planted != nullptr && options_.planted->axis == info.axis;
    const std::vector<CellPlan> plans = PlanAxis(info.axis, options_);
    for (const CellPlan& plan : plans) {
      row.cells.push_back(RunCell(info, plan, planted ? options_.planted : nullptr, false));
    }
    for (const OutsideDigests& outside : options_.outside) {
      if (outside.axis != info.axis || (outside.control && !planted)) continue;
      row.cells.push_back(CompareOutside(outside));
    }
    if (row.cells.empty()) {
      row.cells.push_back({.value = "-", .detail = "nothing was handed in"});
    }
    RunControls(info, plans, &row);
    return row;
  }

  // All runs of one cell; those of a control stop at the first difference.
  MatrixCell RunCell(const MatrixAxisInfo& info, const CellPlan& plan, const MatrixControl* control,
                     bool stop_early) {
    MatrixCell cell{.value = plan.value, .detail = plan.reason};
    DigestBuilder digest;
    std::vector<const KernelTable*> kernels = plan.kernels;
    if (control != nullptr && control->kernels != nullptr) kernels = {control->kernels()};
    if (control != nullptr && control->odd_kernels != nullptr) kernels = {control->odd_kernels()};
    if (stop_early && kernels.size() > 1) kernels = {kernels.back()};
    for (size_t model = 0; model < runners_.size(); ++model) {
      for (const KernelTable* table : kernels) {
        for (const CacheSpec& cache : plan.caches) {
          if (!Fits(model, cache)) continue;
          Progress(fmt::format("{} {}: {}, {}, {}", info.name, plan.value,
                               options_.models[model].name, cache.name, table->name));
          CompareRun(model, *table, cache, plan, control, &cell, &digest);
          if (stop_early && cell.verdict == Verdict::kDiffers) return cell;
        }
      }
    }
    if (cell.verdict == Verdict::kNotAvailable) {
      if (cell.detail.empty()) cell.detail = "no model's rows can be kept by this cache";
      return cell;
    }
    cell.digest = digest.Finish();
    return cell;
  }

  void CompareRun(size_t model, const KernelTable& table, const CacheSpec& cache,
                  const CellPlan& plan, const MatrixControl* control, MatrixCell* cell,
                  DigestBuilder* digest) {
    const bool controlled = control != nullptr && control->kernels != nullptr;
    const Reference& reference =
        ReferenceOf(model, controlled ? *control->kernels() : SelectKernels("scalar"), cache);
    const CacheMaker make = [&](const KvGeometry& geometry, const std::shared_ptr<Device>& device) {
      auto made = cache.make({.geometry = geometry, .sequences = 3, .device = device});
      return control != nullptr && control->wrap != nullptr ? control->wrap(std::move(made))
                                                            : std::move(made);
    };
    const RunOutcome run = runners_[model].Run(make, table, plan.variation, reference.decoded);
    if (!run.unsupported.empty()) {
      unsupported_ = run.unsupported;
      if (cell->verdict == Verdict::kNotAvailable) cell->detail = unsupported_;
      return;
    }
    for (const Digest& logits : run.logits) AddDigest(logits, digest);
    AddDigest(run.rows, digest);
    AddDigest(run.storage, digest);
    const std::string complaint = Complaint(run, reference.outcome, plan.slots);
    if (complaint.empty()) {
      if (cell->verdict != Verdict::kDiffers) cell->verdict = Verdict::kEqual;
      cell->comparisons += static_cast<int64_t>(run.logits.size()) + 2;
      if (cell->verdict == Verdict::kEqual) cell->detail.clear();
    } else if (cell->verdict != Verdict::kDiffers) {
      cell->verdict = Verdict::kDiffers;
      cell->detail = fmt::format("model {}, cache {}, kernels {}: {}", options_.models[model].name,
                                 cache.name, table.name, complaint);
    }
  }

  MatrixCell CompareOutside(const OutsideDigests& outside) {
    MatrixCell cell{.value = outside.value, .detail = outside.unavailable};
    if (!outside.unavailable.empty()) return cell;
    std::map<std::pair<std::string, std::string>, const DigestLine*> expected;
    for (const DigestLine& line : outside.expected) expected[{line.model, line.cache}] = &line;
    std::map<std::pair<std::string, std::string>, bool> seen;
    DigestBuilder digest;
    const auto differs = [&](const std::string& what) {
      if (cell.verdict == Verdict::kDiffers) return;
      cell.verdict = Verdict::kDiffers;
      cell.detail = what;
    };
    cell.verdict = Verdict::kEqual;
    for (const DigestLine& line : outside.lines) {
      digest.AddText(line.logits);
      digest.AddText(line.rows);
      const auto found = expected.find({line.model, line.cache});
      const std::string where =
          fmt::format("model {}, cache {}, kernels {}", line.model, line.cache, line.kernels);
      if (found == expected.end()) {
        differs(where + ": nothing here computes this");
        continue;
      }
      seen[found->first] = true;
      cell.comparisons +=
          (line.logits == found->second->logits) + (line.rows == found->second->rows);
      if (line.logits != found->second->logits) differs(where + ": the logits differ");
      if (line.rows != found->second->rows) differs(where + ": the cache's rows differ");
    }
    if (seen.size() != expected.size() || expected.empty()) {
      differs(fmt::format("{} of {} digests are there", seen.size(), expected.size()));
    }
    cell.digest = digest.Finish();
    return cell;
  }

  // Whether the axis sees what depends on it. Without a control that it saw, its cells are
  // unproved.
  void RunControls(const MatrixAxisInfo& info, const std::vector<CellPlan>& plans, MatrixRow* row) {
    row->control_caught = false;
    for (const MatrixControl& control : options_.controls) {
      if (control.axis != info.axis) continue;
      if (!row->control.empty()) row->control += ", ";
      row->control += control.name;
      const std::string seen = info.outside ? SeenOutside(info) : SeenHere(info, plans, control);
      row->control_caught = !seen.empty();
      row->control_detail = seen.empty() ? fmt::format("{}: not seen", control.what) : seen;
      if (seen.empty()) break;
    }
    if (row->control.empty()) row->control_detail = "the axis has no control";
    if (row->control_caught) return;
    for (MatrixCell& cell : row->cells) {
      if (cell.verdict != Verdict::kEqual) continue;
      // A control that could not run either has proved nothing, and nothing is amiss.
      cell.verdict = unsupported_.empty() ? Verdict::kUnproved : Verdict::kNotAvailable;
      cell.detail = unsupported_.empty() ? row->control_detail : unsupported_;
    }
  }

  std::string SeenHere(const MatrixAxisInfo& info, const std::vector<CellPlan>& plans,
                       const MatrixControl& control) {
    for (const CellPlan& plan : plans) {
      const MatrixCell cell = RunCell(info, plan, &control, true);
      if (cell.verdict == Verdict::kDiffers) return fmt::format("{}: {}", plan.value, cell.detail);
    }
    return "";
  }

  std::string SeenOutside(const MatrixAxisInfo& info) {
    for (const OutsideDigests& outside : options_.outside) {
      if (outside.axis != info.axis || !outside.control || !outside.unavailable.empty()) continue;
      const MatrixCell cell = CompareOutside(outside);
      if (cell.verdict == Verdict::kDiffers) {
        return fmt::format("{}: {}", outside.value, cell.detail);
      }
    }
    return "";
  }

  KvGeometry GeometryOf(size_t model) const {
    return options_.models[model].model->config().geometry(1);
  }

  bool Fits(size_t model, const CacheSpec& cache) const {
    return Misfit(cache, GeometryOf(model)).empty();
  }

  const Reference& ReferenceOf(size_t model, const KernelTable& kernels, const CacheSpec& cache) {
    const auto key = std::tuple(model, kernels.name, SemanticsOf(cache, GeometryOf(model)));
    const auto found = references_.find(key);
    if (found != references_.end()) return found->second;
    Reference reference;
    reference.outcome = runners_[model].RunReference(SemanticsOf(cache, GeometryOf(model)), kernels,
                                                     &reference.decoded);
    return references_.emplace(key, std::move(reference)).first->second;
  }

  void Progress(const std::string& text) const {
    if (options_.on_progress) options_.on_progress(text);
  }

  void Conclude() {
    int64_t equal = 0, differ = 0, unproved = 0, absent = 0;
    for (const MatrixRow& row : result_.rows) {
      for (const MatrixCell& cell : row.cells) {
        equal += cell.verdict == Verdict::kEqual;
        differ += cell.verdict == Verdict::kDiffers;
        unproved += cell.verdict == Verdict::kUnproved;
        absent += cell.verdict == Verdict::kNotAvailable;
        result_.comparisons += cell.comparisons;
        if (cell.verdict == Verdict::kDiffers && !result_.first_difference) {
          result_.first_difference = row.axis->axis;
        }
      }
    }
    const std::string tail = absent == 0 ? "" : fmt::format("; {} not available here", absent);
    if (differ > 0) {
      result_.outcome = MatrixOutcome::kDiffers;
      result_.verdict =
          fmt::format("DIFFERS: {} of {} cells{}", differ, equal + differ + unproved, tail);
    } else if (unproved > 0 || equal == 0) {
      result_.outcome = MatrixOutcome::kUnproved;
      result_.verdict = fmt::format("UNPROVED: {} of {} cells{}", unproved, equal + unproved, tail);
    } else {
      result_.outcome = MatrixOutcome::kEqual;
      result_.verdict = fmt::format("EQUAL: {} cells, {} digests compared, every control caught{}",
                                    equal, result_.comparisons, tail);
    }
  }

  const MatrixOptions& options_;
  std::vector<MatrixRunner> runners_;
  std::map<std::tuple<size_t, std::string_view, RowSemantics>, Reference> references_;
  std::string unsupported_;  // why a run of this axis had no kernels, where one had none
  MatrixResult result_;
};

}  // namespace

std::string_view MatrixVerdictName(MatrixCell::Verdict verdict) {
  switch (verdict) {
    case Verdict::kEqual:
      return "equal";
    case Verdict::kDiffers:
      return "DIFFERS";
    case Verdict::kUnproved:
      return "unproved";
    case Verdict::kNotAvailable:
      return "not available here";
  }
  return "?";
}

std::string_view MatrixOutcomeName(MatrixOutcome outcome) {
  switch (outcome) {
    case MatrixOutcome::kEqual:
      return "equal";
    case MatrixOutcome::kDiffers:
      return "differs";
    case MatrixOutcome::kUnproved:
      return "unproved";
  }
  return "?";
}

MatrixResult RunMatrix(const MatrixOptions& options) {
  LS_CHECK(!options.models.empty(), "no model");
  return Matrix(options).Run();
}

}  // namespace lockstep
