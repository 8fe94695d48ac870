#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "caches/check.h"
#include "engine/gguf.h"
#include "engine/gguf/format.h"
#include "engine/gguf/types.h"

namespace lockstep {
namespace {

using Bytes = std::vector<std::byte>;

void AppendBytes(Bytes& out, const void* data, size_t size) {
  const size_t old_size = out.size();
  out.resize(old_size + size);
  if (size > 0) std::memcpy(out.data() + old_size, data, size);
}

template <typename T>
void Append(Bytes& out, T value) {
  static_assert(std::is_arithmetic_v<T>);
  AppendBytes(out, &value, sizeof(value));
}

void AppendText(Bytes& out, std::string_view text) {
  Append(out, uint64_t{text.size()});
  AppendBytes(out, text.data(), text.size());
}

void AppendType(Bytes& out, GgufValueType type) { Append(out, static_cast<uint32_t>(type)); }

void AppendArrayHead(Bytes& out, GgufValueType element, size_t count) {
  AppendType(out, GgufValueType::kArray);
  AppendType(out, element);
  Append(out, uint64_t{count});
}

uint64_t Padded(uint64_t size) {
  return (size + kGgufDefaultAlignment - 1) / kGgufDefaultAlignment * kGgufDefaultAlignment;
}

}  // namespace

void GgufWriter::BeginEntry(std::string_view key) {
  LS_CHECK(!finished_, "key '{}' is added after Finish", key);
  LS_CHECK(key.size() <= kGgufMaxNameBytes, "a key of {} bytes", key.size());
  LS_CHECK(key != kGgufAlignmentKey, "the writer's alignment is fixed");
  LS_CHECK(keys_.emplace(key).second, "key '{}' is added twice", key);
  AppendText(metadata_, key);
}

void GgufWriter::AddUint32(std::string_view key, uint32_t value) {
  BeginEntry(key);
  AppendType(metadata_, GgufValueType::kUint32);
  Append(metadata_, value);
}

void GgufWriter::AddFloat32(std::string_view key, float value) {
  BeginEntry(key);
  AppendType(metadata_, GgufValueType::kFloat32);
  Append(metadata_, value);
}

void GgufWriter::AddBool(std::string_view key, bool value) {
  BeginEntry(key);
  AppendType(metadata_, GgufValueType::kBool);
  Append(metadata_, uint8_t{value});
}

void GgufWriter::AddString(std::string_view key, std::string_view value) {
  BeginEntry(key);
  AppendType(metadata_, GgufValueType::kString);
  AppendText(metadata_, value);
}

void GgufWriter::AddStrings(std::string_view key, std::span<const std::string> values) {
  BeginEntry(key);
  AppendArrayHead(metadata_, GgufValueType::kString, values.size());
  for (const std::string& value : values) AppendText(metadata_, value);
}

void GgufWriter::AddInt32s(std::string_view key, std::span<const int32_t> values) {
  BeginEntry(key);
  AppendArrayHead(metadata_, GgufValueType::kInt32, values.size());
  AppendBytes(metadata_, values.data(), values.size_bytes());
}

void GgufWriter::AddFloat32s(std::string_view key, std::span<const float> values) {
  BeginEntry(key);
  AppendArrayHead(metadata_, GgufValueType::kFloat32, values.size());
  AppendBytes(metadata_, values.data(), values.size_bytes());
}

void GgufWriter::AddTensor(std::string_view name, GgmlType type, std::vector<int64_t> shape,
                           std::vector<std::byte> data) {
  LS_CHECK(!finished_, "tensor '{}' is added after Finish", name);
  LS_CHECK(name.size() <= kGgufMaxNameBytes, "a tensor name of {} bytes", name.size());
  LS_CHECK(tensor_names_.emplace(name).second, "tensor '{}' is added twice", name);
  const std::optional<GgmlTypeTraits> traits = TraitsOf(type);
  LS_CHECK(traits, "tensor '{}' has type id {}", name, static_cast<uint32_t>(type));
  LS_CHECK(!shape.empty() && shape.size() <= kGgmlMaxDimensions, "tensor '{}' has {} dimensions",
           name, shape.size());
  LS_CHECK(std::ranges::min(shape) > 0, "tensor '{}' has a dimension of {}", name,
           std::ranges::min(shape));
  const std::optional<int64_t> bytes = TensorBytes(*traits, shape);
  LS_CHECK(bytes, "tensor '{}' of type {} has rows of {} elements", name, traits->name, shape[0]);
  LS_CHECK(std::cmp_equal(*bytes, data.size()), "tensor '{}' of type {} needs {} bytes, not {}",
           name, traits->name, *bytes, data.size());
  tensors_.push_back({std::string(name), type, std::move(shape), std::move(data)});
}

std::vector<std::byte> GgufWriter::Finish() {
  LS_CHECK(!finished_, "Finish is called twice");
  finished_ = true;
  Bytes image;
  Append(image, kGgufMagic);
  Append(image, kGgufNewestVersion);
  Append(image, uint64_t{tensors_.size()});
  Append(image, uint64_t{keys_.size()});
  AppendBytes(image, metadata_.data(), metadata_.size());

  uint64_t data_bytes = 0;
  for (const Tensor& tensor : tensors_) {
    AppendText(image, tensor.name);
    Append(image, static_cast<uint32_t>(tensor.shape.size()));
    for (int64_t dimension : tensor.shape) Append(image, dimension);
    Append(image, static_cast<uint32_t>(tensor.type));
    Append(image, data_bytes);
    data_bytes += Padded(tensor.data.size());
  }
  const uint64_t data_start = tensors_.empty() ? image.size() : Padded(image.size());
  image.reserve(data_start + data_bytes);  // the only large allocation
  image.resize(data_start);
  for (Tensor& tensor : tensors_) {
    AppendBytes(image, tensor.data.data(), tensor.data.size());
    image.resize(image.size() + Padded(tensor.data.size()) - tensor.data.size());
    Bytes().swap(tensor.data);  // so that a large model is never held twice
  }
  return image;
}

}  // namespace lockstep
