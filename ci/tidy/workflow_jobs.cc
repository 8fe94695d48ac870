// Jobs of workflows.
// Source: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "ci/tidy/pattern.h"
#include "ci/tidy/workflow_lint.h"
#include "golden/suggestion.h"

namespace lockstep::tidy {
namespace {

constexpr std::string_view kAllGreen = "ci/action/all-green";
constexpr int kJobMinutesMax = 360;

// The keys of a job, and which contexts expressions there may use.
struct JobKey {
  std::string_view name;
  std::string_view contexts;
};
constexpr std::string_view kMost = "github needs strategy matrix vars inputs";
constexpr std::string_view kContainer =
    "github needs strategy matrix job runner env vars secrets inputs";
constexpr JobKey kJobKeys[] = {
    {"name", kMost},
    {"permissions", ""},
    {"needs", ""},
    {"if", "github needs vars inputs"},
    {"runs-on", kMost},
    {"environment", kMost},
    {"concurrency", kMost},
    {"outputs", "github needs strategy matrix job runner env vars secrets steps inputs"},
    {"env", "github needs strategy matrix vars secrets inputs"},
    {"defaults", "github needs strategy matrix env vars inputs"},
    {"steps", "github needs strategy matrix job runner env vars secrets steps inputs"},
    {"timeout-minutes", kMost},
    {"strategy", "github needs vars inputs"},
    {"continue-on-error", kMost},
    {"container", kContainer},
    {"services", kContainer}};

// The names that a job needs.
std::vector<const YamlNode*> NeedsOf(const YamlNode& job) {
  const YamlNode* needs = job.Find("needs");
  std::vector<const YamlNode*> names;
  if (needs == nullptr) return names;
  if (needs->is_text()) names.push_back(needs);
  for (const YamlNode& name : needs->children) names.push_back(&name);
  return names;
}

void CheckTimeout(WorkflowLint* lint, const YamlNode& job) {
  const YamlNode* limit = job.Find("timeout-minutes");
  if (limit == nullptr) {
    return lint->Add(
        job, "workflow-timeout",
        fmt::format("job '{}' has no 'timeout-minutes': one that hangs takes six hours", job.key));
  }
  const std::string& text = limit->text;
  int minutes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), minutes);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  if (text.starts_with("${{") || (is_whole && minutes >= 1 && minutes <= kJobMinutesMax)) return;
  lint->Add(*limit, "workflow-timeout",
            fmt::format("'{}' is no whole number of minutes from 1 to {}", text, kJobMinutesMax));
}

// The keys of a matrix, or nothing where an expression makes it.
std::optional<NameSet> KeysOfMatrix(const YamlNode& job) {
  const YamlNode* strategy = job.Find("strategy");
  const YamlNode* matrix = strategy == nullptr ? nullptr : strategy->Find("matrix");
  if (matrix == nullptr) return NameSet();
  if (!matrix->is_map()) return std::nullopt;
  NameSet keys;
  for (const YamlNode& axis : matrix->children) {
    if (axis.key != "include" && axis.key != "exclude") keys.insert(axis.key);
  }
  const YamlNode* include = matrix->Find("include");
  if (include == nullptr) return keys;
  if (!include->is_list()) return std::nullopt;
  for (const YamlNode& more : include->children) keys.merge(KeysOf(&more));
  return keys;
}

// What is left out has to be there: a value that is misspelt leaves out nothing.
void CheckExclude(WorkflowLint* lint, const YamlNode& matrix, const YamlNode& entry) {
  for (const YamlNode& value : entry.children) {
    const YamlNode* axis = matrix.Find(value.key);
    if (axis != nullptr && !axis->is_list()) continue;  // an expression
    const bool is_there =
        axis != nullptr &&
        std::ranges::find(axis->children, value.text, &YamlNode::text) != axis->children.end();
    if (is_there) continue;
    lint->Add(value, "workflow-key",
              fmt::format("the matrix has no '{}: {}' to exclude", value.key, value.text));
  }
}

void CheckStrategy(WorkflowLint* lint, const YamlNode& strategy) {
  if (!lint->CheckKeys(strategy, "matrix fail-fast max-parallel", "'strategy'")) return;
  const YamlNode* matrix = strategy.Find("matrix");
  if (matrix == nullptr || !matrix->is_map()) return;
  for (const YamlNode& axis : matrix->children) {
    const bool is_made = axis.is_text() && axis.text.starts_with("${{");
    if (!is_made && (!axis.is_list() || axis.children.empty())) {
      lint->Add(axis, "workflow-key", fmt::format("'{}' of a matrix is no list", axis.key));
    }
    if (axis.key != "exclude") continue;
    for (const YamlNode& entry : axis.children) CheckExclude(lint, *matrix, entry);
  }
}

