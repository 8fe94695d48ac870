// What the rules about workflows share.
#ifndef LOCKSTEP_CI_TIDY_WORKFLOW_LINT_H_
#define LOCKSTEP_CI_TIDY_WORKFLOW_LINT_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ci/tidy/rules.h"
#include "ci/tidy/yaml.h"

namespace lockstep::tidy {

using NameSet = std::set<std::string, std::less<>>;

// Names separated by blanks, as the tables of the rules have them.
std::vector<std::string_view> WordsOf(std::string_view text);
bool HasWord(std::string_view words, std::string_view word);

// One file, and what was found in it. The tree and the findings outlive this.
class WorkflowLint {
 public:
  WorkflowLint(const SourceTree& tree, std::string path, Findings* findings)
      : tree_(tree), path_(std::move(path)), findings_(findings) {}

  const SourceTree& tree() const { return tree_; }
  const std::string& path() const { return path_; }

  void Add(size_t line, std::string_view rule, std::string message);
  void Add(const YamlNode& at, std::string_view rule, std::string message) {
    Add(at.line, rule, std::move(message));
  }

  // Whether `node`, which stands for `what` ("a job"), is a map; a finding for each key that is not
  // among `known`, words that blanks separate.
  bool CheckKeys(const YamlNode& node, std::string_view known, std::string_view what);

  // The same where any key may be.
  bool CheckIsMap(const YamlNode& node, std::string_view what);

 private:
  const SourceTree& tree_;
  std::string path_;
  Findings* findings_;
};

// What expressions may name where they stand. Members that are not there: nobody can tell.
struct ExpressionScope {
  std::string_view where;                                 // "a step"
  std::string_view contexts;                              // separated by blanks
  bool has_status = false;                                // success(), always() and their like
  std::map<std::string, std::optional<NameSet>> steps{};  // that ran before: their outputs
  std::map<std::string, std::optional<NameSet>> needs{};  // jobs: their outputs
  std::optional<NameSet> matrix = NameSet();
  std::optional<NameSet> inputs = NameSet();

  // The same steps, jobs, axes and inputs in another place.
  ExpressionScope At(std::string_view other_where, std::string_view other_contexts) const;
};

// Each ${{ }} in a node and below it.
void CheckExpressions(WorkflowLint* lint, const YamlNode& node, const ExpressionScope& scope);

// An `if`, which is an expression without ${{ }} too.
void CheckCondition(WorkflowLint* lint, const YamlNode& node, ExpressionScope scope);

// Where files of the tree are when a command runs, "/opt/lockstep/", and their folder in the tree,
// "" for its root. A pair of two "" says that commands run in the root.
using CommandFolders = std::vector<std::pair<std::string, std::string>>;

// The commands that a line of shell starts: each is a program that every machine has, or a script
// of the tree, which people can run too. Returns the scripts' paths in the tree.
std::vector<std::string> CheckCommands(WorkflowLint* lint, const YamlNode& at,
                                       std::string_view text, const CommandFolders& folders);

// The steps of a job or, when `is_action`, of an action. Leaves them in scope->steps.
void CheckSteps(WorkflowLint* lint, const YamlNode& steps, bool is_action, ExpressionScope* scope);

// A workflow, an action and GitLab's jobs; `root` is the file.
void CheckWorkflow(WorkflowLint* lint, const YamlNode& root);
void CheckAction(WorkflowLint* lint, const YamlNode& root);
void CheckGitlabJobs(WorkflowLint* lint, const YamlNode& root);

// What a workflow's or a job's token may do.
void CheckPermissions(WorkflowLint* lint, const YamlNode& permissions);

// What steps of a workflow or a job run with.
void CheckDefaults(WorkflowLint* lint, const YamlNode& defaults);

// The jobs of a workflow whose `inputs` are those.
void CheckJobs(WorkflowLint* lint, const YamlNode& jobs, const std::optional<NameSet>& inputs);

// Keys of a map, or none.
NameSet KeysOf(const YamlNode* map);

}  // namespace lockstep::tidy

#endif  // LOCKSTEP_CI_TIDY_WORKFLOW_LINT_H_
