// Workflows and actions of GitHub, and jobs of GitLab, as far as they can be judged before a push:
// after it, a mistake is seen when a job does not start, or is not seen.
// Source: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax,
// https://docs.gitlab.com/ci/yaml/
#include <fmt/format.h>

#include <algorithm>

#include "ci/tidy/pattern.h"
#include "ci/tidy/workflow_lint.h"
#include "golden/suggestion.h"

namespace lockstep::tidy {
namespace {

// Events that start a workflow here, and the keys that each takes. One that is missing is added
// when somebody needs it.
struct WorkflowEvent {
  std::string_view name;
  std::string_view keys;
};
constexpr std::string_view kPullRequestKeys = "types branches branches-ignore paths paths-ignore";
constexpr WorkflowEvent kEvents[] = {
    {"push", "branches branches-ignore tags tags-ignore paths paths-ignore"},
    {"pull_request", kPullRequestKeys},
    {"merge_group", "types"},
    {"release", "types"},
    {"schedule", ""},
    {"workflow_dispatch", "inputs"},
    {"workflow_call", "inputs outputs secrets"},
    {"workflow_run", "workflows types branches branches-ignore"}};

void CheckEventName(WorkflowLint* lint, const YamlNode& at, std::string_view name) {
  std::vector<std::string_view> names;
  for (const WorkflowEvent& event : kEvents) names.push_back(event.name);
  if (std::ranges::find(names, name) != names.end()) return;
  lint->Add(at, "workflow-key",
            fmt::format("'{}' is no event that is known here{}", name, MeantText(name, names)));
}

void CheckSchedule(WorkflowLint* lint, const YamlNode& schedule) {
  if (!schedule.is_list()) lint->Add(schedule, "workflow-key", "'schedule' is no list");
  for (const YamlNode& entry : schedule.children) {
    if (!lint->CheckKeys(entry, "cron", "an entry of 'schedule'")) continue;
    const YamlNode* cron = entry.Find("cron");
    if (cron != nullptr && WordsOf(cron->text).size() == 5) continue;
    lint->Add(entry, "workflow-key", "'cron' has five fields: minute hour day month weekday");
  }
}

// Adds the inputs that the events declare.
void CheckEvents(WorkflowLint* lint, const YamlNode& on, NameSet* inputs) {
  if (on.is_text()) return CheckEventName(lint, on, on.text);
  for (const YamlNode& event : on.children) {
    const std::string_view name = on.is_map() ? event.key : event.text;
    CheckEventName(lint, event, name);
    if (event.key == "schedule") CheckSchedule(lint, event);
    const auto known = std::ranges::find(kEvents, name, &WorkflowEvent::name);
    if (event.is_map() && known != std::end(kEvents)) {
      lint->CheckKeys(event, known->keys, fmt::format("the event '{}'", name));
    }
    inputs->merge(KeysOf(event.Find("inputs")));
  }
}

void RequireKeys(WorkflowLint* lint, const YamlNode& node, std::string_view keys,
                 std::string_view what) {
  for (const std::string_view key : WordsOf(keys)) {
    if (node.Find(key) != nullptr) continue;
    lint->Add(node, "workflow-key", fmt::format("{} has no '{}'", what, key));
  }
}

void CheckGitlabJob(WorkflowLint* lint, const YamlNode& root, const YamlNode& job) {
  if (!lint->CheckKeys(job,
                       "after_script allow_failure artifacts before_script cache coverage "
                       "dependencies environment extends image interruptible needs parallel "
                       "resource_group retry rules script services stage tags timeout variables "
                       "when",
                       "a job of GitLab")) {
    return;
  }
  RequireKeys(lint, job, "script", fmt::format("job '{}'", job.key));
  if (job.Find("timeout") == nullptr) {
    lint->Add(job, "workflow-timeout",
              fmt::format("job '{}' has no 'timeout': one that hangs takes what the project allows",
                          job.key));
  }
  if (const YamlNode* artifacts = job.Find("artifacts")) {
    lint->CheckKeys(*artifacts,
                    "access exclude expire_in expose_as name paths reports untracked when",
                    "'artifacts'");
  }
  if (const YamlNode* needs = job.Find("needs")) {
    for (const YamlNode& need : needs->children) {
      if (!need.is_text() || root.Find(need.text) != nullptr) continue;
      lint->Add(need, "workflow-needs",
                fmt::format("job '{}' needs '{}', which is no job{}", job.key, need.text,
                            MeantText(need.text, KeysOf(&root))));
    }
  }
}

// The job runs in another repository: this one is where a command before has cloned it.
void CheckGitlabCommands(WorkflowLint* lint, const YamlNode& job) {
  static const Pattern clone(R"(^git clone .*/lockstep(?:\.git)? (/\S+)$)");
  CommandFolders folders;
  for (const std::string_view key : {"before_script", "script", "after_script"}) {
    const YamlNode* lines = job.Find(key);
    if (lines == nullptr) continue;
    if (!lines->is_list()) lint->Add(*lines, "workflow-key", fmt::format("'{}' is no list", key));
    for (const YamlNode& line : lines->children) {
      CheckCommands(lint, line, line.text, folders);
      const auto cloned = clone.Find(line.text);
      if (!cloned.empty()) folders.emplace_back(std::string(cloned[1]) + "/", "");
    }
  }
}

}  // namespace

std::vector<std::string_view> WordsOf(std::string_view text) {
  constexpr std::string_view kBlanks = " \n";
  std::vector<std::string_view> words;
  for (size_t begin = text.find_first_not_of(kBlanks); begin != text.npos;) {
    const size_t end = std::min(text.find_first_of(kBlanks, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kBlanks, end);
  }
  return words;
}

bool HasWord(std::string_view words, std::string_view word) {
  const auto all = WordsOf(words);
  return std::ranges::find(all, word) != all.end();
}

NameSet KeysOf(const YamlNode* map) {
  NameSet keys;
  if (map == nullptr || !map->is_map()) return keys;
  for (const YamlNode& child : map->children) keys.insert(child.key);
  return keys;
}

void WorkflowLint::Add(size_t line, std::string_view rule, std::string message) {
  findings_->push_back({path_, line, std::string(rule), std::move(message)});
}

bool WorkflowLint::CheckIsMap(const YamlNode& node, std::string_view what) {
  if (!node.is_map()) Add(node, "workflow-key", fmt::format("{} is no map", what));
  return node.is_map();
}

bool WorkflowLint::CheckKeys(const YamlNode& node, std::string_view known, std::string_view what) {
  if (!CheckIsMap(node, what)) return false;
  for (const YamlNode& child : node.children) {
    if (HasWord(known, child.key)) continue;
    const std::string meant = MeantText(child.key, WordsOf(known));
    Add(child, "workflow-key",
        fmt::format("'{}' is no key of {}{}", child.key, what,
                    meant.empty() ? fmt::format("; it has {}", known) : meant));
  }
  return true;
}

void CheckPermissions(WorkflowLint* lint, const YamlNode& permissions) {
  if (permissions.is_text()) {
    if (permissions.text == "read-all") return;
    return lint->Add(permissions, "workflow-permissions",
                     fmt::format("'{}' is more than any job needs; name each", permissions.text));
  }
  if (permissions.kind == YamlNode::Kind::kNothing) {
    return lint->Add(permissions, "workflow-permissions", "names none; write '{}' for that");
  }
  if (!lint->CheckKeys(permissions,
                       "actions attestations checks contents deployments discussions id-token "
                       "issues models packages pages pull-requests security-events statuses",
                       "'permissions'")) {
    return;
  }
  for (const YamlNode& scope : permissions.children) {
    if (HasWord("read write none", scope.text)) continue;
    lint->Add(scope, "workflow-permissions",
              fmt::format("'{}' is none of read, write and none", scope.text));
  }
}

void CheckDefaults(WorkflowLint* lint, const YamlNode& defaults) {
  if (!lint->CheckKeys(defaults, "run", "'defaults'")) return;
  for (const YamlNode& run : defaults.children) {
    lint->CheckKeys(run, "shell working-directory", "'run' of 'defaults'");
  }
}

void CheckWorkflow(WorkflowLint* lint, const YamlNode& root) {
  if (!lint->CheckKeys(root, "name run-name on permissions env defaults concurrency jobs",
                       "a workflow")) {
    return;
  }
  RequireKeys(lint, root, "on jobs", "a workflow");
  if (const YamlNode* permissions = root.Find("permissions")) {
    CheckPermissions(lint, *permissions);
  } else {
    lint->Add(root, "workflow-permissions",
              "no 'permissions': its token may do what the repository allows; write what its jobs "
              "need, such as 'contents: read'");
  }
  NameSet inputs;
  if (const YamlNode* on = root.Find("on")) CheckEvents(lint, *on, &inputs);
  ExpressionScope scope{.where = "a workflow", .contexts = "github inputs vars"};
  scope.inputs = inputs;
  for (const YamlNode& child : root.children) {
    if (child.key == "jobs") continue;
    const bool is_env = child.key == "env";
    CheckExpressions(
        lint, child,
        is_env ? scope.At("'env' of a workflow", "github inputs vars secrets") : scope);
  }
  if (const YamlNode* defaults = root.Find("defaults")) CheckDefaults(lint, *defaults);
  const YamlNode* concurrency = root.Find("concurrency");
  if (concurrency != nullptr && !concurrency->is_text()) {
    lint->CheckKeys(*concurrency, "group cancel-in-progress", "'concurrency'");
  }
  if (const YamlNode* jobs = root.Find("jobs")) CheckJobs(lint, *jobs, inputs);
}

void CheckAction(WorkflowLint* lint, const YamlNode& root) {
  if (!lint->CheckKeys(root, "name author description inputs outputs runs branding", "an action")) {
    return;
  }
  RequireKeys(lint, root, "name description runs", "an action");
  const auto check_each = [&](std::string_view list, std::string_view keys, std::string_view needed,
                              std::string_view what) {
    const YamlNode* node = root.Find(list);
    if (node == nullptr || !lint->CheckIsMap(*node, fmt::format("'{}'", list))) return;
    for (const YamlNode& one : node->children) {
      if (lint->CheckKeys(one, keys, what)) RequireKeys(lint, one, needed, what);
    }
  };
  check_each("inputs", "description required default deprecationMessage", "description",
             "an input");
  check_each("outputs", "description value", "description value", "an output");

  const YamlNode* runs = root.Find("runs");
  if (runs == nullptr) return;
  const YamlNode* using_what = runs->Find("using");
  if (using_what == nullptr || using_what->text != "composite") {
    return lint->Add(*runs, "workflow-key", "only actions that are 'using: composite' are known");
  }
  if (!lint->CheckKeys(*runs, "using steps", "'runs'")) return;
  RequireKeys(lint, *runs, "steps", "'runs'");
  ExpressionScope scope{.where = "a step of an action",
                        .contexts = "github strategy matrix job runner env steps inputs"};
  scope.inputs = KeysOf(root.Find("inputs"));
  scope.matrix = std::nullopt;  // of whoever uses it
  if (const YamlNode* steps = runs->Find("steps")) CheckSteps(lint, *steps, true, &scope);
  if (const YamlNode* outputs = root.Find("outputs")) {
    CheckExpressions(lint, *outputs, scope.At("an output of an action", scope.contexts));
  }
}

void CheckGitlabJobs(WorkflowLint* lint, const YamlNode& root) {
  constexpr std::string_view kGlobal =
      "after_script before_script cache default image include services stages variables workflow";
  if (!lint->CheckIsMap(root, "the file")) return;
  for (const YamlNode& child : root.children) {
    if (HasWord(kGlobal, child.key)) continue;
    CheckGitlabJob(lint, root, child);
    CheckGitlabCommands(lint, child);
  }
}

void CheckWorkflows(const SourceTree& tree, Findings* findings) {
  for (const SourceFile& file : tree.files) {
    const std::string_view path = file.path;
    if (!path.ends_with(".yml") && !path.ends_with(".yaml")) continue;
    const std::string_view name = path.substr(path.rfind('/') + 1);
    void (*check)(WorkflowLint*, const YamlNode&) = nullptr;
    if (path.starts_with(".github/workflows/")) check = CheckWorkflow;
    if (name == "action.yml" || name == "action.yaml") check = CheckAction;
    if (name == "gitlab.yml" || name == ".gitlab-ci.yml") check = CheckGitlabJobs;
    if (check == nullptr) continue;
    WorkflowLint lint(tree, file.path, findings);
    const YamlDocument document = ParseYaml(JoinLines(file.raw));
    if (document.error.empty()) {
      check(&lint, document.root);
    } else {
      lint.Add(document.error_line, "workflow-yaml",
               fmt::format("cannot be read: {}; correct the YAML", document.error));
    }
  }
}

}  // namespace lockstep::tidy
