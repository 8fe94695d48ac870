// GGUF model files, versions 2 and 3 (format: ggml/docs/gguf.md), read over a mapped file.
//
// Everything in a file is hostile until checked: every count, length, offset and type is bounded by
// the file's size before it is used, and nothing is allocated that the file's size does not bound.
// A violation throws lockstep::Error, whose `where` names the file and the field.
//
// Stricter than the format: no duplicate keys or tensors, no two tensors that share bytes, no
// nested arrays, no empty dimension, general.alignment a power of two from 8 to 65536. More lenient
// than ggml: tensors may lie in any order and with gaps, and padding may hold anything.
#ifndef LOCKSTEP_ENGINE_GGUF_H_
#define LOCKSTEP_ENGINE_GGUF_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep {

// Tensor element types, with ggml's ids. Types outside this list are kept as ids: they are an error
// only when the tensor is used.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kBF16 = 30,
};

// Whether elements are integers that share scales, in blocks. REQUIRES: a type of the list.
constexpr bool IsQuantized(GgmlType type) {
  return type != GgmlType::kF32 && type != GgmlType::kF16 && type != GgmlType::kBF16;
}

struct GgmlTypeTraits {
  std::string_view name;   // "f32", "q8_0"
  int64_t block_elements;  // 1 for float types, 32 or 256 for the block formats
  int64_t block_bytes;
};

// nullopt for a type that lockstep does not compute with.
std::optional<GgmlTypeTraits> TraitsOf(GgmlType type);

// Metadata value. Integers of every width are widened; arrays are homogeneous.
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string, std::vector<uint64_t>,
                               std::vector<int64_t>, std::vector<double>, std::vector<bool>,
                               std::vector<std::string>>;

struct GgufTensor {
  std::string name;
  GgmlType type = GgmlType::kF32;
  std::vector<int64_t> shape;       // 1 to 4 dimensions >= 1; shape[0] is the contiguous one
  std::span<const std::byte> data;  // points into the file; of an unknown type, all up to the next
                                    // tensor or the end

  int64_t elements() const;
};

class GgufFile {
 public:
  // Maps `path` read-only. Throws Error for anything that is not a complete GGUF file. The file
  // must keep its size while it is mapped: reading bytes that another process cut off is a SIGBUS.
  static std::shared_ptr<const GgufFile> Open(const std::string& path);

  // Parses an image in memory, which the file object keeps; `name` stands for the path in errors.
  static std::shared_ptr<const GgufFile> FromBytes(std::vector<std::byte> bytes, std::string name);

  ~GgufFile();
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }
  std::span<const std::byte> bytes() const { return bytes_; }

  // Metadata. The Require* forms throw Error naming the key when it is absent, of another kind or
  // out of the given range; Find* return nullopt only when the key is absent. Kinds are not
  // converted: integers of any width and sign are integers, but a bool or a float is not one, nor
  // an integer a float. Floats are finite; elements of FindFloats may be infinite but not NaN.
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  int64_t RequireInt(std::string_view key, int64_t low, int64_t high) const;
  double RequireFloat(std::string_view key) const;
  const std::string& RequireString(std::string_view key) const;
  const std::vector<std::string>& RequireStrings(std::string_view key) const;
  std::optional<int64_t> FindInt(std::string_view key, int64_t low, int64_t high) const;
  std::optional<double> FindFloat(std::string_view key) const;
  std::optional<bool> FindBool(std::string_view key) const;
  std::optional<std::string> FindString(std::string_view key) const;
  std::optional<std::vector<std::string>> FindStrings(std::string_view key) const;
  std::optional<std::vector<double>> FindFloats(std::string_view key) const;
  std::optional<std::vector<int64_t>> FindInts(std::string_view key) const;

  // Tensors, in the file's order.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* FindTensor(std::string_view name) const;  // nullptr when absent
  // Throws Error when absent, of an unsupported type, or not of this shape.
  const GgufTensor& RequireTensor(std::string_view name, std::span<const int64_t> shape) const;

 private:
  GgufFile() = default;
  void Parse();

  std::string path_;
  uint32_t version_ = 0;
  std::vector<std::byte> owned_;
  std::span<const std::byte> bytes_;
  void* mapping_ = nullptr;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t, std::less<>> tensor_index_;
};

// Builds a GGUF version 3 image, for synthetic models. Keys and tensors keep the order of the
// calls. Misuse (a key or tensor added twice, a key or name over 65535 bytes, general.alignment) is
// an LS_CHECK.
class GgufWriter {
 public:
  void AddUint32(std::string_view key, uint32_t value);
  void AddFloat32(std::string_view key, float value);
  void AddBool(std::string_view key, bool value);
  void AddString(std::string_view key, std::string_view value);
  void AddStrings(std::string_view key, std::span<const std::string> values);
  void AddInt32s(std::string_view key, std::span<const int32_t> values);
  void AddFloat32s(std::string_view key, std::span<const float> values);

  // `data` is moved in. REQUIRES: a type with traits, 1 to 4 dimensions of at least 1, shape[0] a
  // multiple of the type's block, and data of the size that follows (all LS_CHECK).
  void AddTensor(std::string_view name, GgmlType type, std::vector<int64_t> shape,
                 std::vector<std::byte> data);

  // Alignment 32, each tensor padded to it. Finish may be called once, and nothing added after it.
  std::vector<std::byte> Finish();

 private:
  struct Tensor {
    std::string name;
    GgmlType type;
    std::vector<int64_t> shape;
    std::vector<std::byte> data;
  };

  void BeginEntry(std::string_view key);

  std::set<std::string, std::less<>> keys_;
  std::vector<std::byte> metadata_;
  std::set<std::string, std::less<>> tensor_names_;
  std::vector<Tensor> tensors_;
  bool finished_ = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_GGUF_H_
