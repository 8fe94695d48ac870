// What the operations of a script have in common: calling both sides, and keeping the first
// finding.
#ifndef LOCKSTEP_PROPERTIES_RUNNER_STAGE_H_
#define LOCKSTEP_PROPERTIES_RUNNER_STAGE_H_

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "caches/plugin_cache.h"
#include "caches/registry.h"
#include "properties/runner/compare.h"
#include "properties/runner/probe.h"
#include "properties/script_clauses.h"

namespace lockstep::runner {

template <typename Call>
Outcome OutcomeOf(Call&& call) {
  try {
    return call();
  } catch (const PluginError&) {
    throw;  // no outcome of a cache's
  } catch (const PoolExhausted&) {
    return Outcome::kExhausted;
  } catch (const std::out_of_range&) {
    return Outcome::kOutOfRange;
  } catch (const std::invalid_argument&) {
    return Outcome::kInvalid;
  } catch (const std::logic_error&) {
    return Outcome::kLogic;
  } catch (const std::bad_alloc&) {
    return Outcome::kNoMemory;
  } catch (const std::exception&) {
    return Outcome::kOther;
  }
}

// Calls come twice, once for each side.
inline constexpr size_t kSubject = 0, kModel = 1;

class Stage {
 public:
  // A null probe looks at nothing. All must outlive the stage.
  Stage(const CacheScript& script, const ScriptSubject& subject, Probe* probe);

 protected:
  Sequence& current() { return sequences_[current_]; }
  bool HasLayer(int32_t layer) const { return layer >= 0 && layer < geometry_.num_layers; }
  // Which of two sequences gets the last block is not the model's to say.
  bool one_sequence() const { return script_.blocks > 0; }
  ScriptOpKind kind() const { return script_.ops[static_cast<size_t>(op_)].kind; }

  // The first one counts.
  void Take(std::optional<ScriptFinding> finding);
  void Find(std::string_view clause, std::string what);
  void Compare();

  // Calls the subject. When allocations fail, each one of the call does so once; after each the
  // state has to be what it was, and the call without a failure counts [M2].
  template <typename Call>
  Outcome CallSubject(Call&& call) {
    if (probe_ == nullptr || !probe_->FailAllocation(-1)) return OutcomeOf(call);
    const auto blocks = BlockCountsOf(*current().subject);
    const std::optional<int64_t> last = probe_->GivesUpAt();
    for (int64_t n = last.value_or(0);; ++n) {
      probe_->FailAllocation(n);
      const Outcome outcome = OutcomeOf(call);
      probe_->FailAllocation(-1);
      if (outcome != Outcome::kNoMemory) {
        if (!last) CheckAllocations(outcome, n);
        return outcome;
      }
      CheckUnchanged(blocks, n);
      if (run_.finding || last) return outcome;
    }
  }

  // `call` gets a cache and its side, and must not allocate by itself.
  template <typename Call>
  Outcome Both(Sequence& s, Call&& call) {
    const Outcome subject = CallSubject([&] { return call(*s.subject, kSubject); });
    if (run_.finding) return outcome_ = Outcome::kOther;
    // Given up by the probe: no call at all. Without it, a subject that is out of memory is one.
    const bool given_up = probe_ != nullptr && probe_->GivesUpAt();
    if (given_up && subject == Outcome::kNoMemory) return outcome_ = subject;
    const Outcome model = OutcomeOf([&] { return call(*s.model, kModel); });
    return outcome_ = Judge(subject, model);
  }

  const CacheScript& script_;
  KvGeometry geometry_;
  const ScriptSubject& subject_;
  Probe* probe_;
  Comparer comparer_;
  std::vector<Sequence> sequences_;
  size_t current_ = 0;
  int32_t next_id_ = 1;
  int32_t op_ = 0;
  Outcome outcome_ = Outcome::kDone;
  WriteRule rule_;
  ScriptRun run_;

 private:
  Outcome Judge(Outcome subject, Outcome model);
  void CheckAllocations(Outcome outcome, int64_t allocations);
  void CheckUnchanged(const std::optional<BlockCounts>& blocks, int64_t allocation);
};

}  // namespace lockstep::runner

#endif  // LOCKSTEP_PROPERTIES_RUNNER_STAGE_H_
