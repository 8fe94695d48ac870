// Runs an engine script on the engine and on the plain reference (engine_reference.h) side by side.
// After every operation, of every sequence that is alive: the logits of its step, every layer's
// length, rows, raw stored bytes, the write path that each layer took, and the blocks in use. A
// step that fails, for whatever reason, has to leave everything as it was.
#ifndef LOCKSTEP_PROPERTIES_ENGINE_SCRIPT_RUNNER_H_
#define LOCKSTEP_PROPERTIES_ENGINE_SCRIPT_RUNNER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "caches/digest.h"
#include "caches/registry.h"
#include "properties/engine_driver.h"
#include "properties/engine_script.h"
#include "properties/script_runner.h"

namespace lockstep {

// A fault found in a subject: plain data.
struct EngineFinding {
  int32_t op = 0;           // index of the operation after which it showed
  std::string clause = {};  // of caches/CONTRACT.md, the likeliest: "F3"
  int32_t sequence = -1;    // -1: none in particular
  std::string what = {};    // one sentence: layer, place, both values where there are any
};

// What has to have happened before a campaign has tested anything.
enum class EngineClass : uint8_t {
  kPrefillStep,
  kDecodeStep,
  kAcceptNone,  // speculation
  kAcceptSome,
  kAcceptAll,
  kBatchOfOne,
  kBatchOfTwo,
  kBatchOfThree,
  kLongestFirst,  // of sequences of different numbers of tokens
  kLongestLast,
  kCutInsideBatch,      // more rows than an internal step has, of several sequences
  kBatchOnOnePool,      // two sequences of one pool of blocks
  kBatchOfKinds,        // caches of different kinds
  kOverflowRefused,     // a step past the end of the cache
  kRepeatedRefused,     // a step of the same sequence twice
  kExhausted,           // a step without a free block
  kCancelled,           // a step abandoned inside
  kAfterFailure,        // a step of a sequence whose last one failed
  kRollbackOverBlock,   // more than one block smaller
  kRollbackOverWindow,  // by more rows than the window has
  kRollbackRefused,     // to more than the length
  kForkInsideBlock,     // a fork whose last block is partly filled
  kForksDiverge,        // both write after such a fork
  kEndBesideFork,
  kClearedReused,  // a step after a clear
  kRestored,
  kDirect,  // a step of a sequence on this path
  kLegacy,
  kRefused,           // at one layer
  kAdapted,           // a step of a sequence with adapters
  kAdaptersSwitched,  // a step with other adapters than the last one of its sequence
  kBatchOfAdapters,   // sequences with different ones
  kShifted,           // rows moved
  kShiftRefused,      // no such positions
  kShiftedTwice,      // rows that had moved before
  kShiftBesideFork,   // of a sequence that may share blocks
  kStepAfterShift,
  kThreads1,
  kThreads2,
  kThreads3,
  kThreads7,
  kOnDevice,      // a step with all its layers on a device
  kPartOnDevice,  // the first ones
  kGraphStep,     // an operation in which a recorded graph was replayed
};
inline constexpr size_t kEngineClasses = 44;

std::string_view EngineClassName(EngineClass engine_class);  // "prefill_step", ...

struct EngineCounts {
  int64_t operations = 0;
  int64_t steps = 0;    // of the engine that did not fail
  int64_t tokens = 0;   // written in them
  int64_t granted = 0;  // slots, summed over layers
  int64_t refused = 0;
  int64_t updated = 0;
  int64_t rows_compared = 0;  // of all layers
  std::array<int64_t, kEngineClasses> classes = {};

  int64_t& operator[](EngineClass c) { return classes[static_cast<size_t>(c)]; }
  EngineCounts& operator+=(const EngineCounts& other);
};

struct EngineRun {
  std::optional<EngineFinding> finding;
  EngineCounts counts;
  // Over the logits of every step and the rows after every operation, in order. Kernel table,
  // device, threads, internal steps and paths change no bit of it.
  Digest digest;
};

// What is run, so that wrong ones and other engines' can be put in its place.
struct EngineSubject {
  // An empty cache of the kind; its forks are the sequences. Empty: the registry's, and the engine
  // runs on the script's device; with another maker it stays on the host.
  std::function<std::unique_ptr<KvCache>(const CacheSpec& spec, const KvGeometry& geometry,
                                         int32_t blocks)>
      make_cache = {};
  std::function<std::unique_ptr<EngineDriver>(Transformer&)> make_driver = {};  // empty: the right
  std::optional<CacheSpec> spec = {};  // of every cache, instead of what the script names
  bool forks = true;                   // else every sequence is made anew, and kFork does nothing
  bool saves = true;                   // else kSave does nothing
  bool compares_storage = true;        // without a window [X2]
};

// The registry's cache; `blocks` is EngineScript's.
std::unique_ptr<KvCache> MakeScriptCache(const CacheSpec& spec, const KvGeometry& geometry,
                                         int32_t blocks);
// With its rows, where it has such, on that device.
std::unique_ptr<KvCache> MakeScriptCacheOn(std::shared_ptr<Device> device, const CacheSpec& spec,
                                           const KvGeometry& geometry, int32_t blocks);

// Registered caches with a fault of oracle/faulty_cache.h. Throws Error for an unknown one.
EngineSubject PlantedEngine(const std::string& plant);

// A subject of cache scripts, such as a plug-in, under the engine.
EngineSubject EngineOn(const ScriptSubject& subject);

// Stops at the first finding. Throws Error for a script that no run can be made of.
// Models are kept between runs; not for several threads at once.
EngineRun RunEngineScript(const EngineScript& script, const EngineSubject& subject = {});

// What running a script finds, however it is run: here, or in a process of its own.
using EngineJudge = std::function<std::optional<EngineFinding>(const EngineScript&)>;

// The script with every operation left out that the finding does not need, then with fewer and
// shorter cuts, then with the plainest header. The clause of the finding stays the same.
// REQUIRES: the judge finds something (LS_CHECK).
EngineScript ShrinkEngineScript(const EngineScript& script, const EngineJudge& judge);
EngineScript ShrinkEngineScript(const EngineScript& script, const EngineSubject& subject = {});

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_ENGINE_SCRIPT_RUNNER_H_
