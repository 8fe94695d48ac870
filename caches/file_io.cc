#include "caches/file_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "caches/error.h"

namespace lockstep {
namespace {

constexpr const char* kWriteRemedy = "give a name in a directory that exists and can be written";
constexpr const char* kReadRemedy = "give a file that exists and can be read";

[[noreturn]] void Fail(const std::string& path, std::string_view doing, const char* remedy) {
  throw Error({path, fmt::format("cannot {}: {}", doing, std::strerror(errno)), remedy});
}

// A file descriptor that is closed when it goes out of scope.
class File {
 public:
  File() = default;
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int fd() const { return fd_; }

  // Both false with errno set on failure. REQUIRES of Open: it is not open.
  bool Open(const std::string& path, int flags) {
    fd_ = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    return fd_ >= 0;
  }
  bool Close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_ = -1;
};

bool WriteAll(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

// Opens a file beside `path` under a name that nobody uses, and returns the name.
std::string CreateBeside(const std::string& path, File* file) {
  constexpr int kAttempts = 100;
  for (int i = 0; i < kAttempts; ++i) {
    std::string name = fmt::format("{}.{}.tmp", path, i);
    if (file->Open(name, O_WRONLY | O_CREAT | O_EXCL)) return name;
    if (errno != EEXIST) break;
  }
  Fail(path, "create a temporary file beside it", kWriteRemedy);
}

}  // namespace

std::vector<std::byte> ReadWholeFile(const std::string& path) {
  File file;
  struct stat info;
  // O_NONBLOCK: opening a named pipe must not wait for somebody to write to it.
  if (!file.Open(path, O_RDONLY | O_NONBLOCK)) Fail(path, "open it", kReadRemedy);
  if (::fstat(file.fd(), &info) != 0) Fail(path, "read its size", kReadRemedy);
  if (!S_ISREG(info.st_mode)) throw Error({path, "it is not a regular file", kReadRemedy});
  std::vector<std::byte> bytes(static_cast<size_t>(info.st_size));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::read(file.fd(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail(path, "read it", kReadRemedy);
    if (n == 0) break;  // somebody cut it meanwhile: what is left is what the file is
    done += static_cast<size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

void WriteWholeFile(const std::string& path, std::span<const std::byte> bytes) {
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    throw Error({path, "it exists and is not a regular file", "give another name"});
  }
  File file;
  const std::string temporary = CreateBeside(path, &file);
  if (WriteAll(file.fd(), bytes) && ::fsync(file.fd()) == 0 && file.Close() &&
      ::rename(temporary.c_str(), path.c_str()) == 0) {
    return;
  }
  const int error = errno;
  ::unlink(temporary.c_str());
  errno = error;
  Fail(path, "write it", kWriteRemedy);
}

std::string ReadWholeTextFile(const std::string& path) {
  const std::vector<std::byte> bytes = ReadWholeFile(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void WriteWholeTextFile(const std::string& path, std::string_view text) {
  WriteWholeFile(path, std::as_bytes(std::span(text)));
}

}  // namespace lockstep
