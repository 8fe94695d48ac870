#include "oracle/verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "caches/device.h"
#include "caches/error.h"
#include "caches/registry.h"
#include "oracle/faulty_cache.h"
#include "oracle/model_cache.h"

namespace lockstep {
namespace {

// What decides the bits of a cache's rows; caches that agree in it have to agree in every digest.
struct RowSemantics {
  RowType key_type;
  RowType value_type;
  int32_t window;
  RowType window_type;
  std::vector<int32_t> windows;  // of layers that forget rows, and how many can be undone
  int32_t undo_rows;

  auto operator<=>(const RowSemantics&) const = default;

  std::string Name() const {
    std::string name = fmt::format("model/{}", RowTypeName(key_type));
    if (value_type != key_type) name += fmt::format("+{}", RowTypeName(value_type));
    if (window > 0) name += fmt::format("/w{}", window);
    if (window_type == RowType::kF16) name += "-f16";
    if (undo_rows > 0) name += fmt::format("/ring-w{}+{}", fmt::join(windows, "-"), undo_rows);
    return name;
  }
};

RowSemantics SemanticsOf(const CacheSpec& kind, const KvGeometry& geometry) {
  std::vector<int32_t> windows = WindowsOf(kind, geometry);
  const int32_t undo_rows = windows.empty() ? 0 : kind.undo_rows;
  return {kind.key_type,    kind.value_type,    kind.window,
          kind.window_type, std::move(windows), undo_rows};
}

PathRule RuleOf(const CacheSpec& kind, const KvGeometry& geometry) {
  return {.grants_host_slots = kind.grants_host_slots,
          .block_size = kind.block_size,
          .ring_rows = RingRowsOf(kind, geometry)};
}

// A cache, the engine's rule for it, and the device of both.
struct Place {
  std::unique_ptr<KvCache> cache;
  PathRule rule;
  std::shared_ptr<Device> device = nullptr;  // nullptr: the engine runs on the host

  Side AsSide() const { return {cache.get(), rule, device}; }
};

// Decode steps that are rolled back and done again, as speculative decoding does.
constexpr int32_t kRedoSteps = 2;

class Verification {
 public:
  explicit Verification(const VerifyOptions& options)
      : options_(options),
        geometry_(options.model->config().geometry(static_cast<int32_t>(options.prompt.size()) +
                                                   options.decode_steps)) {
    driver_.model = options.model;
    driver_.kernels = options.kernels;
    driver_.prompt = options.prompt;
    driver_.decode_steps = options.decode_steps;
    driver_.adapters = options.adapters;
  }

  void Run(const CacheSpec& kind) {
    std::string misfit = Misfit(kind, geometry_);
    if (!misfit.empty()) {
      VerifyCell cell{.cache = kind.name, .write_path = "-"};
      cell.verdict = VerifyCell::Verdict::kNotApplicable;
      cell.reason = std::move(misfit);
      result_.cells.push_back(std::move(cell));
      return;
    }
    // No more than a cache that forgets can undo [W2].
    const bool forgets = !WindowsOf(kind, geometry_).empty();
    driver_.redo_steps =
        std::min({kRedoSteps, options_.decode_steps, forgets ? kind.undo_rows : kRedoSteps});
    const VerifyCell model = ModelCell(SemanticsOf(kind, geometry_));
    RunDirectAgainstLegacy(kind);
    CompareLegacyWithModel(kind, model);
  }

  VerifyResult Finish() {
    for (const auto& [semantics, cell] : model_cells_) result_.cells.push_back(cell);
    Conclude();
    return std::move(result_);
  }

 private:
  // The same cache kind twice: as it is, and inside UpdateOnlyCache.
  void RunDirectAgainstLegacy(const CacheSpec& kind) {
    Place subject = NewPlace(kind);
    FaultyCache* planted = nullptr;
    if (!options_.plant.empty()) {
      auto faulty =
          std::make_unique<FaultyCache>(std::move(subject.cache), ParsePlant(options_.plant));
      planted = faulty.get();
      subject.cache = std::move(faulty);
    }
    const Place oracle = Legacy(NewPlace(kind));
    driver_.compare_storage = true;
    const DriverResult run = Drive(kind.name, subject.AsSide(), oracle.AsSide());
    plants_fired_ += planted == nullptr ? 0 : planted->fired();

    const std::string on_device = subject.device == nullptr ? "" : ", device";
    const bool grants = kind.grants_host_slots || subject.device != nullptr;
    VerifyCell direct{.cache = kind.name,
                      .write_path = grants ? "direct" + on_device : "direct, refused",
                      .result = run.subject,
                      .difference = run.difference,
                      .against = kind.name + " legacy"};
    if (run.difference) direct.verdict = VerifyCell::Verdict::kDiffers;
    result_.cells.push_back(std::move(direct));
    result_.cells.push_back(
        {.cache = kind.name, .write_path = "legacy" + on_device, .result = run.oracle});
  }

