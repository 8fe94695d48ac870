#include "reports/peer/gguf_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "caches/error.h"
#include "engine/kernels.h"

namespace lockstep::internal {
namespace {

constexpr std::string_view kEmbedding = "token_embd.weight";
constexpr std::string_view kHead = "output.weight";

template <typename To, typename From>
std::vector<To> Narrow(const std::string& key, const std::vector<From>& values) {
  std::vector<To> narrow;
  for (const From value : values) {
    const auto small = static_cast<To>(value);
    if (static_cast<From>(small) != value && value == value) {
      throw Error({key, "holds a value of more than 32 bits", "such a model cannot be copied"});
    }
    narrow.push_back(small);
  }
  return narrow;
}

struct ValueWriter {
  const std::string& key;
  GgufWriter& writer;

  void operator()(uint64_t value) const {
    writer.AddUint32(key, Narrow<uint32_t>(key, std::vector{value}).front());
  }
  void operator()(int64_t value) const {
    if (value < 0) {
      throw Error({key, "is negative", "such a model cannot be copied"});
    }
    (*this)(static_cast<uint64_t>(value));
  }
  void operator()(double value) const {
    writer.AddFloat32(key, Narrow<float>(key, std::vector{value}).front());
  }
  void operator()(bool value) const { writer.AddBool(key, value); }
  void operator()(const std::string& value) const { writer.AddString(key, value); }
  void operator()(const std::vector<uint64_t>& values) const {
    writer.AddInt32s(key, Narrow<int32_t>(key, values));
  }
  void operator()(const std::vector<int64_t>& values) const {
    writer.AddInt32s(key, Narrow<int32_t>(key, values));
  }
  void operator()(const std::vector<double>& values) const {
    writer.AddFloat32s(key, Narrow<float>(key, values));
  }
  void operator()(const std::vector<bool>&) const {
    throw Error({key, "is an array of truth values", "such a model cannot be copied"});
  }
  void operator()(const std::vector<std::string>& values) const { writer.AddStrings(key, values); }
};

// The tensor in F32.
TensorCopy Decoded(const TensorCopy& tensor) {
  TensorCopy decoded{tensor.name, GgmlType::kF32, tensor.shape, {}};
  if (tensor.data.empty()) return decoded;
  const size_t row_bytes = tensor.row_bytes(), rows = tensor.data.size() / row_bytes;
  std::vector<float> row(static_cast<size_t>(tensor.shape[0]));
  decoded.data.resize(rows * row.size() * sizeof(float));
  for (size_t r = 0; r < rows; ++r) {
    DecodeWeights(tensor.type, std::span(tensor.data).subspan(r * row_bytes, row_bytes), row);
    std::memcpy(decoded.data.data() + r * row.size() * sizeof(float), row.data(),
                row.size() * sizeof(float));
  }
  return decoded;
}

}  // namespace

size_t TensorCopy::row_bytes() const {
  const GgmlTypeTraits traits = *TraitsOf(type);
  return static_cast<size_t>(shape[0] / traits.block_elements * traits.block_bytes);
}

GgufCopy::GgufCopy(const GgufFile& file) : metadata(file.metadata()) {
  metadata.erase("general.alignment");
  for (const GgufTensor& tensor : file.tensors()) {
    if (!TraitsOf(tensor.type)) {
      throw Error({fmt::format("{}: tensor '{}'", file.path(), tensor.name),
                   "is of a type that lockstep does not compute with", ""});
    }
    // A file may have more bytes behind a tensor than belong to it.
    TensorCopy copy{tensor.name, tensor.type, tensor.shape, {}};
    const auto rows = static_cast<size_t>(tensor.elements() / tensor.shape[0]);
    const auto data = tensor.data.first(rows * copy.row_bytes());
    copy.data.assign(data.begin(), data.end());
    tensors.push_back(std::move(copy));
  }
}

TensorCopy* GgufCopy::FindTensor(std::string_view name) {
  const auto found = std::ranges::find(tensors, name, &TensorCopy::name);
  return found == tensors.end() ? nullptr : &*found;
}

std::vector<std::byte> GgufCopy::Image() const {
  GgufWriter writer;
  for (const auto& [key, value] : metadata) std::visit(ValueWriter{key, writer}, value);
  for (const TensorCopy& tensor : tensors) {
    writer.AddTensor(tensor.name, tensor.type, tensor.shape, tensor.data);
  }
  return writer.Finish();
}

std::vector<std::byte> F32Twin(const GgufFile& file, bool tied) {
  GgufCopy copy(file);
  const bool has_head = copy.FindTensor(kHead) != nullptr;
  std::vector<TensorCopy> head;
  for (TensorCopy& tensor : copy.tensors) {
    if (tensor.shape.size() < 2) continue;
    if (tensor.name != kEmbedding || (tied && !has_head)) {
      tensor = Decoded(tensor);
    } else if (!has_head) {
      head.push_back(Decoded(tensor));
      head.back().name = kHead;
    }
  }
  copy.tensors.insert(copy.tensors.end(), head.begin(), head.end());
  return copy.Image();
}

}  // namespace lockstep::internal
