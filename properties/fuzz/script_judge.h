// What the targets over cache scripts share.
#ifndef LOCKSTEP_PROPERTIES_FUZZ_SCRIPT_JUDGE_H_
#define LOCKSTEP_PROPERTIES_FUZZ_SCRIPT_JUDGE_H_

#include <functional>
#include <optional>

#include "properties/fuzz.h"
#include "properties/script_runner.h"

namespace lockstep::fuzz {

// A judge of scripts for ShrinkScript, whose clause is the finding's place.
inline ScriptJudge ScriptJudgeOf(
    std::function<std::optional<FuzzFinding>(const CacheScript&)> judge) {
  return [judge = std::move(judge)](const CacheScript& script) -> std::optional<ScriptFinding> {
    const auto finding = judge(script);
    if (!finding) return std::nullopt;
    return ScriptFinding{static_cast<int32_t>(script.ops.size()) - 1, finding->place,
                         finding->what};
  };
}

}  // namespace lockstep::fuzz

#endif  // LOCKSTEP_PROPERTIES_FUZZ_SCRIPT_JUDGE_H_
