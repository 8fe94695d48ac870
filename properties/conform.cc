#include "properties/conform.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <numeric>

#include "caches/random.h"
#include "engine/model.h"
#include "engine/synthetic.h"
#include "oracle/decorators.h"
#include "oracle/driver.h"
#include "oracle/model_cache.h"
#include "properties/isolated_run.h"
#include "properties/script_builder.h"

namespace lockstep {
namespace {

using Verdict = ClauseResult::Verdict;

struct ClauseInfo {
  std::string_view clause;
  int32_t level;
  std::string_view summary;
};

// What scripts can judge, in the order of the contract.
constexpr std::array<ClauseInfo, 20> kClauses = {{
    {"V1", 1, "a view shows the layer's length and no more"},
    {"V2", 1, "gap rows read as zero"},
    {"V3", 1, "reading changes nothing"},
    {"U2", 1, "overwrite by position, in input order"},
    {"U4", 0, "what an update refuses"},
    {"U5", 1, "the length never shrinks by an update"},
    {"R1", 0, "a bad layer throws before anything else"},
    {"R2", 0, "which runs are granted, and nothing changes by a refusal"},
    {"R3", 0, "a cache without slots refuses every run"},
    {"R4", 1, "a slot has memory for its rows"},
    {"R5", 1, "a slot is invisible until its commit"},
    {"R7", 3, "a slot is exclusively owned"},
    {"C1", 1, "a commit publishes its reservation"},
    {"C2", 0, "a commit without its reservation"},
    {"C3", 1, "reserve, write and commit equal update"},
    {"B1", 0, "rollback shrinks, and refuses lengths outside"},
    {"B2", 1, "what is rolled back is gone"},
    {"B4", 3, "forks are independent"},
    {"X1", 1, "equal rows hash equally"},
    {"logits", 2, "the engine gives the model cache's bits on both write paths"},
}};

// What crossed the process border: a finding as text.
std::string FindingText(const ScriptFinding& finding) {
  return fmt::format("{}\n{}\n{}", finding.op, finding.clause, finding.what);
}

ScriptFinding ParseFinding(const std::string& text) {
  const size_t first = text.find('\n');
  const size_t second = text.find('\n', first + 1);
  ScriptFinding finding;
  std::from_chars(text.data(), text.data() + first, finding.op);
  finding.clause = text.substr(first + 1, second - first - 1);
  finding.what = text.substr(second + 1);
  return finding;
}

// A commit that had to be refused is two different mistakes: past the end, and out of nothing.
std::string CaseOf(const CacheScript& script, const ScriptFinding& finding) {
  if (finding.clause != "C2") return finding.clause;
  const ScriptOp& op = script.ops[static_cast<size_t>(finding.op)];
  const bool past =
      std::ranges::any_of(op.positions, [&](int32_t p) { return p >= script.geometry.max_length; });
  return past ? "C2, past max_length" : "C2";
}

class Kit {
 public:
  explicit Kit(const ConformOptions& options)
      : options_(options),
        subject_(PluginSubject(options.plugin)),
        target_({.name = fmt::format("plugin({})", options.plugin->table().name),
                 .block_size = options.plugin->table().block_size,
                 .head_dim_multiple = options.plugin->table().head_dim_multiple,
                 .limits_pool = false}) {}

  ConformResult Run() {
    Random random(options_.seed);
    for (int32_t i = 0; i < options_.scripts; ++i) {
      if (options_.on_script) options_.on_script(i);
      RunOne(GenerateScript(target_, random.Next(), options_.operations));
      ++result_.scripts;
    }
    if (options_.level >= 2) RunEngine();
    return Conclude();
  }

 private:
  std::optional<ScriptFinding> Judge(const CacheScript& script) const {
    const IsolatedResult run = RunIsolated(
        [&]() -> std::string {
          const auto finding = RunScript(script, subject_).finding;
          return finding ? FindingText(*finding) : "";
        },
        options_.seconds_max);
    const auto last = static_cast<int32_t>(script.ops.size()) - 1;
    if (run.end == IsolatedResult::End::kSignal) {
      return ScriptFinding{last, "crash", "the plug-in ended by " + SignalName(run.signal)};
    }
    if (run.end == IsolatedResult::End::kTimeout) {
      return ScriptFinding{last, "hang",
                           fmt::format("the plug-in did not return in {} s", options_.seconds_max)};
    }
    if (run.output.empty()) return std::nullopt;
    return ParseFinding(run.output);
  }

  // The finding as far as it counts at this level, with the case it belongs to as its clause.
  std::optional<ScriptFinding> JudgeCase(const CacheScript& script) const {
    std::optional<ScriptFinding> finding = Judge(script);
    if (finding) finding->clause = CaseOf(script, *finding);
    return finding;
  }

