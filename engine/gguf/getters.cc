// Typed access to metadata and tensors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "caches/error.h"
#include "engine/gguf.h"
#include "engine/gguf/cursor.h"
#include "engine/gguf/types.h"

namespace lockstep {
namespace {

using Metadata = std::map<std::string, GgufValue, std::less<>>;

// In the order of GgufValue's alternatives.
constexpr std::array<std::string_view, std::variant_size_v<GgufValue>> kKinds = {
    "an unsigned integer",
    "a signed integer",
    "a float",
    "a bool",
    "a string",
    "an array of unsigned integers",
    "an array of signed integers",
    "an array of floats",
    "an array of bools",
    "an array of strings",
};

[[noreturn]] void FailKey(const std::string& path, std::string_view key, std::string what) {
  throw Error({fmt::format("{}: metadata key {}", path, Quote(key)), std::move(what), ""});
}

[[noreturn]] void FailKind(const std::string& path, std::string_view key, const GgufValue& value,
                           std::string_view wanted) {
  FailKey(path, key, fmt::format("is {}, not {}", kKinds.at(value.index()), wanted));
}

const GgufValue* Find(const Metadata& metadata, std::string_view key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? nullptr : &found->second;
}

// nullptr only when the key is absent.
template <typename T>
const T* FindAs(const GgufFile& file, std::string_view key, std::string_view wanted) {
  const GgufValue* value = Find(file.metadata(), key);
  if (value == nullptr) return nullptr;
  const T* typed = std::get_if<T>(value);
  if (typed == nullptr) FailKind(file.path(), key, *value, wanted);
  return typed;
}

template <typename T>
std::optional<T> CopyAs(const GgufFile& file, std::string_view key, std::string_view wanted) {
  const T* found = FindAs<T>(file, key, wanted);
  return found == nullptr ? std::nullopt : std::optional<T>(*found);
}

template <typename T>
T Require(const GgufFile& file, std::string_view key, std::optional<T> found) {
  if (!found) FailKey(file.path(), key, "is missing");
  return *std::move(found);
}

}  // namespace

std::optional<int64_t> GgufFile::FindInt(std::string_view key, int64_t low, int64_t high) const {
  const GgufValue* value = Find(metadata_, key);
  if (value == nullptr) return std::nullopt;
  const auto fail = [&](auto shown) {
    FailKey(path_, key, fmt::format("{} is not in the range {} to {}", shown, low, high));
  };
  if (const int64_t* integer = std::get_if<int64_t>(value)) {
    if (*integer < low || *integer > high) fail(*integer);
    return *integer;
  }
  if (const uint64_t* integer = std::get_if<uint64_t>(value)) {
    if (std::cmp_less(*integer, low) || std::cmp_greater(*integer, high)) fail(*integer);
    return static_cast<int64_t>(*integer);
  }
  FailKind(path_, key, *value, "an integer");
}

int64_t GgufFile::RequireInt(std::string_view key, int64_t low, int64_t high) const {
  return Require(*this, key, FindInt(key, low, high));
}

std::optional<double> GgufFile::FindFloat(std::string_view key) const {
  const std::optional<double> value = CopyAs<double>(*this, key, "a float");
  if (value && !std::isfinite(*value)) FailKey(path_, key, fmt::format("{} is not finite", *value));
  return value;
}

double GgufFile::RequireFloat(std::string_view key) const {
  return Require(*this, key, FindFloat(key));
}

std::optional<bool> GgufFile::FindBool(std::string_view key) const {
  return CopyAs<bool>(*this, key, "a bool");
}

std::optional<std::string> GgufFile::FindString(std::string_view key) const {
  return CopyAs<std::string>(*this, key, "a string");
}

const std::string& GgufFile::RequireString(std::string_view key) const {
  const std::string* value = FindAs<std::string>(*this, key, "a string");
  if (value == nullptr) FailKey(path_, key, "is missing");
  return *value;
}

std::optional<std::vector<std::string>> GgufFile::FindStrings(std::string_view key) const {
  return CopyAs<std::vector<std::string>>(*this, key, "an array of strings");
}

const std::vector<std::string>& GgufFile::RequireStrings(std::string_view key) const {
  const auto* value = FindAs<std::vector<std::string>>(*this, key, "an array of strings");
  if (value == nullptr) FailKey(path_, key, "is missing");
  return *value;
}

std::optional<std::vector<double>> GgufFile::FindFloats(std::string_view key) const {
  auto values = CopyAs<std::vector<double>>(*this, key, "an array of floats");
  for (size_t i = 0; values && i < values->size(); ++i) {
    if (std::isnan((*values)[i])) FailKey(path_, key, fmt::format("element {} is no number", i));
  }
  return values;
}

std::optional<std::vector<int64_t>> GgufFile::FindInts(std::string_view key) const {
  const GgufValue* value = Find(metadata_, key);
  if (value == nullptr) return std::nullopt;
  if (const auto* integers = std::get_if<std::vector<int64_t>>(value)) return *integers;
  const auto* integers = std::get_if<std::vector<uint64_t>>(value);
  if (integers == nullptr) FailKind(path_, key, *value, "an array of integers");
  std::vector<int64_t> narrowed(integers->size());
  for (size_t i = 0; i < narrowed.size(); ++i) {
    if (std::cmp_greater((*integers)[i], std::numeric_limits<int64_t>::max())) {
      FailKey(path_, key,
              fmt::format("element {} is {}, more than 63 bits hold", i, (*integers)[i]));
    }
    narrowed[i] = static_cast<int64_t>((*integers)[i]);
  }
  return narrowed;
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

const GgufTensor& GgufFile::RequireTensor(std::string_view name,
                                          std::span<const int64_t> shape) const {
  const std::string where = fmt::format("{}: tensor {}", path_, Quote(name));
  const GgufTensor* tensor = FindTensor(name);
  if (tensor == nullptr) throw Error({where, "is missing", ""});
  if (!TraitsOf(tensor->type)) {
    throw Error({where, fmt::format("type {} is not supported", DescribeType(tensor->type)),
                 std::string(kSupportedTypesRemedy)});
  }
  if (!std::equal(shape.begin(), shape.end(), tensor->shape.begin(), tensor->shape.end())) {
    throw Error({where,
                 fmt::format("shape is [{}], not [{}]", fmt::join(tensor->shape, ", "),
                             fmt::join(shape, ", ")),
                 ""});
  }
  return *tensor;
}

}  // namespace lockstep
