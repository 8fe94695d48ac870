// Engine scripts: what is done to a small model and its caches, as plain data. Prefills in any
// cuts, greedy and given tokens, speculation, rollbacks, forks, batches, steps that fail on
// purpose: everything that must not change a bit, in any order.
//
// Up to kEngineSequences sequences are alive at a time. One that an operation names and that is not
// alive comes to life, empty, so that every list of operations is a legal script.
//
// Two forms, both complete:
//   text   one operation a line, see ParseEngineScript; what failures print and `lockstep replay`
//          takes (its first word, "engine", tells it from a cache script);
//   bytes  total: every byte string is a legal script, so that a fuzzer wastes no input.
#ifndef LOCKSTEP_PROPERTIES_ENGINE_SCRIPT_H_
#define LOCKSTEP_PROPERTIES_ENGINE_SCRIPT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class Chooser;  // properties/script_builder.h
class Device;

inline constexpr int32_t kEngineSequences = 4;

enum class EngineOpKind : uint8_t {
  kPrefill,    // one sequence; cuts: the tokens of each step; tokens
  kDecode,     // one sequence; count steps of one token; tokens, 0: greedy
  kSpeculate,  // one sequence; count drafts behind the pending token in one step, of which `accept`
               // are kept: the sequence grows by accept + 1
  kBatch,      // sequences in this order in one step; cuts: the tokens of each; tokens
  kCancel,     // the same, abandoned: an exception at point `count` of the step (a stage of the
               // trace, or before or after a call that writes), if it has so many
  kRollback,   // to length `count`; above its length that has to be refused
  kFork,       // one sequence into the place of sequence `count`, which ends
  kEnd,        // one sequence ends
  kClear,      // one sequence
  kSave,       // one sequence into memory
  kRestore,    // the last save into a sequence on the same cache; nothing when there is none
  kPath,       // how one sequence writes from now on: `count` is 0 direct, 1 legacy, 2 + L direct
               // but refused at layer L, modulo their number
  kAdapt,      // what LoRA adds to the rows of one sequence from now on: set `count` of
               // MakeAdapterSets
  kShift,      // one sequence loses positions [accept, count); where it has them not all, or there
               // are none, that has to be refused
};
inline constexpr size_t kEngineOpKinds = 14;
inline constexpr int32_t kAdapterSets = 4;

std::string_view EngineOpName(EngineOpKind kind);  // "prefill", ...

struct EngineOp {
  EngineOpKind kind = EngineOpKind::kPrefill;
  std::vector<int32_t> sequences = {0};  // in [0, kEngineSequences)
  std::vector<int32_t> cuts = {};        // each at least 1
  int32_t count = 0;
  int32_t accept = 0;
  int32_t tokens = 0;  // seed of the tokens, not negative

  friend bool operator==(const EngineOp&, const EngineOp&) = default;
};

struct EngineScript {
  std::string model;                // a preset of engine/synthetic.h
  int32_t seed = 1;                 // of its weights
  std::vector<std::string> caches;  // names of caches/registry.h: sequence s is on s % their number
  std::string isa = "scalar";       // a table of engine/kernels.h
  int32_t max_length = 0;           // positions of a sequence
  int32_t step = 512;               // tokens of an internal step, over all sequences
  int32_t threads = 1;
  int32_t blocks = 0;  // paged: blocks of the pool of all sequences; 0: enough
  // Where the engine runs what it can of caches with rows there: "host-executor", with a seed of
  // its orders "host-executor/7", "cuda"; empty: the host alone.
  std::string device = {};
  std::vector<EngineOp> ops;

  friend bool operator==(const EngineScript&, const EngineScript&) = default;
};

// Text. The first line is "engine MODEL seed=S cache=NAME[,NAME] isa=I max=M step=T threads=N
// blocks=B device=D"; then one operation a line:
//   prefill seq=0 cuts=3,1,4 tokens=7    decode seq=0 n=2 tokens=9     speculate seq=1 n=4 accept=2
//   batch seq=2,0,1 cuts=5,1,3 tokens=5  cancel seq=0,1 cuts=2,1 at=17  rollback seq=0 to=6
//   fork seq=0 to=2                      end|clear|save|restore seq=1   path seq=0 to=legacy
//   adapt seq=1 to=3                     shift seq=0 from=2 to=5
// (a path is direct, legacy, or refuse0, refuse1, ... by layer). seq=0, n=0, accept=0, from=0,
// to=0 and tokens=0 may be left out, and so may blocks=0 and device. '#' begins a comment.
// ParseEngineScript(EngineScriptText(s)) == s.
std::string EngineScriptText(const EngineScript& script);
std::string EngineOpText(const EngineOp& op);

// Throws Error with `where` and the line for anything else, and for what no run can be made of: an
// unknown model, cache, kernel table or device, a device that this machine lacks, a cache that does
// not suit the model's heads, numbers outside [1, 512] (max), [1, 4096] (step), [1, 64] (threads),
// [0, 4096] (blocks).
EngineScript ParseEngineScript(std::string_view text, std::string_view where);

// The device that the script names, with as many threads as its engine; null where it names none.
// Error as above.
std::shared_ptr<Device> MakeScriptDevice(const EngineScript& script);

// Operations alone, one a line; `first_line` is the number of the text's first line in `where`.
std::vector<EngineOp> ParseEngineOps(std::string_view text, std::string_view where,
                                     int32_t first_line = 1);

// Whether the text is an engine script, by its first word that is no comment.
bool IsEngineScript(std::string_view text);

// What generated scripts are limited to. Empty: anything.
struct EngineScriptLimits {
  std::vector<std::string> caches = {};  // one of these
  std::string isa = {};
  bool devices = true;  // else the engine runs on the host
};

// Header, weights of the operations (swarm testing: some are left out), then operations until the
// source of choices is exhausted. Every script that these give can be run on this machine.
EngineScript BuildEngineScript(Chooser& choose, const EngineScriptLimits& limits = {});
EngineScript GenerateEngineScript(uint64_t seed, int32_t operations,
                                  const EngineScriptLimits& limits = {});
EngineScript DecodeEngineScript(std::span<const std::byte> bytes,
                                const EngineScriptLimits& limits = {});

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_ENGINE_SCRIPT_H_
