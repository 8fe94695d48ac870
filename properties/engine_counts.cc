#include "properties/engine_script_runner.h"

namespace lockstep {

std::string_view EngineClassName(EngineClass engine_class) {
  constexpr std::array<std::string_view, kEngineClasses> kNames = {"prefill_step",
                                                                   "decode_step",
                                                                   "accept_none",
                                                                   "accept_some",
                                                                   "accept_all",
                                                                   "batch_of_one",
                                                                   "batch_of_two",
                                                                   "batch_of_three",
                                                                   "longest_first",
                                                                   "longest_last",
                                                                   "cut_inside_batch",
                                                                   "batch_on_one_pool",
                                                                   "batch_of_kinds",
                                                                   "overflow_refused",
                                                                   "repeated_refused",
                                                                   "exhausted",
                                                                   "cancelled",
                                                                   "after_failure",
                                                                   "rollback_over_block",
                                                                   "rollback_over_window",
                                                                   "rollback_refused",
                                                                   "fork_inside_block",
                                                                   "forks_diverge",
                                                                   "end_beside_fork",
                                                                   "cleared_reused",
                                                                   "restored",
                                                                   "direct",
                                                                   "legacy",
                                                                   "refused",
                                                                   "adapted",
                                                                   "adapters_switched",
                                                                   "batch_of_adapters",
                                                                   "shifted",
                                                                   "shift_refused",
                                                                   "shifted_twice",
                                                                   "shift_beside_fork",
                                                                   "step_after_shift",
                                                                   "threads_1",
                                                                   "threads_2",
                                                                   "threads_3",
                                                                   "threads_7",
                                                                   "on_device",
                                                                   "part_on_device",
                                                                   "graph_step"};
  return kNames.at(static_cast<size_t>(engine_class));
}

EngineCounts& EngineCounts::operator+=(const EngineCounts& other) {
  operations += other.operations;
  steps += other.steps;
  tokens += other.tokens;
  granted += other.granted;
  refused += other.refused;
  updated += other.updated;
  rows_compared += other.rows_compared;
  for (size_t i = 0; i < kEngineClasses; ++i) classes[i] += other.classes[i];
  return *this;
}

}  // namespace lockstep
