// Metadata values as they lie in a file.
#ifndef LOCKSTEP_ENGINE_GGUF_VALUES_H_
#define LOCKSTEP_ENGINE_GGUF_VALUES_H_

#include "engine/gguf.h"
#include "engine/gguf/cursor.h"

namespace lockstep {

// Reads a type and the value after it. Throws Error at the cursor's entry for an unknown type, an
// array of arrays, a bool that is neither 0 nor 1, or a value that the file does not hold.
GgufValue ReadValue(Cursor& cursor);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_GGUF_VALUES_H_
