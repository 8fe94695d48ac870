// Each rule about workflows and their jobs, by a workflow that breaks it alone, and the tree's own.
#include <gtest/gtest.h>

#include "caches/test_paths.h"
#include "ci/tidy/test_workflows.h"
#include "ci/tidy/yaml.h"

namespace lockstep::tidy {
namespace {

using testing::HasSubstr;

void ExpectInWorkflow(const std::vector<WorkflowMistake>& mistakes) {
  ExpectFound(kWorkflowPath, kSoundWorkflow, mistakes);
}

// They are seen, and sound. Of no file nothing would be found.
TEST(TidyWorkflowTest, ThoseOfTheTreeAreSound) {
  const SourceTree tree = ReadTree(SourceDir());
  for (const char* path : {".github/workflows/gate.yml", ".github/workflows/bench.yml",
                           ".github/workflows/deep.yml", "ci/action/action.yml", "ci/gitlab.yml"}) {
    ASSERT_NE(tree.Find(path), nullptr) << path;
  }
  EXPECT_TRUE(tree.Find("ci/gate")->is_executable);
  EXPECT_FALSE(tree.Find("ci/lockstep.toml")->is_executable);
  Findings findings;
  CheckWorkflows(tree, &findings);
  for (const Finding& finding : findings) {
    ADD_FAILURE() << finding.path << ":" << finding.line << ": " << finding.message;
  }
}

TEST(TidyWorkflowTest, IsOneDocumentOfYamlWhoseKeysAreThereOnce) {
  ExpectInWorkflow({
      {"  push:", "   push:", "5 [workflow-yaml] cannot be read: "},
      {"name: gate\n", "name: gate\nname: gate\n",
       "2 [workflow-yaml] cannot be read: the key 'name' is there twice"},
      {"name: gate\n", "name: gate\n---\nname: gate\n",
       "0 [workflow-yaml] cannot be read: holds 2 documents"},
  });
  const YamlDocument endless = ParseYaml("&a [*a]\n");
  EXPECT_THAT(endless.error, HasSubstr("nested too deep"));
}

TEST(TidyWorkflowTest, HasKnownKeysAlone) {
  ExpectInWorkflow({
      {"env:\n", "enw:\n", "10 [workflow-key] 'enw' is no key of a workflow; is 'env' meant?"},
      {"on:\n", "xyzzy: 1\non:\n", "2 [workflow-key] 'xyzzy' is no key of a workflow; it has name"},
      {"  push:", "  pull:", "3 [workflow-key] 'pull' is no event that is known here"},
      {"branches:", "branchs:", "4 [workflow-key] 'branchs' is no key of the event 'push'; is"},
      {"    timeout-minutes: 30\n", "    timeout-minutes: 30\n    need: [build]\n",
       "17 [workflow-key] 'need' is no key of a job; is 'needs' meant?"},
      {"      matrix:", "      fail_fast: true\n      matrix:",
       "18 [workflow-key] 'fail_fast' is no key of 'strategy'; is 'fail-fast' meant?"},
      {"container: debian:12", "container: {imgae: debian}",
       "15 [workflow-key] 'imgae' is no key of 'container'; is 'image' meant?"},
      {"jobs:\n", "concurrency: {cancel: true}\njobs:\n",
       "12 [workflow-key] 'cancel' is no key of 'concurrency'; it has group"},
      {"    container: debian:12\n", "    concurrency: {gruop: a}\n",
       "15 [workflow-key] 'gruop' is no key of 'concurrency'; is 'group' meant?"},
      {"jobs:\n", "defaults: {run: {shel: sh}}\njobs:\n",
       "12 [workflow-key] 'shel' is no key of 'run' of 'defaults'; is 'shell' meant?"},
      {"    container: debian:12\n", "    defaults: {runs: {shell: sh}}\n",
       "15 [workflow-key] 'runs' is no key of 'defaults'; is 'run' meant?"},
      {"    container: debian:12\n", "    services: {a: {port: [1]}}\n",
       "15 [workflow-key] 'port' is no key of a service; is 'ports' meant?"},
      {"    runs-on: ubuntu-latest\n", "", "13 [workflow-key] job 'build' has no 'runs-on'"},
      {"  build:\n", "  build:\n    uses: ./.github/workflows/deep.yml\n",
       "13 [workflow-key] job 'build' calls a workflow"},
  });
  EXPECT_THAT(FoundIn(kWorkflowPath, "name: a\non: [push, pul_request]\npermissions: {}\n"),
              testing::AllOf(HasSubstr("1 [workflow-key] a workflow has no 'jobs'"),
                             HasSubstr("2 [workflow-key] 'pul_request' is no event that is known "
                                       "here; is 'pull_request' meant?")));
  EXPECT_THAT(
      FoundIn(kWorkflowPath, "on: {schedule: [{cron: 1 2 3}]}\npermissions: {}\njobs: {}\n"),
      testing::AllOf(HasSubstr("1 [workflow-key] 'cron' has five fields"),
                     HasSubstr("3 [workflow-key] 'jobs' has no job")));
}

TEST(TidyWorkflowTest, SaysWhatItsTokenMayDo) {
  ExpectInWorkflow({
      {"permissions:\n  contents: read\n", "",
       "1 [workflow-permissions] no 'permissions': its token may do what the repository allows"},
      {"permissions:\n  contents: read\n", "permissions: write-all\n",
       "8 [workflow-permissions] 'write-all' is more than any job needs"},
      {"permissions:\n  contents: read\n", "permissions:\n",
       "8 [workflow-permissions] names none; write '{}' for that"},
      {"contents: read", "content: read",
       "9 [workflow-key] 'content' is no key of 'permissions'; is 'contents' meant?"},
      {"contents: read", "contents: reed",
       "9 [workflow-permissions] 'reed' is none of read, write and none"},
      {"    container: debian:12\n", "    permissions: {issues: all}\n",
       "15 [workflow-permissions] 'all' is none of read, write and none"},
  });
}

TEST(TidyWorkflowTest, EveryJobHasALimit) {
  ExpectInWorkflow({
      {"    timeout-minutes: 30\n", "",
       "13 [workflow-timeout] job 'build' has no 'timeout-minutes'"},
      {"minutes: 30", "minutes: 0", "16 [workflow-timeout] '0' is no whole number of minutes"},
      {"minutes: 30", "minutes: 361", "16 [workflow-timeout] '361' is no whole number"},
      {"minutes: 30", "minutes: 30m", "16 [workflow-timeout] '30m' is no whole number"},
  });
}

TEST(TidyWorkflowTest, JobsNeedJobsThatStart) {
  ExpectInWorkflow({
      {"needs: [build]", "needs: [build, biuld]",
       "40 [workflow-needs] job 'all-green' needs 'biuld', which is no job; is 'build' meant?"},
      {"    container: debian:12\n", "    needs: all-green\n",
       "38 [workflow-needs] these jobs wait for each other: all-green, build, all-green"},
      {"    container: debian:12\n", "    needs: build\n",
       "13 [workflow-needs] these jobs wait for each other: build, build"},
  });
}

TEST(TidyWorkflowTest, JobsHaveIds) {
  EXPECT_THAT(FoundIn(kWorkflowPath, Changed(kSoundWorkflow, "  build:\n", "  a build:\n")),
              HasSubstr("13 [workflow-key] 'a build' is no id of letters"));
}

TEST(TidyWorkflowTest, WhatIsLeftOutOfAMatrixIsInIt) {
  ExpectInWorkflow({
      {"- preset: tsan", "- preset: tsun",
       "21 [workflow-key] the matrix has no 'preset: tsun' to exclude"},
      {"- preset: tsan", "- preste: tsan",
       "21 [workflow-key] the matrix has no 'preste: tsan' to exclude"},
      {"preset: [gate, tsan]", "preset: [gate, tsan]\n        mode: one",
       "20 [workflow-key] 'mode' of a matrix is no list"},
  });
}

TEST(TidyWorkflowTest, OneJobSaysWhetherAllSucceeded) {
  ExpectInWorkflow({
      {"        run: ci/action/all-green\n", "        run: ci/test\n",
       "12 [workflow-last-job] no job says whether all others succeeded; add one"},
      {"    needs: [build]\n", "",
       "38 [workflow-last-job] job 'all-green' does not need build: what fails there is green"},
      {"    if: always()\n", "", "38 [workflow-last-job] job 'all-green' has no 'if: always()'"},
      {"    if: always()\n", "    if: success()\n",
       "38 [workflow-last-job] job 'all-green' has no"},
      {"NEEDS: ${{ toJSON(needs) }}", "NEEDS: ${{ toJSON(needs.build) }}",
       "38 [workflow-last-job] ci/action/all-green needs 'NEEDS: ${{ toJSON(needs) }}'"},
  });
  EXPECT_EQ(FoundIn(kWorkflowPath, Changed(kSoundWorkflow, "if: always()", "if: ${{ always() }}")),
            "");
  // A single job is its own verdict, unless it may be skipped or has several names.
  const std::string one =
      "on: push\npermissions: {}\njobs:\n  a:\n    runs-on: x\n    timeout-minutes: 1\n"
      "    steps: [{run: git status}]\n";
  EXPECT_EQ(FoundIn(kWorkflowPath, one), "");
  for (const std::string more :
       {"    if: github.ref == 'a'\n", "    strategy: {matrix: {a: [1, 2]}}\n"}) {
    EXPECT_THAT(FoundIn(kWorkflowPath, one + more), HasSubstr("3 [workflow-last-job] no job says"));
  }
}

TEST(TidyWorkflowTest, ExpressionsNameWhatIsThere) {
  ExpectInWorkflow({
      {"github.ref }}", "githib.ref }}",
       "11 [workflow-expression] ' githib.ref ': 'githib' is no context; is 'github' meant?"},
      {"github.ref }}", "github.reff }}",
       "11 [workflow-expression] ' github.reff ': 'reff' is nothing that 'github' has; is 'ref'"},
      {"github.ref }}", "matrix.preset }}",
       "11 [workflow-expression] ' matrix.preset ': 'env' of a workflow cannot use 'matrix', only"},
      {"github.ref }}", "github.ref }", "11 [workflow-expression] '${{' has no '}}'"},
      {"github.ref }}", "github.ref == \"a\" }}",
       "11 [workflow-expression] ' github.ref == \"a\" ': '\"a\" ' is no value"},
      {"github.ref }}", "toJson(github) }}",
       "11 [workflow-expression] ' toJson(github) ': 'toJson' is no function; is 'toJSON' meant?"},
      {"github.ref }}", "contains(github.ref) }}",
       "11 [workflow-expression] ' contains(github.ref) ': 'contains' does not take 1 arguments"},
      {"github.ref }}", "always() }}",
       "11 [workflow-expression] ' always() ': 'always()' is for an 'if' alone"},
      {"tier: ${{ matrix.preset }}", "tier: ${{ matrix.presets }}",
       "31 [workflow-expression] ' matrix.presets ': 'presets' is no key of the job's matrix; is"},
      {"DEPTH: ${{ inputs.depth }}", "DEPTH: ${{ inputs.dept }}",
       "36 [workflow-expression] ' inputs.dept ': 'dept' is no input; is 'depth' meant?"},
      {"NEEDS: ${{ toJSON(needs) }}",
       "NEEDS: ${{ toJSON(needs) }}\n          A: ${{ needs.built.result }}",
       "48 [workflow-expression] ' needs.built.result ': 'built' is no job that this one needs; "
       "is"},
      {"NEEDS: ${{ toJSON(needs) }}",
       "NEEDS: ${{ toJSON(needs) }}\n          A: ${{ needs.build.outputs.reprot }}",
       "48 [workflow-expression] ' needs.build.outputs.reprot ': 'reprot' is no output of "
       "needs.build; is 'report' meant?"},
      {"    container: debian:12\n", "    if: steps.gate.outcome\n",
       "15 [workflow-expression] 'steps.gate.outcome': 'if' of a job cannot use 'steps', only"},
  });
}

}  // namespace
}  // namespace lockstep::tidy