// What is either a text or a map with these keys.
void CheckTextOrMap(WorkflowLint* lint, const YamlNode* node, std::string_view keys,
                    std::string_view what) {
  if (node != nullptr && !node->is_text()) lint->CheckKeys(*node, keys, what);
}

void CheckForm(WorkflowLint* lint, const YamlNode& job) {
  constexpr std::string_view kContainerKeys = "image credentials env ports volumes options";
  if (job.Find("runs-on") == nullptr) {
    lint->Add(job, "workflow-key", fmt::format("job '{}' has no 'runs-on'", job.key));
  }
  if (job.Find("steps") == nullptr) {
    lint->Add(job, "workflow-key", fmt::format("job '{}' has no 'steps'", job.key));
  }
  CheckTextOrMap(lint, job.Find("container"), kContainerKeys, "'container'");
  CheckTextOrMap(lint, job.Find("concurrency"), "group cancel-in-progress", "'concurrency'");
  CheckTextOrMap(lint, job.Find("environment"), "name url", "'environment'");
  if (const YamlNode* services = job.Find("services")) {
    for (const YamlNode& one : services->children) {
      lint->CheckKeys(one, kContainerKeys, "a service");
    }
  }
  if (const YamlNode* defaults = job.Find("defaults")) CheckDefaults(lint, *defaults);
}

void CheckNames(WorkflowLint* lint, const YamlNode& jobs, const YamlNode& job) {
  static const Pattern name(R"(^[A-Za-z_][\w-]*$)");
  if (!name.Matches(job.key)) {
    lint->Add(job, "workflow-key",
              fmt::format("'{}' is no id of letters, digits, '-' and '_'", job.key));
  }
  for (const YamlNode* need : NeedsOf(job)) {
    if (jobs.Find(need->text) != nullptr) continue;
    lint->Add(*need, "workflow-needs",
              fmt::format("job '{}' needs '{}', which is no job{}", job.key, need->text,
                          MeantText(need->text, KeysOf(&jobs))));
  }
}

// Jobs that wait for each other never start, and GitHub refuses the file when it is pushed.
void CheckCycles(WorkflowLint* lint, const YamlNode& jobs) {
  const auto waits_for = [&](const YamlNode& job, const NameSet& waiting) {
    for (const YamlNode* need : NeedsOf(job)) {
      if (waiting.contains(need->text)) return need->text;
    }
    return std::string();
  };
  NameSet waiting = KeysOf(&jobs);  // what is left cannot start
  for (size_t before = waiting.size() + 1; before != waiting.size();) {
    before = waiting.size();
    for (const YamlNode& job : jobs.children) {
      if (waits_for(job, waiting).empty()) waiting.erase(job.key);
    }
  }
  if (waiting.empty()) return;
  // From any of them on, each waits for another, and so one comes back.
  std::vector<std::string> way = {*waiting.begin()};
  while (true) {
    const std::string next = waits_for(*jobs.Find(way.back()), waiting);
    const auto seen = std::ranges::find(way, next);
    const bool is_cycle = seen != way.end();
    if (is_cycle) way.erase(way.begin(), seen);
    way.push_back(next);
    if (is_cycle) break;
  }
  lint->Add(*jobs.Find(way[0]), "workflow-needs",
            fmt::format("these jobs wait for each other: {}", fmt::join(way, ", ")));
}

// The step that runs the script, or nullptr.
const YamlNode* StepThatRuns(const YamlNode& job, std::string_view script) {
  const YamlNode* steps = job.Find("steps");
  if (steps == nullptr) return nullptr;
  for (const YamlNode& step : steps->children) {
    const YamlNode* run = step.Find("run");
    if (run == nullptr) continue;
    const auto words = WordsOf(run->text);
    if (!words.empty() && words[0] == script) return &step;
  }
  return nullptr;
}

// Whether a node is that expression, with or without ${{ }} and blanks.
bool IsExpression(const YamlNode* node, std::string_view expression) {
  if (node == nullptr) return false;
  std::string text;
  for (const char c : node->text) {
    if (c != ' ' && c != '$' && c != '{' && c != '}') text += c;
  }
  return text == expression;
}

