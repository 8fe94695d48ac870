// What the text form and the JSON form of a script share: names of operations and of fields.
#ifndef LOCKSTEP_PROPERTIES_SCRIPT_FIELDS_H_
#define LOCKSTEP_PROPERTIES_SCRIPT_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "properties/script.h"

namespace lockstep {

// A list of positions longer than this is no script that a person or a generator wrote.
inline constexpr int64_t kMaxScriptPositions = 1 << 20;

std::optional<ScriptOpKind> ScriptOpOf(std::string_view name);
bool HasPositions(ScriptOpKind kind);

// The integer field of that name, or nullptr: layers, heads, dim, max, window, full_interval,
// blocks.
int32_t* HeadField(CacheScript* script, std::string_view key);
// The same of an operation: layer, to, extra_keys, extra_values.
int32_t* OpField(ScriptOp* op, std::string_view key);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_SCRIPT_FIELDS_H_