  void RunOne(const CacheScript& script) {
    const std::optional<ScriptFinding> finding = JudgeCase(script);
    if (!finding || failures_.count(finding->clause) != 0) return;
    const CacheScript shrunk =
        ShrinkScript(script, [this](const CacheScript& candidate) { return JudgeCase(candidate); });
    const std::optional<ScriptFinding> smallest = JudgeCase(shrunk);
    failures_[finding->clause] = {smallest ? smallest->what : finding->what, shrunk};
  }

  // The direct path against the legacy path, then the legacy path against the model cache.
  std::string EngineDifference() const {
    const auto model = Model::Load(MakeSyntheticModel(SyntheticPreset("tiny-gqa-9x3-q8_0"), 1));
    DriverOptions driver;
    driver.model = model;
    driver.prompt.resize(6);
    std::iota(driver.prompt.begin(), driver.prompt.end(), 3);
    driver.decode_steps = 6;
    driver.redo_steps = 2;
    const KvGeometry geometry = model->config().geometry(12);
    const PathRule rule{options_.plugin->grants_slots(), target_.block_size};
    const auto plugin = [&] { return std::make_unique<PluginCache>(options_.plugin, geometry); };

    const auto direct = plugin();
    UpdateOnlyCache legacy(plugin());
    DriverResult run = RunLockstep(driver, {direct.get(), rule}, {&legacy, {}});
    if (run.difference) return "direct against legacy: " + run.difference->Sentence();
    UpdateOnlyCache subject(plugin());
    UpdateOnlyCache oracle(std::make_unique<ModelCache>(ModelCacheOptions{.geometry = geometry}));
    run = RunLockstep(driver, {&subject, {}}, {&oracle, {}});
    return run.difference ? "against the model cache: " + run.difference->Sentence() : "";
  }

  void RunEngine() {
    const IsolatedResult run =
        RunIsolated([this] { return EngineDifference(); }, 10 * options_.seconds_max);
    std::string what = run.output;
    if (run.end == IsolatedResult::End::kSignal) what = "ended by " + SignalName(run.signal);
    if (run.end == IsolatedResult::End::kTimeout) what = "did not return";
    if (!what.empty()) failures_["logits"] = {what, {}};
  }

  Verdict VerdictOf(const ClauseInfo& info) const {
    const bool slots = options_.plugin->grants_slots();
    if (info.level > options_.level) return Verdict::kNotRun;
    if (info.level == 3 && !options_.plugin->forks()) return Verdict::kUnsupported;
    const std::string_view clause = info.clause;
    const bool needs_slots = clause == "R2" || clause == "R4" || clause == "R5" || clause == "R7" ||
                             clause == "C1" || clause == "C3";
    if (needs_slots && !slots) return Verdict::kUnsupported;
    if (clause == "R3" && slots) return Verdict::kUnsupported;
    return Verdict::kPass;
  }

  ConformResult Conclude() {
    for (const ClauseInfo& info : kClauses) {
      ClauseResult result{std::string(info.clause), info.level, std::string(info.summary)};
      result.verdict = VerdictOf(info);
      AddFailure(&result);
      result_.clauses.push_back(std::move(result));
    }
    // What has no line of its own yet: cases of a clause, crashes, hangs, other clauses.
    for (const auto& [name, failure] : failures_) {
      if (failure.listed) continue;
      ClauseResult result{name, 0, "", Verdict::kFail, failure.what, failure.script};
      result_.clauses.push_back(std::move(result));
    }
    result_.conforms = std::ranges::none_of(
        result_.clauses, [](const ClauseResult& r) { return r.verdict == Verdict::kFail; });
    return std::move(result_);
  }

  void AddFailure(ClauseResult* result) {
    const auto found = failures_.find(result->clause);
    if (found == failures_.end()) return;
    found->second.listed = true;
    if (result->verdict == Verdict::kNotRun) return;
    result->verdict = Verdict::kFail;
    result->what = found->second.what;
    result->script = found->second.script;
  }

  struct Failure {
    std::string what;
    CacheScript script;
    bool listed = false;
  };

  const ConformOptions& options_;
  ScriptSubject subject_;
  ScriptTarget target_;
  std::map<std::string, Failure> failures_;  // by clause or case
  ConformResult result_;
};

}  // namespace

ScriptSubject PluginSubject(std::shared_ptr<const PluginLibrary> plugin) {
  ScriptSubject subject;
  subject.make = [plugin](const CacheScript& script) {
    return std::make_unique<PluginCache>(plugin, script.geometry);
  };
  subject.model.block_size = plugin->table().block_size;
  subject.model.refuses_host_slots = !plugin->grants_slots();
  subject.forks = plugin->forks();
  subject.saves = false;
  subject.compares_storage = false;
  return subject;
}

ConformResult Conform(const ConformOptions& options) { return Kit(options).Run(); }

}  // namespace lockstep