void CheckLastJob(WorkflowLint* lint, const YamlNode& jobs, const YamlNode& last) {
  constexpr std::string_view kRule = "workflow-last-job";
  NameSet others = KeysOf(&jobs);
  others.erase(last.key);
  for (const YamlNode* need : NeedsOf(last)) others.erase(need->text);
  if (!others.empty()) {
    lint->Add(last, kRule,
              fmt::format("job '{}' does not need {}: what fails there is green", last.key,
                          fmt::join(others, ", ")));
  }
  if (!IsExpression(last.Find("if"), "always()")) {
    lint->Add(last, kRule,
              fmt::format("job '{}' has no 'if: always()': it is skipped when a job fails, and "
                          "what is skipped counts as passed",
                          last.key));
  }
  const YamlNode* env = StepThatRuns(last, kAllGreen)->Find("env");
  if (env == nullptr || !IsExpression(env->Find("NEEDS"), "toJSON(needs)")) {
    lint->Add(last, kRule, fmt::format("{} needs 'NEEDS: ${{{{ toJSON(needs) }}}}'", kAllGreen));
  }
}

// A branch requires one check. GitHub counts a skipped job as passed, and a matrix has as many
// names as cells, so the one is a job that waits for all others and looks at each result. A single
// job that cannot be skipped is its own.
void CheckVerdict(WorkflowLint* lint, const YamlNode& jobs) {
  const YamlNode* last = nullptr;
  for (const YamlNode& job : jobs.children) {
    if (StepThatRuns(job, kAllGreen) != nullptr) last = &job;
  }
  if (last != nullptr) return CheckLastJob(lint, jobs, *last);
  const YamlNode& first = jobs.children[0];
  const bool is_plain =
      jobs.children.size() == 1 && first.Find("if") == nullptr && first.Find("strategy") == nullptr;
  if (is_plain) return;
  lint->Add(jobs, "workflow-last-job",
            fmt::format("no job says whether all others succeeded; add one that needs them and "
                        "runs {}",
                        kAllGreen));
}

void CheckJob(WorkflowLint* lint, const YamlNode& jobs, const YamlNode& job,
              const std::optional<NameSet>& inputs) {
  std::string keys;
  for (const JobKey& key : kJobKeys) keys.append(keys.empty() ? "" : " ").append(key.name);
  if (job.Find("uses") != nullptr) {
    return lint->Add(job, "workflow-key",
                     fmt::format("job '{}' calls a workflow, which nothing here checks; write its "
                                 "steps",
                                 job.key));
  }
  if (!lint->CheckKeys(job, keys, "a job")) return;
  CheckForm(lint, job);
  CheckTimeout(lint, job);
  CheckNames(lint, jobs, job);
  if (const YamlNode* permissions = job.Find("permissions")) CheckPermissions(lint, *permissions);
  if (const YamlNode* strategy = job.Find("strategy")) CheckStrategy(lint, *strategy);

  ExpressionScope scope{.where = "a step", .contexts = {}};
  scope.inputs = inputs;
  scope.matrix = KeysOfMatrix(job);
  for (const YamlNode* need : NeedsOf(job)) {
    const YamlNode* other = jobs.Find(need->text);
    if (other != nullptr) scope.needs[need->text] = KeysOf(other->Find("outputs"));
  }
  const auto contexts = [](std::string_view key) {
    return std::ranges::find(kJobKeys, key, &JobKey::name)->contexts;
  };
  scope.contexts = contexts("steps");
  if (const YamlNode* steps = job.Find("steps")) CheckSteps(lint, *steps, false, &scope);
  for (const YamlNode& child : job.children) {
    if (child.key == "steps" ||
        std::ranges::find(kJobKeys, child.key, &JobKey::name) == std::end(kJobKeys)) {
      continue;
    }
    const std::string where = fmt::format("'{}' of a job", child.key);
    const ExpressionScope there = scope.At(where, contexts(child.key));
    if (child.key == "if") {
      CheckCondition(lint, child, there);
    } else {
      CheckExpressions(lint, child, there);
    }
  }
}

}  // namespace

void CheckJobs(WorkflowLint* lint, const YamlNode& jobs, const std::optional<NameSet>& inputs) {
  if (!jobs.is_map() || jobs.children.empty()) {
    return lint->Add(jobs, "workflow-key", "'jobs' has no job");
  }
  for (const YamlNode& job : jobs.children) CheckJob(lint, jobs, job, inputs);
  CheckCycles(lint, jobs);
  CheckVerdict(lint, jobs);
}

}  // namespace lockstep::tidy