  // The last cell of the table is `kind` on the legacy path. When its digests are not the model's,
  // the two run in lockstep once more, to find the place.
  void CompareLegacyWithModel(const CacheSpec& kind, const VerifyCell& model) {
    VerifyCell& legacy = result_.cells.back();
    legacy.against = model.cache;
    const bool stopped_early = result_.cells[result_.cells.size() - 2].difference.has_value();
    if (!stopped_early && legacy.result.logits == model.result.logits &&
        legacy.result.cache == model.result.cache) {
      return;
    }
    const Place subject = Legacy(NewPlace(kind));
    UpdateOnlyCache oracle(NewModelCache(SemanticsOf(kind, geometry_)));
    driver_.compare_storage = false;
    const DriverResult run =
        Drive(kind.name + " against its model", subject.AsSide(), {&oracle, {}});
    legacy.result = run.subject;
    legacy.difference = run.difference;
    if (run.difference) legacy.verdict = VerifyCell::Verdict::kDiffers;
  }

  // Runs the model cache of these semantics once, its own direct path against its own legacy path.
  const VerifyCell& ModelCell(const RowSemantics& semantics) {
    const auto found = model_cells_.find(semantics);
    if (found != model_cells_.end()) return found->second;
    const std::unique_ptr<ModelCache> subject = NewModelCache(semantics);
    UpdateOnlyCache oracle(NewModelCache(semantics));
    driver_.compare_storage = false;
    const DriverResult run =
        Drive(semantics.Name(), {subject.get(), RuleOfModel(semantics)}, {&oracle, {}});
    VerifyCell cell{.cache = semantics.Name(),
                    .write_path = "oracle",
                    .result = run.oracle,
                    .difference = run.difference,
                    .against = semantics.Name() + " direct"};
    if (run.difference) cell.verdict = VerifyCell::Verdict::kDiffers;
    return model_cells_.emplace(semantics, std::move(cell)).first->second;
  }

  // A cache with rows on a device gets a device of its own, and so does its engine where one is
  // asked for.
  Place NewPlace(const CacheSpec& kind) const {
    Place place;
    CacheOptions cache = {.geometry = geometry_, .sequences = 1};
    if (kind.device_layers > 0) {
      cache.device = options_.device.empty() ? NewDefaultDevice() : MakeDevice(options_.device);
      if (!options_.device.empty()) place.device = cache.device;
    }
    place.cache = kind.make(cache);
    place.rule = RuleOf(kind, geometry_);
    if (place.device != nullptr) {
      place.rule.device_layers =
          std::min({kind.device_layers, options_.device_layers, geometry_.num_layers});
      place.rule.grants_device_slots = true;
    }
    return place;
  }

  static Place Legacy(Place place) {
    place.cache = std::make_unique<UpdateOnlyCache>(std::move(place.cache));
    place.rule = {.device_layers = place.rule.device_layers};
    return place;
  }

  std::unique_ptr<ModelCache> NewModelCache(const RowSemantics& semantics) const {
    return std::make_unique<ModelCache>(ModelCacheOptions{.geometry = geometry_,
                                                          .key_type = semantics.key_type,
                                                          .value_type = semantics.value_type,
                                                          .window = semantics.window,
                                                          .window_type = semantics.window_type,
                                                          .max_step_rows = semantics.undo_rows,
                                                          .windows = semantics.windows});
  }

  static PathRule RuleOfModel(const RowSemantics& semantics) {
    PathRule rule = {.grants_host_slots = true};
    for (const int32_t window : semantics.windows) {
      rule.ring_rows.push_back(window == 0 ? 0 : window + 2 * semantics.undo_rows);
    }
    return rule;
  }

