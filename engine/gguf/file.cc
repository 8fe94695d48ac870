#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "caches/error.h"
#include "engine/gguf.h"
#include "engine/gguf/parser.h"

namespace lockstep {
namespace {

class FileDescriptor {
 public:
  // O_NONBLOCK: opening a pipe must fail at the check of its kind, not wait for a writer.
  explicit FileDescriptor(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void FailOnErrno(const std::string& path, std::string_view action) {
  throw Error({path, fmt::format("cannot {} the file: {}", action, std::strerror(errno)), ""});
}

}  // namespace

int64_t GgufTensor::elements() const {
  int64_t product = 1;
  for (int64_t dimension : shape) product *= dimension;
  return product;
}

std::shared_ptr<const GgufFile> GgufFile::Open(const std::string& path) {
  const FileDescriptor fd(path);
  if (fd.get() < 0) FailOnErrno(path, "open");
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) FailOnErrno(path, "stat");
  if (!S_ISREG(status.st_mode)) throw Error({path, "is not a regular file", ""});
  if (status.st_size == 0) throw Error({path, "the file is empty", ""});

  std::shared_ptr<GgufFile> file(new GgufFile());
  file->path_ = path;
  const size_t size = static_cast<size_t>(status.st_size);
  void* mapping = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (mapping == MAP_FAILED) FailOnErrno(path, "map");
  file->mapping_ = mapping;
  file->bytes_ = {static_cast<const std::byte*>(mapping), size};
  file->Parse();
  return file;
}

std::shared_ptr<const GgufFile> GgufFile::FromBytes(std::vector<std::byte> bytes,
                                                    std::string name) {
  std::shared_ptr<GgufFile> file(new GgufFile());
  file->path_ = std::move(name);
  file->owned_ = std::move(bytes);
  file->bytes_ = file->owned_;
  file->Parse();
  return file;
}

GgufFile::~GgufFile() {
  if (mapping_ != nullptr) ::munmap(mapping_, bytes_.size());
}

void GgufFile::Parse() {
  GgufContents contents = ParseGguf(bytes_, path_);
  version_ = contents.version;
  metadata_ = std::move(contents.metadata);
  tensors_ = std::move(contents.tensors);
  tensor_index_ = std::move(contents.tensor_index);
}

}  // namespace lockstep
