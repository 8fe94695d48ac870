// Whole files, for the few places that write state which must not be lost.
#ifndef LOCKSTEP_CACHES_FILE_IO_H_
#define LOCKSTEP_CACHES_FILE_IO_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The bytes of a regular file. Error when it cannot be read.
std::vector<std::byte> ReadWholeFile(const std::string& path);

// The same as text.
std::string ReadWholeTextFile(const std::string& path);

// Writes the file all or nothing: beside it under a temporary name, flushed to the disk, then
// renamed over `path`. On an Error the old file is untouched and the temporary one is removed.
void WriteWholeFile(const std::string& path, std::span<const std::byte> bytes);
void WriteWholeTextFile(const std::string& path, std::string_view text);

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_FILE_IO_H_
