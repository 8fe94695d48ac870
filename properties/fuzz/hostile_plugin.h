// A plug-in that is right everywhere but in one stated answer.
#ifndef LOCKSTEP_PROPERTIES_FUZZ_HOSTILE_PLUGIN_H_
#define LOCKSTEP_PROPERTIES_FUZZ_HOSTILE_PLUGIN_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "caches/plugin.h"

namespace lockstep::fuzz {

enum class LieKind : uint8_t {
  kNone,
  kLengthMinusOne,
  kLengthPlusOne,
  kLengthHuge,
  kLengthZero,
  kReadRowNothing,  // OK, and nothing copied
  kReadRowSwapped,  // keys for values
  kReadRowStatus,   // a status that has no meaning
  kUpdateNothing,   // OK, and nothing written
  kUpdateRefused,   // out of blocks, and written all the same
  kUpdateGreedy,    // OK for what has to be refused
  kReserveNull,     // OK, and no memory for the keys
  kReserveNullValues,
  kReserveAliased,  // one memory for keys and values
  kReserveGreedy,   // OK for what has to be refused
  kReserveNever,
  kReserveStatus,
  kCommitNothing,
  kCommitGreedy,
  kCommitStatus,
  kRollbackNothing,
  kRollbackGreedy,
  kClearNothing,
  kForkNull,
  kForkItself,  // the same cache again
  kCreateNull,
  kHidesSlots,  // declares that it grants none
  // Tables that no plug-in may have.
  kOtherVersion,
  kNoName,
  kNoFunction,
  kNegativeBlock,
  kNoMultiple,
  kHugeMultiple,
};
inline constexpr size_t kLieKinds = 33;

std::string_view LieName(LieKind kind);

// Whether the table itself is the lie, which loading it has to refuse.
bool IsLieOfTable(LieKind kind);

// The table of a plug-in that tells this lie from its n-th such answer on; and whether it told one
// that the harness can see. One at a time: a table has no room for a context.
class HostilePlugin {
 public:
  HostilePlugin(LieKind kind, int32_t after);
  ~HostilePlugin();
  HostilePlugin(const HostilePlugin&) = delete;
  HostilePlugin& operator=(const HostilePlugin&) = delete;

  const lockstep_kv_plugin& table() const { return table_; }

  // A lie was told that shows in what the contract lets a caller see at once. Lies about rows do
  // not count: the content of some rows is unspecified.
  bool told() const;

 private:
  lockstep_kv_plugin table_;
};

}  // namespace lockstep::fuzz

#endif  // LOCKSTEP_PROPERTIES_FUZZ_HOSTILE_PLUGIN_H_
