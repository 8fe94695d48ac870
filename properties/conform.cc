#include "properties/conform.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <optional>

#include "caches/error.h"
#include "caches/random.h"
#include "engine/model.h"
#include "engine/synthetic.h"
#include "oracle/decorators.h"
#include "oracle/driver.h"
#include "oracle/model_cache.h"
#include "properties/conform_clauses.h"
#include "properties/isolated_run.h"
#include "properties/plugin_border.h"
#include "properties/script_builder.h"

namespace lockstep {
namespace {

using Verdict = ClauseResult::Verdict;

constexpr int32_t kBatch = 64;         // scripts a process
constexpr int32_t kHangsMax = 4;       // then it is no use
constexpr int32_t kHangAgainMs = 250;  // a script takes a few; the whole time proves only the first
constexpr int32_t kAbnormalEndsMax = 3;  // of one check, that other clauses report

// What crosses the process border: a finding as text.
std::string FindingText(const std::optional<ScriptFinding>& finding) {
  if (!finding) return "";
  return fmt::format("{}\n{}\n{}", finding->op, finding->clause, finding->what);
}

std::optional<ScriptFinding> ParseFinding(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const size_t first = text.find('\n');
  const size_t second = text.find('\n', first + 1);
  ScriptFinding finding;
  std::from_chars(text.data(), text.data() + first, finding.op);
  finding.clause = text.substr(first + 1, second - first - 1);
  finding.what = text.substr(second + 1);
  return finding;
}

std::string_view ClauseOf(const IsolatedEnd& end) {
  if (end.kind == IsolatedEnd::Kind::kTimeout) return "hang";
  if (end.kind == IsolatedEnd::Kind::kThrew) return "border";
  return end.kind == IsolatedEnd::Kind::kExit ? "exit" : "crash";
}

bool IsAbnormal(std::string_view clause) {
  return clause == "hang" || clause == "exit" || clause == "crash";
}

// A name that the first line of a script can hold.
std::string ScriptName(std::string_view plugin) {
  std::string name = fmt::format("plugin({})", plugin);
  for (char& c : name) {
    if (c <= ' ' || c == '#' || c == '=' || c > '~') c = '_';
  }
  return name;
}

class Kit {
 public:
  explicit Kit(const ConformOptions& options)
      : options_(options),
        target_({.name = ScriptName(options.plugin->table().name),
                 .block_size = options.plugin->table().block_size,
                 .head_dim_multiple = options.plugin->table().head_dim_multiple,
                 .limits_pool = false}) {
    judge_ = [subject = PluginSubject(options.plugin)](const CacheScript& script) {
      std::optional<ScriptFinding> finding = RunScript(script, subject).finding;
      if (finding) finding->clause = ConformCaseOf(script, *finding);
      return finding;
    };
  }

  ConformResult Run() {
    Random random(options_.seed);
    std::vector<CacheScript> scripts;
    const int32_t count = options_.checks.empty() ? options_.scripts : 0;
    for (int32_t i = 0; i < count; ++i) {
      scripts.push_back(GenerateScript(target_, random.Next(), options_.operations));
    }
    RunAll(scripts, "scripts", [this](const CacheScript& script, const ScriptFinding& finding) {
      Keep(script, finding, judge_);
      return true;
    });
    if (options_.level >= 2 && !gave_up() && options_.checks.empty()) RunEngine();
    AddContract();
    AddHostile();
    result_.conforms = std::ranges::none_of(result_.clauses, [](const ClauseResult& r) {
      return r.verdict == Verdict::kFail || (r.verdict == Verdict::kNotRun && !r.what.empty());
    });
    return std::move(result_);
  }

 private:
  bool gave_up() const { return hangs_ >= kHangsMax; }
  int32_t ms_max() const { return hangs_ == 0 ? options_.ms_max : HangAgainMs(); }
  int32_t HangAgainMs() const { return std::min(options_.ms_max, kHangAgainMs); }

  static ScriptFinding AbnormalFinding(const CacheScript& script, const IsolatedEnd& end) {
    return {static_cast<int32_t>(script.ops.size()) - 1, std::string(ClauseOf(end)),
            "the plug-in " + end.Text()};
  }

  // One script in a process of its own.
  static std::optional<ScriptFinding> JudgeAlone(const CacheScript& script,
                                                 const ScriptJudge& judge, int32_t ms) {
    const IsolatedCall run = RunIsolatedCall([&] { return FindingText(judge(script)); }, ms);
    if (run.end.kind != IsolatedEnd::Kind::kReturned) return AbnormalFinding(script, run.end);
    return ParseFinding(run.output);
  }

  using OnFinding = std::function<bool(const CacheScript&, const ScriptFinding&)>;

  void RunAll(const std::vector<CacheScript>& scripts, std::string_view what,
              const OnFinding& on_finding) {
    RunAll(scripts, what, judge_, on_finding);
  }

