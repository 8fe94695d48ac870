// Steps of jobs and of actions.
// Source: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "ci/tidy/pattern.h"
#include "ci/tidy/workflow_lint.h"
#include "golden/suggestion.h"

namespace lockstep::tidy {
namespace {

constexpr std::string_view kStepKeys =
    "id if name uses run working-directory shell with env continue-on-error timeout-minutes";
constexpr std::string_view kActionStepKeys =
    "id if name uses run working-directory shell with env continue-on-error";

// What the actions of others take, as their action.yml says. A name that is not there is not known.
struct ForeignAction {
  std::string_view name;
  std::string_view inputs;
};
constexpr ForeignAction kForeignActions[] = {
    {"actions/checkout",
     "repository ref token ssh-key ssh-known-hosts ssh-strict ssh-user persist-credentials path "
     "clean filter sparse-checkout sparse-checkout-cone-mode fetch-depth fetch-tags show-progress "
     "lfs submodules set-safe-directory github-server-url"},
    {"actions/github-script",
     "script github-token debug user-agent previews result-encoding retries "
     "retry-exempt-status-codes base-url"},
    {"actions/upload-artifact",
     "name path if-no-files-found retention-days compression-level overwrite "
     "include-hidden-files"}};

struct LocalAction {
  NameSet inputs;
  NameSet required;  // that have no default
  NameSet outputs;
};

std::optional<LocalAction> FindLocalAction(const SourceTree& tree, const std::string& folder) {
  const SourceFile* file = tree.Find(folder + "/action.yml");
  if (file == nullptr) file = tree.Find(folder + "/action.yaml");
  if (file == nullptr) return std::nullopt;
  const YamlDocument document = ParseYaml(JoinLines(file->raw));
  LocalAction action{.inputs = KeysOf(document.root.Find("inputs")),
                     .required = {},
                     .outputs = KeysOf(document.root.Find("outputs"))};
  for (const std::string& name : action.inputs) {
    const YamlNode* input = document.root.Find("inputs")->Find(name);
    const YamlNode* required = input->Find("required");
    const bool is_required = required != nullptr && required->text == "true";
    if (is_required && input->Find("default") == nullptr) action.required.insert(name);
  }
  return action;
}

void CheckInputs(WorkflowLint* lint, const YamlNode* with, const std::string& uses,
                 const NameSet& inputs) {
  if (with == nullptr || !lint->CheckIsMap(*with, "'with'")) return;
  for (const YamlNode& given : with->children) {
    if (inputs.contains(given.key)) continue;
    lint->Add(
        given, "workflow-key",
        fmt::format("'{}' is no input of {}{}", given.key, uses, MeantText(given.key, inputs)));
  }
}

// One list of steps, from the first to the last.
class StepsCheck {
 public:
  StepsCheck(WorkflowLint* lint, bool is_action, ExpressionScope* scope)
      : lint_(lint), is_action_(is_action), scope_(scope) {}

  void Check(const YamlNode& step) {
    if (!lint_->CheckKeys(step, is_action_ ? kActionStepKeys : kStepKeys,
                          is_action_ ? "a step of an action" : "a step")) {
      return;
    }
    CheckForm(step);
    ExpressionScope condition = *scope_;
    condition.where = "an 'if' of a step";
    const std::string contexts = Without(scope_->contexts, "secrets");
    condition.contexts = contexts;
    for (const YamlNode& child : step.children) {
      if (child.key == "if") {
        CheckCondition(lint_, child, condition);
      } else {
        CheckExpressions(lint_, child, *scope_);
      }
    }
    std::optional<NameSet> outputs;
    if (const YamlNode* uses = step.Find("uses")) outputs = CheckUses(step, *uses);
    if (const YamlNode* run = step.Find("run")) CheckRun(*run);
    CheckId(step, std::move(outputs));
  }

 private:
  static std::string Without(std::string_view words, std::string_view word) {
    std::string rest;
    for (const std::string_view other : WordsOf(words)) {
      if (other != word) rest.append(rest.empty() ? "" : " ").append(other);
    }
    return rest;
  }

