#include "engine/gguf/raw_image.h"

namespace lockstep::raw {
namespace {

class Builder {
 public:
  explicit Builder(std::vector<Field>* fields) : fields_(fields) {}

  void AddBytes(std::string_view bytes) { image_ += bytes; }

  template <typename T>
  void AddField(T value) {
    if (fields_ != nullptr) fields_->push_back({image_.size(), sizeof(T)});
    image_ += Number(value);
  }

  // A metadata entry; its key's length and its value's type are fields when it is long enough.
  void AddEntry(std::string_view entry) {
    const size_t start = image_.size();
    image_ += entry;
    if (fields_ == nullptr || entry.size() < 12) return;
    fields_->push_back({start, 8});
    uint64_t key_bytes = 0;
    std::memcpy(&key_bytes, entry.data(), sizeof(key_bytes));
    if (key_bytes > entry.size() - 12) return;
    const size_t value = start + 8 + key_bytes + 4;
    fields_->push_back({value - 4, 4});
    // An array's element type and count, or a string's length.
    if (image_.size() - value >= 12) fields_->push_back({value, 4});
    if (image_.size() - value >= 12) fields_->push_back({value + 4, 8});
    if (image_.size() - value >= 8) fields_->push_back({value, 8});
  }

  void PadTo(uint64_t alignment) {
    while (image_.size() % alignment != 0) image_ += '\0';
  }

  std::vector<std::byte> Finish() const {
    const std::byte* begin = reinterpret_cast<const std::byte*>(image_.data());
    return {begin, begin + image_.size()};
  }

 private:
  std::string image_;
  std::vector<Field>* fields_;
};

}  // namespace

std::vector<std::byte> Build(const Image& image, std::vector<Field>* fields) {
  Builder builder(fields);
  builder.AddBytes(image.magic);
  builder.AddField(image.version);
  builder.AddField(image.tensor_count.value_or(image.tensors.size()));
  builder.AddField(image.metadata_count.value_or(image.metadata.size()));
  for (const std::string& entry : image.metadata) builder.AddEntry(entry);
  for (const Tensor& tensor : image.tensors) {
    builder.AddField(uint64_t{tensor.name.size()});
    builder.AddBytes(tensor.name);
    builder.AddField(tensor.dimensions.value_or(static_cast<uint32_t>(tensor.shape.size())));
    for (uint64_t dimension : tensor.shape) builder.AddField(dimension);
    builder.AddField(tensor.type);
    builder.AddField(tensor.offset);
  }
  if (image.data_bytes > 0) {
    builder.PadTo(image.alignment);
    for (size_t i = 0; i < image.data_bytes; ++i) {
      builder.AddBytes(std::string(1, static_cast<char>(i)));
    }
  }
  return builder.Finish();
}

}  // namespace lockstep::raw