  // Many scripts a process; the one that ends it is judged again alone, and the rest goes on in the
  // next. Stops when `on_finding` says so.
  void RunAll(const std::vector<CacheScript>& scripts, std::string_view what,
              const ScriptJudge& judge, const OnFinding& on_finding) {
    for (size_t begin = 0; begin < scripts.size() && !gave_up();) {
      const auto count = static_cast<int32_t>(std::min<size_t>(kBatch, scripts.size() - begin));
      const IsolatedBatch batch = RunIsolatedBatch(
          count,
          [&](int32_t i) { return FindingText(judge(scripts[begin + static_cast<size_t>(i)])); },
          ms_max());
      for (const std::string& output : batch.outputs) {
        const CacheScript& script = scripts[begin++];
        ++result_.scripts;
        const auto finding = ParseFinding(output);
        if (finding && !on_finding(script, *finding)) return;
      }
      Report(what, begin, scripts.size());
      if (batch.end.kind == IsolatedEnd::Kind::kReturned) continue;
      const CacheScript& script = scripts[std::min(begin++, scripts.size() - 1)];
      ++result_.scripts;
      ScriptFinding finding = AbnormalFinding(script, batch.end);
      const bool known = failures_.count(finding.clause) != 0;
      const auto alone = known ? finding : JudgeAlone(script, judge, ms_max());
      if (alone) finding = *alone;
      if (!alone) finding.what += ", in a process that had run other scripts before";
      hangs_ += finding.clause == "hang" ? 1 : 0;
      if (!on_finding(script, finding)) return;
    }
  }

  void Report(std::string_view what, size_t done, size_t total) const {
    if (!options_.on_progress) return;
    options_.on_progress(what, static_cast<int64_t>(done), static_cast<int64_t>(total));
  }

  // The smallest script with a finding of the same clause. In one process when no candidate ends
  // it.
  CacheScript Shrink(const CacheScript& script, const ScriptFinding& finding,
                     const ScriptJudge& judge) const {
    const int32_t ms = finding.clause == "hang" ? HangAgainMs() : options_.ms_max;
    const auto alone = [&](const CacheScript& candidate) {
      return JudgeAlone(candidate, judge, ms);
    };
    const auto shows_it = [&](const CacheScript& candidate) {
      const auto again = alone(candidate);
      return again && again->clause == finding.clause;
    };
    if (!shows_it(script)) return script;  // not by itself
    if (!IsAbnormal(finding.clause)) {
      const IsolatedCall run = RunIsolatedCall(
          [&] { return ScriptText(ShrinkScript(script, judge)); }, 4 * options_.ms_max);
      if (run.end.kind == IsolatedEnd::Kind::kReturned) {
        CacheScript shrunk = ParseScript(run.output, "shrunk script");
        if (shows_it(shrunk)) return shrunk;
      }
    }
    return ShrinkScript(script, alone);
  }

  struct Failure {
    std::string what;
    CacheScript script;
  };

  // Shrunk, with what its script says.
  Failure Smallest(const CacheScript& script, const ScriptFinding& finding,
                   const ScriptJudge& judge) const {
    CacheScript shrunk = Shrink(script, finding, judge);
    const auto again = JudgeAlone(shrunk, judge, ms_max());
    return {again ? again->what : finding.what, std::move(shrunk)};
  }

  // The first of each clause counts.
  void Keep(const CacheScript& script, const ScriptFinding& finding, const ScriptJudge& judge) {
    if (failures_.count(finding.clause) == 0) {
      failures_[finding.clause] = Smallest(script, finding, judge);
    }
  }

  // The direct path against the legacy path, then the legacy path against the model cache.
  std::string EngineDifference() const {
    const std::string_view preset = "tiny-gqa-9x3-q8_0";
    const auto model = Model::Load(MakeSyntheticModel(SyntheticPreset(preset), 1));
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
    Report("logits", 0, 1);
    const IsolatedCall run =
        RunIsolatedCall([this] { return EngineDifference(); }, 10 * options_.ms_max);
    const bool returned = run.end.kind == IsolatedEnd::Kind::kReturned;
    const std::string what = returned ? run.output : "the engine on the plug-in " + run.end.Text();
    if (!what.empty()) failures_["logits"] = {what, {}};
  }

  // ---- Level 4 -----------------------------------------------------------------------------

  // The first case that finds something, or does not return.
  std::optional<Failure> RunCases(const HostileCheck& check) {
    Report(check.clause, 0, check.cases.size());
    const IsolatedBatch batch = RunIsolatedBatch(
        static_cast<int32_t>(check.cases.size()),
        [&](int32_t i) { return check.cases[static_cast<size_t>(i)].run(); },
        4 * ms_max());  // a case is longer than a script
    for (const std::string& output : batch.outputs) {
      if (!output.empty()) return Failure{output, {}};
    }
    if (batch.end.kind == IsolatedEnd::Kind::kReturned) return std::nullopt;
    const size_t at = std::min(batch.outputs.size(), check.cases.size() - 1);
    return Failure{check.cases[at].name + ": the plug-in " + batch.end.Text(), {}};
  }

