#include "engine/gguf/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <string_view>
#include <utility>

#include "engine/gguf/cursor.h"
#include "engine/gguf/format.h"
#include "engine/gguf/types.h"
#include "engine/gguf/values.h"

namespace lockstep {
namespace {

// Bounds of general.alignment: GGUF asks for a multiple of 8, ggml for a power of two, and beyond
// the largest page of any host (64 KiB) alignment serves nothing.
constexpr uint64_t kMinAlignment = 8;
constexpr uint64_t kMaxAlignment = 65536;

// The least that an entry can take in the file, to bound counts before anything is allocated.
constexpr uint64_t kMinMetadataEntryBytes = 8 + 4 + 1;        // key length, type, value
constexpr uint64_t kMinTensorEntryBytes = 8 + 4 + 8 + 4 + 8;  // ..., one dimension, type, offset

std::string_view ReadName(Cursor& cursor, std::string_view field) {
  const std::string_view name = cursor.ReadString(field);
  if (name.size() > kGgufMaxNameBytes) {
    cursor.Fail(field, fmt::format("{} bytes long, of at most {}", name.size(), kGgufMaxNameBytes));
  }
  return name;
}

// A file from a host of the other byte order has a sound magic and a version with its bytes turned.
uint32_t ReadVersion(Cursor& cursor) {
  const uint32_t magic = cursor.Read<uint32_t>("magic");
  const bool turned_magic = magic == __builtin_bswap32(kGgufMagic);
  if (magic != kGgufMagic && !turned_magic) {
    cursor.Fail("magic", "the file does not begin with 'GGUF'", "convert the model to GGUF");
  }
  const uint32_t version = cursor.Read<uint32_t>("version");
  if (turned_magic || (version != 0 && (version & 0xffff) == 0)) {
    cursor.Fail(turned_magic ? "magic" : "version",
                "the file is big-endian; only little-endian GGUF is supported",
                "convert the model again on a little-endian host");
  }
  if (version < kGgufOldestVersion || version > kGgufNewestVersion) {
    cursor.Fail("version",
                fmt::format("version {} is not supported, only {} to {}", version,
                            kGgufOldestVersion, kGgufNewestVersion),
                "convert the model again with a current converter");
  }
  return version;
}

void ReadMetadata(Cursor& cursor, uint64_t count, GgufContents& contents) {
  for (uint64_t i = 0; i < count; ++i) {
    cursor.EnterEntry("metadata entry", i);
    const std::string_view key = ReadName(cursor, "key");
    cursor.NameEntry("metadata key", key);
    if (contents.metadata.contains(key)) cursor.Fail("", "the key occurs twice");
    contents.metadata.emplace(key, ReadValue(cursor));
  }
  cursor.LeaveEntry();
}

uint64_t Alignment(Cursor& cursor, const GgufContents& contents) {
  const auto found = contents.metadata.find(kGgufAlignmentKey);
  if (found == contents.metadata.end()) return kGgufDefaultAlignment;
  cursor.NameEntry("metadata key", kGgufAlignmentKey);
  const uint64_t* value = std::get_if<uint64_t>(&found->second);
  if (value == nullptr) cursor.Fail("", "is no unsigned integer");
  if (!std::has_single_bit(*value) || *value < kMinAlignment || *value > kMaxAlignment) {
    cursor.Fail("", fmt::format("{} is no power of two from {} to {}", *value, kMinAlignment,
                                kMaxAlignment));
  }
  cursor.LeaveEntry();
  return *value;
}

std::vector<int64_t> ReadShape(Cursor& cursor) {
  const uint32_t dimensions = cursor.Read<uint32_t>("number of dimensions");
  if (dimensions < 1 || dimensions > kGgmlMaxDimensions) {
    cursor.Fail("number of dimensions",
                fmt::format("{} is not in the range 1 to {}", dimensions, kGgmlMaxDimensions));
  }
  std::vector<int64_t> shape(dimensions);
  int64_t elements = 1;
  for (uint32_t i = 0; i < dimensions; ++i) {
    const uint64_t dimension = cursor.Read<uint64_t>("shape");
    if (dimension == 0) cursor.Fail("shape", fmt::format("dimension {} is 0", i));
    if (__builtin_mul_overflow(elements, dimension, &elements)) {
      cursor.Fail("shape", fmt::format("dimension {} of {} makes more elements than 63 bits count",
                                       i, dimension));
    }
    shape[i] = static_cast<int64_t>(dimension);
  }
  return shape;
}

// A tensor's place in the data section. Bytes are unknown (0) for a type that is unknown.
struct Region {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

Region ReadTensor(Cursor& cursor, uint64_t alignment, GgufTensor& tensor) {
  tensor.shape = ReadShape(cursor);
  tensor.type = static_cast<GgmlType>(cursor.Read<uint32_t>("type"));
  Region region;
  region.offset = cursor.Read<uint64_t>("offset");
  if (region.offset % alignment != 0) {
    cursor.Fail("offset",
                fmt::format("{} is no multiple of the alignment {}", region.offset, alignment));
  }
  if (const auto traits = KnownTraitsOf(tensor.type)) {
    const std::optional<int64_t> bytes = TensorBytes(*traits, tensor.shape);
    if (!bytes && tensor.shape[0] % traits->block_elements != 0) {
      cursor.Fail("shape", fmt::format("rows of {} elements are no whole number of blocks, which "
                                       "hold {} in type {}",
                                       tensor.shape[0], traits->block_elements, traits->name));
    }
    if (!bytes) cursor.Fail("shape", "makes more bytes than 63 bits count");
    region.bytes = static_cast<uint64_t>(*bytes);
  }
  return region;
}

std::vector<Region> ReadTensors(Cursor& cursor, uint64_t count, uint64_t alignment,
                                GgufContents& contents) {
  std::vector<Region> regions;
  regions.reserve(count);
  contents.tensors.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    cursor.EnterEntry("tensor entry", i);
    const std::string_view name = ReadName(cursor, "name");
    cursor.NameEntry("tensor", name);
    if (!contents.tensor_index.emplace(name, i).second) cursor.Fail("", "the tensor occurs twice");
    GgufTensor& tensor = contents.tensors.emplace_back();
    tensor.name = name;
    regions.push_back(ReadTensor(cursor, alignment, tensor));
  }
  cursor.LeaveEntry();
  return regions;
}

// Gives every tensor its bytes: inside `data`, and no byte to two tensors. A tensor of unknown type
// takes at least one byte, and gets all up to the next tensor or the end.
void PlaceTensors(Cursor& cursor, std::span<const std::byte> data, std::vector<Region> regions,
                  std::vector<GgufTensor>& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(regions[a].offset, a) < std::pair(regions[b].offset, b);
  });
  for (size_t i = 0; i < order.size(); ++i) {
    Region& region = regions[order[i]];
    GgufTensor& tensor = tensors[order[i]];
    cursor.NameEntry("tensor", tensor.name);
    const uint64_t needed = std::max<uint64_t>(region.bytes, 1);
    if (region.offset > data.size() || needed > data.size() - region.offset) {
      cursor.Fail("offset",
                  fmt::format("needs {} bytes at {} of a data section of {} bytes", needed,
                              region.offset, data.size()),
                  "the file is truncated or damaged");
    }
    uint64_t end = data.size();
    if (i + 1 < order.size()) {
      const uint64_t next = regions[order[i + 1]].offset;
      if (next < region.offset + needed) {
        cursor.Fail("offset", fmt::format("its {} bytes at {} run into tensor {} at {}", needed,
                                          region.offset, Quote(tensors[order[i + 1]].name), next));
      }
      end = std::min(end, next);
    }
    if (region.bytes == 0) region.bytes = end - region.offset;
    tensor.data = data.subspan(region.offset, region.bytes);
  }
  cursor.LeaveEntry();
}

}  // namespace