  DriverResult Drive(const std::string& name, const Side& subject, const Side& oracle) {
    if (options_.on_progress) {
      driver_.on_step = [this, &name](int32_t step) {
        options_.on_progress(fmt::format("{}: step {} of {}", name, step + 1,
                                         driver_.decode_steps + driver_.redo_steps + 1));
      };
    }
    DriverResult run = RunLockstep(driver_, subject, oracle);
    result_.steps = std::max(result_.steps, run.steps);
    return run;
  }

  void Conclude() {
    int64_t held = 0, direct = 0, on_device = 0, differ = 0, skipped = 0;
    for (const VerifyCell& cell : result_.cells) {
      held += cell.verdict == VerifyCell::Verdict::kHolds;
      differ += cell.verdict == VerifyCell::Verdict::kDiffers;
      skipped += cell.verdict == VerifyCell::Verdict::kNotApplicable;
      const bool took = cell.verdict == VerifyCell::Verdict::kHolds &&
                        cell.result.counts.granted > 0 && cell.write_path.starts_with("direct") &&
                        cell.write_path != "direct, refused";
      direct += took;
      on_device += took && cell.result.counts.on_device > 0;
    }
    const std::string tail =
        skipped == 0 ? "" : fmt::format("; {} not applicable to this model", skipped);
    if (differ > 0) {
      result_.outcome = VerifyOutcome::kDiffers;
      result_.verdict = fmt::format("DIFFERS: {} of {} cells{}", differ, held + differ, tail);
    } else if (!options_.plant.empty() && plants_fired_ == 0) {
      result_.outcome = VerifyOutcome::kInconclusive;
      result_.verdict =
          fmt::format("INCONCLUSIVE: the planted fault {} never happened", options_.plant);
    } else if (direct == 0) {
      result_.outcome = VerifyOutcome::kInconclusive;
      result_.verdict = fmt::format(
          "INCONCLUSIVE: {} cells agree, and none of them took the direct path{}", held, tail);
    } else if (!options_.device.empty() && on_device == 0) {
      result_.outcome = VerifyOutcome::kInconclusive;
      result_.verdict =
          fmt::format("INCONCLUSIVE: {} cells agree, and none of them took the direct path on {}{}",
                      held, options_.device, tail);
    } else {
      result_.outcome = VerifyOutcome::kHolds;
      result_.verdict = fmt::format(
          "HOLDS: {} cells equal bit for bit over {} steps, {} of them on the direct "
          "path{}",
          held, result_.steps, direct, tail);
    }
  }

  const VerifyOptions& options_;
  KvGeometry geometry_;
  DriverOptions driver_;
  VerifyResult result_;
  std::map<RowSemantics, VerifyCell> model_cells_;
  int64_t plants_fired_ = 0;
};

void CheckFits(const VerifyOptions& options) {
  const int64_t wanted = static_cast<int64_t>(options.prompt.size()) + options.decode_steps;
  const int32_t context = options.model->config().context_length;
  if (options.prompt.empty()) {
    throw Error({"prompt", "has no tokens", "give a text that is not empty"});
  }
  if (options.decode_steps < 0 || wanted > context) {
    throw Error({"prompt",
                 fmt::format("{} tokens and {} decode steps do not fit the model's context of {}",
                             options.prompt.size(), options.decode_steps, context),
                 "shorten the prompt or decode fewer steps"});
  }
}

void CheckPlant(const VerifyOptions& options) {
  if (options.plant.empty()) return;
  ParsePlant(options.plant);
  if (options.device.empty()) return;
  throw Error(
      {fmt::format("plant {}", options.plant),
       "faults are planted into the host's calls, which an engine on a device does not make",
       "leave out the plant or the device"});
}

}  // namespace

VerifyResult Verify(const VerifyOptions& options) {
  CheckFits(options);
  CheckPlant(options);
  std::vector<CacheSpec> kinds;
  for (const std::string& name : options.caches) kinds.push_back(ParseCacheSpec(name));
  if (kinds.empty()) kinds.assign(AllCaches().begin(), AllCaches().end());

  kinds.insert(kinds.end(), options.own.begin(), options.own.end());

  Verification verification(options);
  for (const CacheSpec& kind : kinds) verification.Run(kind);
  return verification.Finish();
}

}  // namespace lockstep