  // What a check finds, if anything.
  std::optional<Failure> RunCheck(const HostileCheck& check) {
    if (!check.cases.empty()) return RunCases(check);
    std::optional<Failure> failure;
    int32_t ended = 0;
    RunAll(check.scripts, check.clause, check.judge,
           [&](const CacheScript& script, const ScriptFinding& finding) {
             const bool at_border = finding.what.find(kBorderWords) != std::string::npos;
             const auto plain = IsAbnormal(finding.clause) && !at_border
                                    ? JudgeAlone(script, judge_, ms_max())
                                    : std::nullopt;
             if (plain && IsAbnormal(plain->clause)) {  // no matter of this check
               KeepHostile(script, *plain);
               return ++ended < kAbnormalEndsMax;
             }
             failure = Smallest(script, finding, check.judge);
             return false;
           });
    if (!failure && ended > 0) stopped_ = true;
    return failure;
  }

  // Found while another check ran: the line of its own clause is there already.
  void KeepHostile(const CacheScript& script, const ScriptFinding& finding) {
    const auto line = std::ranges::find(result_.clauses, finding.clause, &ClauseResult::clause);
    if (line == result_.clauses.end() || line->verdict == Verdict::kFail) return;
    const Failure failure = Smallest(script, finding, judge_);
    line->verdict = Verdict::kFail;
    line->what = failure.what;
    line->script = failure.script;
  }

  bool IsWanted(const std::string& check) const {
    return options_.checks.empty() || std::ranges::count(options_.checks, check) > 0;
  }

  void AddHostile() {
    const HostileOptions options = {.plugin = options_.plugin,
                                    .target = target_,
                                    .seed = options_.seed,
                                    .scripts = options_.hostile_scripts,
                                    .operations = options_.operations};
    for (const HostileCheck& check : HostileChecks(options)) {
      ClauseResult line{std::string(check.clause), 4, std::string(check.summary)};
      stopped_ = false;
      if (options_.level < 4 || !IsWanted(line.clause)) {
        line.verdict = Verdict::kNotRun;
      } else if (check.unsupported) {
        line.verdict = Verdict::kUnsupported;
      } else if (const auto failure = gave_up() ? std::nullopt : RunCheck(check)) {
        line.verdict = Verdict::kFail;
        line.what = failure->what;
        line.script = failure->script;
      } else {
        Passed(&line, stopped_);
      }
      result_.clauses.push_back(std::move(line));
    }
  }

  // A clause is proved by scripts that ran.
  void Passed(ClauseResult* line, bool stopped) const {
    line->verdict = gave_up() || stopped ? Verdict::kNotRun : Verdict::kPass;
    if (line->verdict == Verdict::kNotRun) line->what = "the plug-in hangs or ends too often";
  }

  // ---- Levels 0 to 3 -----------------------------------------------------------------------

  void AddContract() {
    for (const ConformClause& clause : ConformClauses()) {
      ClauseResult line{std::string(clause.clause), clause.level, std::string(clause.summary)};
      const auto failure = failures_.find(line.clause);
      if (clause.level > options_.level) {
        line.verdict = Verdict::kNotRun;
      } else if (failure != failures_.end()) {
        line.verdict = Verdict::kFail;
        line.what = failure->second.what;
        line.script = failure->second.script;
      } else if (!options_.checks.empty()) {
        line.verdict = Verdict::kNotRun;
      } else if (!ConformDeclares(*options_.plugin, line.clause)) {
        line.verdict = Verdict::kUnsupported;
      } else {
        Passed(&line, false);
      }
      if (failure != failures_.end()) failures_.erase(failure);
      result_.clauses.push_back(std::move(line));
    }
    for (const auto& [clause, failure] : failures_) {  // no clause may be lost
      result_.clauses.push_back({clause, 0, "", Verdict::kFail, failure.what, failure.script});
    }
  }

  const ConformOptions& options_;
  ScriptTarget target_;
  ScriptJudge judge_;                        // of levels 0 to 3
  std::map<std::string, Failure> failures_;  // by clause or case
  int32_t hangs_ = 0;
  bool stopped_ = false;  // the check that runs, by abnormal ends
  ConformResult result_;
};

}  // namespace

ConformResult Conform(const ConformOptions& options) { return Kit(options).Run(); }

std::string LoadFault(const std::string& path, int32_t ms_max) {
  const IsolatedCall run = RunIsolatedCall(
      [&]() -> std::string {
        try {
          PluginLibrary::Load(path);
        } catch (const Error&) {
        }
        return "";
      },
      ms_max);
  return run.end.kind == IsolatedEnd::Kind::kReturned ? ""
                                                      : "loading the plug-in " + run.end.Text();
}

}  // namespace lockstep
