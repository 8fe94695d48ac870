#include "engine/gguf/mutate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/gguf/types.h"

namespace lockstep::raw {
namespace {

constexpr uint32_t kValueTypes = 13;  // ids of GgufValueType are 0 to 12
constexpr std::array<size_t, kValueTypes> kValueBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

std::string RandomBytes(Random& random, size_t count) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.Below(256));
  return bytes;
}

// A value of any type but an array.
std::string RandomValue(Random& random, GgufValueType type) {
  if (type == GgufValueType::kString) return Text(RandomBytes(random, random.Below(12)));
  if (type == GgufValueType::kBool) return Number(static_cast<uint8_t>(random.Below(2)));
  return RandomBytes(random, kValueBytes.at(static_cast<uint32_t>(type)));
}

GgufValueType RandomScalarType(Random& random) {
  const auto type = static_cast<GgufValueType>(random.Below(kValueTypes));
  return type == GgufValueType::kArray ? GgufValueType::kString : type;
}

std::string RandomEntry(Random& random, uint32_t index) {
  const std::string key = fmt::format("key.{}", index);
  const GgufValueType type = RandomScalarType(random);
  if (random.Below(2) == 0) return Entry(key, type, RandomValue(random, type));
  const uint32_t count = random.Below(5);
  std::string elements;
  for (uint32_t i = 0; i < count; ++i) elements += RandomValue(random, type);
  return ArrayEntry(key, type, count, elements);
}

// Appends a tensor at `offset` and returns the bytes that it takes.
uint64_t AddRandomTensor(Random& random, uint64_t offset, Image& image) {
  constexpr std::array<uint32_t, 8> kTypes = {0, 1, 2, 8, 30, 14, 26, 9999};
  Tensor tensor;
  tensor.name = fmt::format("tensor.{}", image.tensors.size());
  tensor.type = kTypes.at(random.Below(kTypes.size()));
  tensor.offset = offset;
  const GgmlTypeTraits traits =
      KnownTraitsOf(static_cast<GgmlType>(tensor.type)).value_or(GgmlTypeTraits{"", 1, 3});
  uint64_t elements = static_cast<uint64_t>(traits.block_elements) * (1 + random.Below(3));
  tensor.shape = {elements};
  for (uint32_t i = random.Below(4); i > 0; --i) {
    tensor.shape.push_back(1 + random.Below(3));
    elements *= tensor.shape.back();
  }
  image.tensors.push_back(std::move(tensor));
  return elements / static_cast<uint64_t>(traits.block_elements) *
         static_cast<uint64_t>(traits.block_bytes);
}

// Numbers at which counts, sizes and products wrap or change sign, and small ones.
uint64_t Limit(Random& random) {
  constexpr std::array<int, 12> kPowers = {7, 8, 15, 16, 31, 32, 33, 48, 60, 61, 62, 63};
  const uint64_t power = uint64_t{1} << kPowers.at(random.Below(kPowers.size()));
  switch (random.Below(4)) {
    case 0:
      return random.Below(16);
    case 1:
      return power;
    case 2:
      return power - 1 - random.Below(8);
    default:
      return ~uint64_t{0} - random.Below(40);
  }
}

uint64_t Get(std::span<const std::byte> image, Field field) {
  uint64_t value = 0;
  std::memcpy(&value, image.data() + field.offset, field.bytes);
  return value;
}

void Set(std::span<std::byte> image, Field field, uint64_t value) {
  std::memcpy(image.data() + field.offset, &value, field.bytes);
}

void MutateField(std::span<std::byte> image, std::span<const Field> fields, Random& random) {
  const auto any = [&] { return fields[random.Below(static_cast<uint32_t>(fields.size()))]; };
  const Field field = any(), other = any();
  const uint64_t nudge = 1 + random.Below(8);
  const size_t reach = random.Below(32);  // past a name's length lies the name
  const auto outside = [&](Field f) { return f.offset + f.bytes + reach > image.size(); };
  if (outside(field) || outside(other)) return;
  switch (random.Below(5)) {
    case 0:
      return Set(image, field, Limit(random));
    case 1:
      return Set(image, field, Get(image, field) + nudge);
    case 2:
      return Set(image, field, Get(image, field) - nudge);
    case 3:
      return Set(image, field, Get(image, other));
    default:
      std::memmove(image.data() + field.offset, image.data() + other.offset, field.bytes + reach);
      return;
  }
}

// A piece of at most 64 bytes.
std::pair<size_t, size_t> RandomPiece(size_t size, Random& random) {
  const size_t begin = random.Below(static_cast<uint32_t>(size));
  return {begin, std::min(size, begin + 1 + random.Below(64))};
}

}  // namespace

Image RandomImage(Random& random) {
  Image image;
  const uint32_t alignment = 8u << random.Below(5);
  image.alignment = alignment;
  image.metadata = {Entry(kGgufAlignmentKey, GgufValueType::kUint32, Number(alignment))};
  for (uint32_t i = random.Below(6); i > 0; --i) image.metadata.push_back(RandomEntry(random, i));
  uint64_t end = 0;
  for (uint32_t i = random.Below(6); i > 0; --i) {
    const uint64_t offset = (end + alignment - 1) / alignment * alignment;
    end = offset + AddRandomTensor(random, offset, image);
  }
  image.data_bytes = end;
  return image;
}

void Mutate(std::vector<std::byte>& image, std::span<const Field> fields, Random& random) {
  const auto size = static_cast<uint32_t>(image.size());
  const auto at = [&](size_t offset) { return image.begin() + static_cast<ptrdiff_t>(offset); };
  const auto [begin, end] = RandomPiece(size, random);
  switch (random.Below(10)) {
    case 0:
      image[begin] ^= static_cast<std::byte>(1u << random.Below(8));
      return;
    case 1:
      image[begin] = static_cast<std::byte>(random.Below(256));
      return;
    case 2:
      image.erase(at(begin), at(end));
      break;
    case 3:
      image.resize(begin);
      break;
    case 4: {
      const std::vector<std::byte> piece(at(begin), at(end));
      image.insert(at(random.Below(size)), piece.begin(), piece.end());
      return;
    }
    default:
      MutateField(image, fields, random);
      return;
  }
  if (image.empty()) image.resize(1);
}

}  // namespace lockstep::raw
