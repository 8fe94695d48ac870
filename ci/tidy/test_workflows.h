// A sound workflow, action and job of GitLab, for tests that make one thing wrong.
#ifndef LOCKSTEP_CI_TIDY_TEST_WORKFLOWS_H_
#define LOCKSTEP_CI_TIDY_TEST_WORKFLOWS_H_

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ci/tidy/rules.h"

namespace lockstep::tidy {

inline constexpr std::string_view kWorkflowPath = ".github/workflows/gate.yml";
inline constexpr std::string_view kSoundWorkflow = R"(name: gate
on:
  push:
    branches: [main]
  workflow_dispatch:
    inputs:
      depth: {description: How deep, default: "1"}
permissions:
  contents: read
env:
  REF: ${{ github.ref }}
jobs:
  build:
    runs-on: ubuntu-latest
    container: debian:12
    timeout-minutes: 30
    strategy:
      matrix:
        preset: [gate, tsan]
        exclude:
          - preset: tsan
    outputs:
      report: ${{ steps.gate.outputs.report }}
    steps:
      - uses: actions/checkout@v4
        with:
          fetch-depth: 0
      - id: gate
        uses: ./ci/action
        with:
          tier: ${{ matrix.preset }}
      - name: Test
        if: success() && github.ref == 'refs/heads/main'
        env:
          REPORT: ${{ steps.gate.outputs.report }}
          DEPTH: ${{ inputs.depth }}
        run: apt-get -q update && LEVEL=1 ci/test "$REPORT"
  all-green:
    runs-on: ubuntu-latest
    needs: [build]
    if: always()
    timeout-minutes: 10
    steps:
      - uses: actions/checkout@v4
      - name: Every job succeeded
        env:
          NEEDS: ${{ toJSON(needs) }}
        run: ci/action/all-green
)";

inline constexpr std::string_view kActionPath = "ci/action/action.yml";
inline constexpr std::string_view kSoundAction = R"(name: gate
description: Prove a cache
inputs:
  tier:
    description: What to run
    required: true
outputs:
  report:
    description: The result
    value: ${{ steps.gate.outputs.report }}
runs:
  using: composite
  steps:
    - id: gate
      shell: bash
      env:
        TIER: ${{ inputs.tier }}
      run: '"$GITHUB_ACTION_PATH/run" "$TIER"'
)";

inline constexpr std::string_view kGitlabPath = "ci/gitlab.yml";
inline constexpr std::string_view kSoundGitlab = R"(variables:
  GIT_DEPTH: "0"
gate:
  image: debian:12
  timeout: 30 minutes
  before_script:
    - git clone --depth 1 https://example.org/lockstep /opt/lockstep
  script:
    - /opt/lockstep/ci/test gate
  artifacts:
    paths: [gate.xml]
report:
  needs: [gate]
  timeout: 5 minutes
  script:
    - git status
)";

// The text with one place of it in another form.
inline std::string Changed(std::string_view sound, std::string_view from, std::string_view to) {
  std::string text(sound);
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return at == text.npos ? text : text.replace(at, from.size(), to);
}

// What is found in a tree whose file `path` has this text, "line [rule] message" a line.
inline std::string FoundIn(std::string_view path, std::string_view text) {
  std::vector<std::pair<std::string_view, std::string_view>> files = {
      {kWorkflowPath, kSoundWorkflow},  {kActionPath, kSoundAction},
      {kGitlabPath, kSoundGitlab},      {"ci/action/all-green", "#!/bin/sh\n"},
      {"ci/action/run", "#!/bin/sh\n"}, {"ci/test", "#!/bin/sh\n"},
      {"ci/notes", "no script\n"}};
  SourceTree tree;
  for (const auto& [other_path, other_text] : files) {
    tree.files.push_back(MakeSourceFile(std::string(other_path), other_text));
    tree.files.back().is_executable = other_text.starts_with("#!");
  }
  const auto changed = std::ranges::find(tree.files, path, &SourceFile::path);
  EXPECT_NE(changed, tree.files.end()) << path;
  changed->raw = MakeSourceFile(std::string(path), text).raw;
  Findings findings;
  CheckWorkflows(tree, &findings);
  std::string lines;
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.path, path);
    lines += fmt::format("{} [{}] {}\n", finding.line, finding.rule, finding.message);
  }
  return lines;
}

// One thing that is made wrong, and how what is found begins.
struct WorkflowMistake {
  std::string_view from;
  std::string_view to;
  std::string_view found;
};

inline void ExpectFound(std::string_view path, std::string_view sound,
                        const std::vector<WorkflowMistake>& mistakes) {
  EXPECT_EQ(FoundIn(path, sound), "");
  for (const WorkflowMistake& mistake : mistakes) {
    const std::string found = FoundIn(path, Changed(sound, mistake.from, mistake.to));
    EXPECT_THAT(found, testing::StartsWith(std::string(mistake.found))) << mistake.to;
    EXPECT_EQ(std::ranges::count(found, '\n'), 1) << mistake.to << "\n" << found;
  }
}

}  // namespace lockstep::tidy

#endif  // LOCKSTEP_CI_TIDY_TEST_WORKFLOWS_H_
