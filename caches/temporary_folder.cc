#include "caches/temporary_folder.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <system_error>

#include "caches/error.h"

namespace lockstep {

TemporaryFolder::TemporaryFolder() {
  std::error_code failed;
  std::string name = (std::filesystem::temp_directory_path(failed) / "lockstep_XXXXXX").string();
  if (failed || mkdtemp(name.data()) == nullptr) {
    throw Error({"temporary folder", fmt::format("'{}' cannot be made", name),
                 "free some space, or set TMPDIR to a folder that can be written"});
  }
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep
