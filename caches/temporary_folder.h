// A folder of its own for whoever makes one: programs and tests that run beside each other never
// meet in a file.
#ifndef LOCKSTEP_CACHES_TEMPORARY_FOLDER_H_
#define LOCKSTEP_CACHES_TEMPORARY_FOLDER_H_

#include <filesystem>
#include <string>

namespace lockstep {

// Below TMPDIR, empty when it is made, removed with all that is in it by the destructor. Throws
// Error when it cannot be made.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string File(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_TEMPORARY_FOLDER_H_