  void CheckForm(const YamlNode& step) {
    const bool uses = step.Find("uses") != nullptr, runs = step.Find("run") != nullptr;
    if (uses == runs) {
      lint_->Add(step, "workflow-key", "a step has either 'uses' or 'run'");
      return;
    }
    for (const std::string_view key : {"shell", "working-directory", "with"}) {
      const YamlNode* node = step.Find(key);
      const bool is_of_uses = key == "with";
      if (node == nullptr || is_of_uses == uses) continue;
      lint_->Add(*node, "workflow-key",
                 fmt::format("'{}' is for a step that has '{}'", key, is_of_uses ? "uses" : "run"));
    }
    if (is_action_ && runs && step.Find("shell") == nullptr) {
      lint_->Add(step, "workflow-key",
                 "a step of an action that runs a command needs 'shell: bash'");
    }
  }

  void CheckId(const YamlNode& step, std::optional<NameSet> outputs) {
    static const Pattern name(R"(^[A-Za-z_][\w-]*$)");
    const YamlNode* id = step.Find("id");
    if (id == nullptr) return;
    if (!name.Matches(id->text)) {
      lint_->Add(*id, "workflow-key",
                 fmt::format("'{}' is no id of letters, digits, '-' and '_'", id->text));
    }
    if (!scope_->steps.try_emplace(id->text, std::move(outputs)).second) {
      lint_->Add(*id, "workflow-key", fmt::format("the id '{}' is there twice", id->text));
    }
  }

  void RequireCheckout(const YamlNode& at, std::string_view what) {
    if (is_action_ || is_checked_out_) return;
    lint_->Add(at, "workflow-command",
               fmt::format("{} is not there yet: a step before has to use actions/checkout", what));
  }

  // The outputs of the action, where they are known.
  std::optional<NameSet> CheckUses(const YamlNode& step, const YamlNode& uses) {
    static const Pattern pinned(
        R"(^[\w.-]+/[\w./-]+@(?:v\d+(?:\.\d+)*|[0-9a-f]{40})$|^docker://.+@sha256:[0-9a-f]{64}$)");
    if (uses.text.starts_with("./")) return CheckLocal(step, uses);
    if (!pinned.Matches(uses.text)) {
      lint_->Add(uses, "workflow-pin",
                 fmt::format("'{}' is not pinned; end it with the tag of a version, @v4, or with "
                             "the hash of a commit",
                             uses.text));
    }
    const std::string_view name = std::string_view(uses.text).substr(0, uses.text.find('@'));
    is_checked_out_ = is_checked_out_ || name == "actions/checkout";
    const auto known = std::ranges::find(kForeignActions, name, &ForeignAction::name);
    if (known != std::end(kForeignActions)) {
      const auto inputs = WordsOf(known->inputs);
      CheckInputs(lint_, step.Find("with"), uses.text, {inputs.begin(), inputs.end()});
    }
    return std::nullopt;
  }

  std::optional<NameSet> CheckLocal(const YamlNode& step, const YamlNode& uses) {
    RequireCheckout(uses, uses.text);
    const auto action = FindLocalAction(lint_->tree(), uses.text.substr(2));
    if (!action) {
      lint_->Add(uses, "workflow-pin", fmt::format("there is no '{}/action.yml'", uses.text));
      return std::nullopt;
    }
    const YamlNode* with = step.Find("with");
    CheckInputs(lint_, with, uses.text, action->inputs);
    for (const std::string& name : action->required) {
      if (with != nullptr && with->Find(name) != nullptr) continue;
      lint_->Add(uses, "workflow-key", fmt::format("{} needs '{}' in 'with'", uses.text, name));
    }
    return action->outputs;
  }

  void CheckRun(const YamlNode& run) {
    const std::string folder = lint_->path().substr(0, lint_->path().rfind('/') + 1);
    const CommandFolders of_action = {{"$GITHUB_ACTION_PATH/", folder}};
    const CommandFolders of_workflow = {{"", ""}, {"$GITHUB_WORKSPACE/", ""}};
    for (const std::string& script :
         CheckCommands(lint_, run, run.text, is_action_ ? of_action : of_workflow)) {
      RequireCheckout(run, script);
    }
  }

  WorkflowLint* lint_;
  bool is_action_;
  ExpressionScope* scope_;
  bool is_checked_out_ = false;
};

}  // namespace

void CheckSteps(WorkflowLint* lint, const YamlNode& steps, bool is_action, ExpressionScope* scope) {
  if (!steps.is_list() || steps.children.empty()) {
    return lint->Add(steps, "workflow-key", "'steps' is no list of steps");
  }
  StepsCheck check(lint, is_action, scope);
  for (const YamlNode& step : steps.children) check.Check(step);
}

}  // namespace lockstep::tidy
