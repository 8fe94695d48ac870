// Each rule about steps, by a workflow or an action that breaks it alone.
#include <gtest/gtest.h>

#include "ci/tidy/test_workflows.h"

namespace lockstep::tidy {
namespace {

void ExpectInSteps(const std::vector<WorkflowMistake>& mistakes) {
  ExpectFound(kWorkflowPath, kSoundWorkflow, mistakes);
}

TEST(TidyWorkflowStepsTest, HaveKnownKeysAlone) {
  ExpectInSteps({
      {"- name: Test", "- nmae: Test", "32 [workflow-key] 'nmae' is no key of a step; is 'name'"},
      {"        run: apt-get -q update && LEVEL=1 ci/test \"$REPORT\"\n", "",
       "32 [workflow-key] a step has either 'uses' or 'run'"},
      {"- name: Test\n", "- uses: actions/checkout@v4\n",
       "32 [workflow-key] a step has either 'uses' or 'run'"},
      {"- name: Test\n", "- with: {a: b}\n",
       "32 [workflow-key] 'with' is for a step that has 'uses'"},
      {"- id: gate\n", "- id: gate\n        shell: bash\n",
       "29 [workflow-key] 'shell' is for a step that has 'run'"},
      {"- name: Test\n", "- id: gate\n", "32 [workflow-key] the id 'gate' is there twice"},
      {"- name: Test\n", "- id: a.b\n", "32 [workflow-key] 'a.b' is no id of letters"},
  });
}

TEST(TidyWorkflowStepsTest, UseActionsOfOneVersionAsTheyAre) {
  ExpectInSteps({
      {"actions/checkout@v4\n        with", "actions/checkout@main\n        with",
       "25 [workflow-pin] 'actions/checkout@main' is not pinned; end it with the tag"},
      {"actions/checkout@v4\n        with", "actions/checkout\n        with",
       "25 [workflow-pin] 'actions/checkout' is not pinned"},
      {"- name: Test\n", "- uses: docker://debian:12\n      - name: Test\n",
       "32 [workflow-pin] 'docker://debian:12' is not pinned"},
      {"fetch-depth", "fetch_depth",
       "27 [workflow-key] 'fetch_depth' is no input of actions/checkout@v4; is 'fetch-depth'"},
      {"./ci/action", "./ci/actions", "29 [workflow-pin] there is no './ci/actions/action.yml'"},
      {"          tier: ${{ matrix.preset }}\n",
       "          tier: ${{ matrix.preset }}\n          tear: 1\n",
       "32 [workflow-key] 'tear' is no input of ./ci/action; is 'tier' meant?"},
      {"        with:\n          tier: ${{ matrix.preset }}\n", "",
       "29 [workflow-key] ./ci/action needs 'tier' in 'with'"},
  });
  for (const std::string_view pinned :
       {"a/b/c@v1.2.3", "a/b@0123456789abcdef0123456789abcdef01234567"}) {
    EXPECT_EQ(
        FoundIn(kWorkflowPath, Changed(kSoundWorkflow, "- name: Test\n",
                                       fmt::format("- uses: {}\n      - name: Test\n", pinned))),
        "");
  }
}

TEST(TidyWorkflowStepsTest, NameStepsBeforeThem) {
  ExpectInSteps({
      {"REPORT: ${{ steps.gate.outputs.report }}", "REPORT: ${{ steps.gat.outputs.report }}",
       "35 [workflow-expression] ' steps.gat.outputs.report ': 'gat' is the id of no step before; "
       "is 'gate' meant?"},
      {"REPORT: ${{ steps.gate.outputs.report }}", "REPORT: ${{ steps.gate.output.report }}",
       "35 [workflow-expression] ' steps.gate.output.report ': 'steps.gate' has no 'output'; is"},
      {"REPORT: ${{ steps.gate.outputs.report }}", "REPORT: ${{ steps.gate.outputs.repot }}",
       "35 [workflow-expression] ' steps.gate.outputs.repot ': 'repot' is no output of steps.gate"},
      {"tier: ${{ matrix.preset }}", "tier: ${{ steps.gate.outcome }}",
       "31 [workflow-expression] ' steps.gate.outcome ': 'gate' is the id of no step before"},
      {"if: success() &&", "if: secrets.key != '' &&",
       "33 [workflow-expression] 'secrets.key != '' && github.ref == 'refs/heads/main'': an 'if' "
       "of a step cannot use 'secrets'"},
      {"if: success() && github.ref == 'refs/heads/main'", "if: ${{ success() }} && true",
       "33 [workflow-expression] an 'if' with text beside '${{ }}' is a text, which is always "
       "true"},
  });
}

TEST(TidyWorkflowStepsTest, RunScriptsOfTheTree) {
  ExpectInSteps({
      {"ci/test \"$REPORT\"", "ci/tset \"$REPORT\"", "37 [workflow-command] 'ci/tset' is not in"},
      {"ci/test \"$REPORT\"", "ci/notes",
       "37 [workflow-command] 'ci/notes' is not executable: chm"},
      {"apt-get -q update", "pip install x",
       "37 [workflow-command] 'pip' is no script of the tree; make a script of the step"},
      {"apt-get -q update", "/usr/bin/x", "37 [workflow-command] '/usr/bin/x' is no script of the"},
      {"ci/test \"$REPORT\"", "ci/test \"${{ github.head_ref }}\"",
       "37 [workflow-command] an expression in the text of a command, which then runs what others"},
      {"apt-get -q update && LEVEL=1", "git a | tee \"x; y\" &&", "37 [workflow-command] 'tee' is"},
      {"      - uses: actions/checkout@v4\n      - name: Every", "      - name: Every",
       "47 [workflow-command] ci/action/all-green is not there yet: a step before has to use "
       "actions/checkout"},
  });
  const std::string_view last = "run: apt-get -q update && LEVEL=1 ci/test \"$REPORT\"";
  for (const std::string_view sound :
       {"run: ./ci/test; git status", "run: '\"$GITHUB_WORKSPACE/ci/test\" || cmake --version'",
        "run: |\n          # words; pip\n          ci/test a \\\n            pip\n          git "
        "pull"}) {
    EXPECT_EQ(FoundIn(kWorkflowPath, Changed(kSoundWorkflow, last, sound)), "") << sound;
  }
}

TEST(TidyWorkflowStepsTest, OfAnActionAreItsOwn) {
  ExpectFound(
      kActionPath, kSoundAction,
      {
          {"runs:\n", "autor: me\nruns:\n",
           "11 [workflow-key] 'autor' is no key of an action; is 'author'"},
          {"    required: true", "    requires: true",
           "6 [workflow-key] 'requires' is no key of an input; is 'required' meant?"},
          {"    description: What to run\n", "", "4 [workflow-key] an input has no 'description'"},
          {"using: composite", "using: node20",
           "11 [workflow-key] only actions that are 'using: c"},
          {"      shell: bash\n", "", "14 [workflow-key] a step of an action that runs a command"},
          {"      shell: bash\n", "      shell: bash\n      timeout-minutes: 3\n",
           "16 [workflow-key] 'timeout-minutes' is no key of a step of an action"},
          {"inputs.tier", "inputs.tir",
           "17 [workflow-expression] ' inputs.tir ': 'tir' is no input; is 'tier' meant?"},
          {"inputs.tier", "secrets.tier",
           "17 [workflow-expression] ' secrets.tier ': a step of an action cannot use 'secrets'"},
          {"steps.gate.outputs", "steps.gat.outputs",
           "10 [workflow-expression] ' steps.gat.outputs.report ': 'gat' is the id of no step"},
          {"ACTION_PATH/run", "ACTION_PATH/runs",
           "18 [workflow-command] 'ci/action/runs' is not in the tree"},
          {"$GITHUB_ACTION_PATH/run", "ci/test",
           "18 [workflow-command] 'ci/test' is no script of the tree"},
      });
  EXPECT_EQ(FoundIn(kActionPath, Changed(kSoundAction, "ACTION_PATH/run", "ACTION_PATH/../test")),
            "");
}

TEST(TidyWorkflowStepsTest, OfGitlabAreJobsToo) {
  ExpectFound(
      kGitlabPath, kSoundGitlab,
      {
          {"  script:\n    - git", "  tag: [a]\n  script:\n    - git",
           "15 [workflow-key] 'tag' is no key of a job of GitLab; is 'tags' meant?"},
          {"  script:\n    - git", "  dependencies:\n    - git",
           "12 [workflow-key] job 'report' has no 'script'"},
          {"  timeout: 5 minutes\n", "", "12 [workflow-timeout] job 'report' has no 'timeout'"},
          {"needs: [gate]", "needs: [gat]",
           "13 [workflow-needs] job 'report' needs 'gat', which is no job; is 'gate' meant?"},
          {"    paths: [gate.xml]", "    path: [gate.xml]",
           "11 [workflow-key] 'path' is no key of 'artifacts'; is 'paths' meant?"},
          {"ci/test gate", "ci/tset gate", "9 [workflow-command] 'ci/tset' is not in the tree"},
          {"/opt/lockstep\n", "/opt/other\n",
           "9 [workflow-command] '/opt/lockstep/ci/test' is no script of the tree"},
          {"git status", "make", "16 [workflow-command] 'make' is no script of the tree"},
      });
}

}  // namespace
}  // namespace lockstep::tidy
