#include "properties/fuzz/gguf_pieces.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "caches/check.h"

namespace lockstep::fuzz {
namespace {

constexpr uint64_t kAlignment = 32;
constexpr uint32_t kString = 8;
constexpr uint32_t kArray = 9;
// By the format's value types 0 to 12; strings and arrays have no size of their own.
constexpr std::array<size_t, 13> kValueBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// Elements of an array whose numbers are fields, at each end; the others only take room.
constexpr uint64_t kFieldsOfArray = 2;

class Taker {
 public:
  explicit Taker(std::span<const std::byte> image) : rest_(image), size_(image.size()) {}

  GgufPieces Take() {
    GgufPieces pieces;
    Begin();
    Number("magic", 4);
    Number("version", 4);
    const uint64_t tensors = Number("tensor count", 8);
    const uint64_t entries = Number("metadata count", 8);
    pieces.header = End("header");
    for (uint64_t i = 0; i < entries; ++i) pieces.metadata.push_back(Entry());
    for (uint64_t i = 0; i < tensors; ++i) pieces.tensors.push_back(Tensor());
    const size_t padding = (kAlignment - (size_ - rest_.size()) % kAlignment) % kAlignment;
    LS_CHECK(padding <= rest_.size(), "no data after the tensor table");
    rest_ = rest_.subspan(padding);
    pieces.data.assign(rest_.begin(), rest_.end());
    return pieces;
  }

 private:
  void Begin() { piece_ = {}; }
  GgufPiece End(std::string name) {
    piece_.name = std::move(name);
    return std::move(piece_);
  }

  void Move(size_t bytes) {
    LS_CHECK(bytes <= rest_.size(), "{} bytes of {} left", bytes, rest_.size());
    piece_.bytes.insert(piece_.bytes.end(), rest_.begin(),
                        rest_.begin() + static_cast<std::ptrdiff_t>(bytes));
    rest_ = rest_.subspan(bytes);
  }

  uint64_t Number(std::string name, size_t bytes, bool is_field = true) {
    if (is_field) piece_.fields.push_back({std::move(name), piece_.bytes.size(), bytes});
    Move(bytes);
    uint64_t value = 0;
    std::memcpy(&value, piece_.bytes.data() + piece_.bytes.size() - bytes, bytes);
    return value;
  }

  std::string Text(const std::string& name, bool is_field = true) {
    const size_t length = Number(name + " length", 8, is_field);
    Move(length);
    return {reinterpret_cast<const char*>(piece_.bytes.data()) + piece_.bytes.size() - length,
            length};
  }

  void Value(uint32_t type, const std::string& name, bool is_field) {
    LS_CHECK(type < kValueBytes.size(), "value type {}", type);
    if (type == kString) {
      Text(name, is_field);
    } else {
      Number(name, kValueBytes[type], is_field);
    }
  }

  GgufPiece Entry() {
    Begin();
    const std::string key = Text("key");
    const auto type = static_cast<uint32_t>(Number("type", 4));
    if (type != kArray) {
      Value(type, "value", true);
      return End(key);
    }
    const auto element = static_cast<uint32_t>(Number("element type", 4));
    const uint64_t length = Number("array length", 8);
    for (uint64_t i = 0; i < length; ++i) {
      const bool near_end = i < kFieldsOfArray || i + kFieldsOfArray >= length;
      Value(element, fmt::format("element {}", i), near_end);
    }
    return End(key);
  }

  GgufPiece Tensor() {
    Begin();
    const std::string name = Text("name");
    const uint64_t dimensions = Number("dimensions", 4);
    for (uint64_t i = 0; i < dimensions; ++i) Number(fmt::format("dimension {}", i), 8);
    Number("type", 4);
    Number("offset", 8);
    return End(name);
  }

  std::span<const std::byte> rest_;
  size_t size_;
  GgufPiece piece_;
};

void SetField(GgufPiece* piece, size_t field, uint64_t value) {
  const GgufField& f = piece->fields.at(field);
  std::memcpy(piece->bytes.data() + f.offset, &value, f.bytes);
}

}  // namespace

GgufPiece& GgufPieces::at(size_t i) {
  return const_cast<GgufPiece&>(static_cast<const GgufPieces&>(*this).at(i));
}

const GgufPiece& GgufPieces::at(size_t i) const {
  if (i == 0) return header;
  return i <= metadata.size() ? metadata.at(i - 1) : tensors.at(i - 1 - metadata.size());
}

GgufPieces TakeApart(std::span<const std::byte> image) { return Taker(image).Take(); }

std::vector<std::byte> Assemble(const GgufPieces& pieces) {
  GgufPiece header = pieces.header;
  if (!pieces.counts_changed) {
    SetField(&header, 2, pieces.tensors.size());
    SetField(&header, 3, pieces.metadata.size());
  }
  std::vector<std::byte> image = header.bytes;
  for (size_t i = 1; i < pieces.size(); ++i) {
    const std::vector<std::byte>& bytes = pieces.at(i).bytes;
    image.insert(image.end(), bytes.begin(), bytes.end());
  }
  image.resize((image.size() + kAlignment - 1) / kAlignment * kAlignment);
  image.insert(image.end(), pieces.data.begin(), pieces.data.end());
  return image;
}

}  // namespace lockstep::fuzz
