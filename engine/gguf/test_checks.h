// What every test of hostile input asserts.
#ifndef LOCKSTEP_ENGINE_GGUF_TEST_CHECKS_H_
#define LOCKSTEP_ENGINE_GGUF_TEST_CHECKS_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/gguf.h"

namespace lockstep {

inline constexpr const char* kTestFile = "dir/test.gguf";

// Parses `image` under kTestFile. The file or the message of the Error; anything else thrown
// propagates. EXPECTs that what is allocated stays within kBytesPerFileByte times the image and a
// constant, that an accepted file keeps its promises (CheckPromises), and that an error begins with
// the file's name.
struct ParseResult {
  std::shared_ptr<const GgufFile> file;
  std::string error;  // empty when there is a file
};
inline constexpr size_t kBytesPerFileByte = 10;
inline constexpr size_t kBytesPerFile = 16384;
ParseResult Parse(const std::vector<std::byte>& image);

// EXPECTs what the header promises of every open file: tensors with sound shapes, of the size that
// their type needs, inside the file, apart from each other and found by name; and typed getters
// that give a value or throw Error for every key.
void CheckPromises(const GgufFile& file);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_GGUF_TEST_CHECKS_H_