GgufContents ParseGguf(std::span<const std::byte> bytes, const std::string& file) {
  Cursor cursor(bytes, file);
  GgufContents contents;
  contents.version = ReadVersion(cursor);
  const uint64_t tensor_count = cursor.ReadCount(kMinTensorEntryBytes, "tensor count");
  const uint64_t metadata_count = cursor.ReadCount(kMinMetadataEntryBytes, "metadata count");
  ReadMetadata(cursor, metadata_count, contents);
  const uint64_t alignment = Alignment(cursor, contents);
  if (tensor_count > cursor.remaining() / kMinTensorEntryBytes) {
    cursor.Fail("tensor count",
                fmt::format("{} entries of at least {} bytes each, but only {} "
                            "bytes follow the metadata",
                            tensor_count, kMinTensorEntryBytes, cursor.remaining()),
                "the file is truncated or damaged");
  }
  std::vector<Region> regions = ReadTensors(cursor, tensor_count, alignment, contents);

  // The data section starts at the next multiple of the alignment; without tensors it may lack.
  const uint64_t start = (cursor.offset() + alignment - 1) / alignment * alignment;
  const std::span<const std::byte> data =
      start <= bytes.size() ? bytes.subspan(start) : std::span<const std::byte>{};
  PlaceTensors(cursor, data, std::move(regions), contents.tensors);
  return contents;
}

}  // namespace lockstep
