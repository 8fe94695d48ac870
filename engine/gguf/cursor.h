// A bounded little-endian reader over a file's bytes: every read is checked against what remains,
// and a failure says in which field of which entry of which file, and at which byte.
#ifndef LOCKSTEP_ENGINE_GGUF_CURSOR_H_
#define LOCKSTEP_ENGINE_GGUF_CURSOR_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace lockstep {

// `text` of a file in quotes for a message: bytes outside printable ASCII as \xNN, cut when long.
std::string Quote(std::string_view text);

class Cursor {
 public:
  // Views, valid as long as what they look at: `bytes` is the file, `file` its name in errors.
  Cursor(std::span<const std::byte> bytes, std::string_view file) : bytes_(bytes), file_(file) {}

  // What is being read, for errors: "metadata entry 3", then, once its name is known,
  // "metadata key 'llama.block_count'". Costs nothing until something fails.
  void EnterEntry(std::string_view kind, uint64_t index) {
    kind_ = kind, index_ = index, named_ = false;
  }
  void NameEntry(std::string_view kind, std::string_view name) {
    kind_ = kind, name_ = name, named_ = true;
  }
  void LeaveEntry() { kind_ = {}; }

  uint64_t offset() const { return offset_; }
  uint64_t remaining() const { return bytes_.size() - offset_; }

  template <typename T>
  T Read(std::string_view field) {
    static_assert(std::is_arithmetic_v<T>);
    T value;
    std::memcpy(&value, Take(sizeof(T), field).data(), sizeof(T));
    return value;
  }

  // The next `size` bytes. `size` may be any number.
  std::span<const std::byte> Take(uint64_t size, std::string_view field) {
    if (size > remaining()) FailShort(size, field);
    const std::span<const std::byte> taken = bytes_.subspan(offset_, size);
    offset_ += size;
    return taken;
  }

  // A 64-bit length and as many bytes; a view into the file.
  std::string_view ReadString(std::string_view field) {
    const std::span<const std::byte> text = Take(Read<uint64_t>(field), field);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }

  // A 64-bit count of items that take at least `item_bytes` each, so at most what remains holds.
  uint64_t ReadCount(uint64_t item_bytes, std::string_view field);

  // Throws Error at the current entry.
  [[noreturn]] void Fail(std::string_view field, std::string what, std::string remedy = "") const;

 private:
  [[noreturn]] void FailShort(uint64_t size, std::string_view field) const;

  std::span<const std::byte> bytes_;
  std::string_view file_;
  uint64_t offset_ = 0;
  std::string_view kind_;
  std::string_view name_;
  uint64_t index_ = 0;
  bool named_ = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_GGUF_CURSOR_H_
