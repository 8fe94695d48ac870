// What expressions of workflows may name.
// Source: https://docs.github.com/en/actions/reference/workflows-and-actions/contexts
#include <fmt/format.h>

#include <algorithm>

#include "ci/tidy/expression.h"
#include "ci/tidy/workflow_lint.h"
#include "golden/suggestion.h"

namespace lockstep::tidy {
namespace {

constexpr std::string_view kExpressionRule = "workflow-expression";

constexpr std::string_view kContexts =
    "github needs matrix inputs steps env runner secrets strategy job vars";

// Members of the contexts that are the same for every workflow.
struct FixedContext {
  std::string_view name;
  std::string_view members;
};
constexpr FixedContext kFixedContexts[] = {
    {"github",
     "action action_path action_ref action_repository action_status actor actor_id api_url "
     "base_ref "
     "env event event_name event_path graphql_url head_ref job job_workflow_sha path ref ref_name "
     "ref_protected ref_type repository repository_id repository_owner repository_owner_id "
     "repositoryUrl retention_days run_attempt run_id run_number secret_source server_url sha "
     "token "
     "triggering_actor workflow workflow_ref workflow_sha workspace"},
    {"runner", "name os arch temp tool_cache debug environment"},
    {"strategy", "fail-fast job-index job-total max-parallel"},
    {"job", "container services status check_run_id"}};

struct KnownFunction {
  std::string_view name;
  size_t arguments_min = 0;
  size_t arguments_max = 0;
  bool is_status = false;
};
constexpr size_t kAnyNumber = ~size_t{0};
constexpr KnownFunction kFunctions[] = {{"contains", 2, 2},
                                        {"startsWith", 2, 2},
                                        {"endsWith", 2, 2},
                                        {"format", 2, kAnyNumber},
                                        {"join", 1, 2},
                                        {"toJSON", 1, 1},
                                        {"fromJSON", 1, 1},
                                        {"hashFiles", 1, kAnyNumber},
                                        {"success", 0, 0, true},
                                        {"always", 0, 0, true},
                                        {"cancelled", 0, 0, true},
                                        {"failure", 0, 0, true}};

// What is wrong with one name behind another of a reference, or "".
std::string WrongMember(const std::optional<NameSet>& members, std::string_view member,
                        std::string_view is_none) {
  if (!members || member == "*" || members->contains(member)) return "";
  return fmt::format("'{}' {}{}", member, is_none, MeantText(member, *members));
}

using Outputs = std::map<std::string, std::optional<NameSet>>;

// Of needs.JOB.outputs.NAME or steps.ID.outputs.NAME.
std::string WrongOutput(const std::vector<std::string>& names, const Outputs& known,
                        std::string_view is_none, std::string_view properties) {
  NameSet owners;
  for (const auto& [owner, outputs] : known) owners.insert(owner);
  const std::string wrong = WrongMember(owners, names[1], is_none);
  if (!wrong.empty() || names.size() == 2 || names[1] == "*") return wrong;
  if (names[2] != "*" && !HasWord(properties, names[2])) {
    return fmt::format("'{}.{}' has no '{}'{}; it has {}", names[0], names[1], names[2],
                       MeantText(names[2], WordsOf(properties)), properties);
  }
  if (names[2] != "outputs" || names.size() == 3) return "";
  return WrongMember(known.at(names[1]), names[3],
                     fmt::format("is no output of {}.{}", names[0], names[1]));
}

std::string WrongReference(const std::vector<std::string>& names, const ExpressionScope& scope) {
  const std::string& context = names[0];
  if (!HasWord(kContexts, context)) {
    const std::string meant = MeantText(context, WordsOf(kContexts));
    return fmt::format("'{}' is no context{}", context,
                       meant.empty() ? "; a text has single quotes" : meant);
  }
  if (!HasWord(scope.contexts, context)) {
    return fmt::format("{} cannot use '{}', only {}", scope.where, context, scope.contexts);
  }
  if (names.size() == 1) return "";
  if (context == "steps") {
    return WrongOutput(names, scope.steps, "is the id of no step before",
                       "outputs outcome conclusion");
  }
  if (context == "needs") {
    return WrongOutput(names, scope.needs, "is no job that this one needs", "outputs result");
  }
  if (context == "matrix") {
    return WrongMember(scope.matrix, names[1], "is no key of the job's matrix");
  }
  if (context == "inputs") return WrongMember(scope.inputs, names[1], "is no input");
  const auto fixed = std::ranges::find(kFixedContexts, context, &FixedContext::name);
  if (fixed == std::end(kFixedContexts)) return "";  // env, secrets, vars: anybody may set them
  const auto members = WordsOf(fixed->members);
  return WrongMember(NameSet(members.begin(), members.end()), names[1],
                     fmt::format("is nothing that '{}' has", context));
}

std::string WrongCall(const Expression::Call& call, const ExpressionScope& scope) {
  const auto known = std::ranges::find(kFunctions, call.function, &KnownFunction::name);
  if (known == std::end(kFunctions)) {
    std::vector<std::string_view> names;
    for (const KnownFunction& function : kFunctions) names.push_back(function.name);
    return fmt::format("'{}' is no function{}", call.function, MeantText(call.function, names));
  }
  if (known->is_status && !scope.has_status) {
    return fmt::format("'{}()' is for an 'if' alone", call.function);
  }
  if (call.arguments < known->arguments_min || call.arguments > known->arguments_max) {
    return fmt::format("'{}' does not take {} arguments", call.function, call.arguments);
  }
  return "";
}

void CheckExpression(WorkflowLint* lint, const YamlNode& at, std::string_view text,
                     const ExpressionScope& scope) {
  const auto report = [&](const std::string& wrong) {
    if (!wrong.empty()) lint->Add(at, kExpressionRule, fmt::format("'{}': {}", text, wrong));
  };
  const Expression expression = ParseExpression(text);
  report(expression.error);
  if (!expression.error.empty()) return;
  for (const auto& names : expression.references) report(WrongReference(names, scope));
  for (const Expression::Call& call : expression.calls) report(WrongCall(call, scope));
}

}  // namespace

ExpressionScope ExpressionScope::At(std::string_view other_where,
                                    std::string_view other_contexts) const {
  ExpressionScope other = *this;
  other.where = other_where;
  other.contexts = other_contexts;
  return other;
}

void CheckExpressions(WorkflowLint* lint, const YamlNode& node, const ExpressionScope& scope) {
  for (const YamlNode& child : node.children) CheckExpressions(lint, child, scope);
  const auto expressions = ExpressionsIn(node.text);
  if (!expressions) return lint->Add(node, kExpressionRule, "'${{' has no '}}'");
  for (const std::string& expression : *expressions) CheckExpression(lint, node, expression, scope);
}

void CheckCondition(WorkflowLint* lint, const YamlNode& node, ExpressionScope scope) {
  scope.has_status = true;
  const std::string_view text = node.text;
  if (text.find("${{") == text.npos) return CheckExpression(lint, node, text, scope);
  if (!text.starts_with("${{") || text.find("}}") + 2 != text.size()) {
    return lint->Add(node, kExpressionRule,
                     "an 'if' with text beside '${{ }}' is a text, which is always true; leave "
                     "'${{ }}' out");
  }
  CheckExpressions(lint, node, scope);
}

}  // namespace lockstep::tidy
