#include "engine/gguf/values.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "engine/gguf/format.h"

namespace lockstep {
namespace {

bool ReadBool(Cursor& cursor) {
  const uint8_t value = cursor.Read<uint8_t>("value");
  if (value > 1) {
    cursor.Fail("value", fmt::format("byte {} at byte {} is no bool, which is 0 or 1", value,
                                     cursor.offset() - 1));
  }
  return value == 1;
}

template <typename Wide, typename Stored>
std::vector<Wide> ReadNumbers(Cursor& cursor) {
  const uint64_t count = cursor.ReadCount(sizeof(Stored), "array length");
  std::vector<Wide> values(count);
  for (Wide& value : values) value = static_cast<Wide>(cursor.Read<Stored>("array"));
  return values;
}

GgufValue ReadBools(Cursor& cursor) {
  const uint64_t count = cursor.ReadCount(1, "array length");
  std::vector<bool> values(count);
  for (uint64_t i = 0; i < count; ++i) values[i] = ReadBool(cursor);
  return values;
}

GgufValue ReadStrings(Cursor& cursor) {
  const uint64_t count = cursor.ReadCount(sizeof(uint64_t), "array length");
  std::vector<std::string> values(count);
  for (std::string& value : values) value = cursor.ReadString("array element");
  return values;
}

GgufValue ReadArray(Cursor& cursor) {
  const uint32_t type = cursor.Read<uint32_t>("array element type");
  switch (static_cast<GgufValueType>(type)) {
    case GgufValueType::kUint8:
      return ReadNumbers<uint64_t, uint8_t>(cursor);
    case GgufValueType::kUint16:
      return ReadNumbers<uint64_t, uint16_t>(cursor);
    case GgufValueType::kUint32:
      return ReadNumbers<uint64_t, uint32_t>(cursor);
    case GgufValueType::kUint64:
      return ReadNumbers<uint64_t, uint64_t>(cursor);
    case GgufValueType::kInt8:
      return ReadNumbers<int64_t, int8_t>(cursor);
    case GgufValueType::kInt16:
      return ReadNumbers<int64_t, int16_t>(cursor);
    case GgufValueType::kInt32:
      return ReadNumbers<int64_t, int32_t>(cursor);
    case GgufValueType::kInt64:
      return ReadNumbers<int64_t, int64_t>(cursor);
    case GgufValueType::kFloat32:
      return ReadNumbers<double, float>(cursor);
    case GgufValueType::kFloat64:
      return ReadNumbers<double, double>(cursor);
    case GgufValueType::kBool:
      return ReadBools(cursor);
    case GgufValueType::kString:
      return ReadStrings(cursor);
    case GgufValueType::kArray:
      cursor.Fail("array element type", "arrays of arrays are not supported");
  }
  cursor.Fail("array element type", fmt::format("value type id {} is unknown", type));
}

}  // namespace

GgufValue ReadValue(Cursor& cursor) {
  const uint32_t type = cursor.Read<uint32_t>("value type");
  switch (static_cast<GgufValueType>(type)) {
    case GgufValueType::kUint8:
      return uint64_t{cursor.Read<uint8_t>("value")};
    case GgufValueType::kUint16:
      return uint64_t{cursor.Read<uint16_t>("value")};
    case GgufValueType::kUint32:
      return uint64_t{cursor.Read<uint32_t>("value")};
    case GgufValueType::kUint64:
      return cursor.Read<uint64_t>("value");
    case GgufValueType::kInt8:
      return int64_t{cursor.Read<int8_t>("value")};
    case GgufValueType::kInt16:
      return int64_t{cursor.Read<int16_t>("value")};
    case GgufValueType::kInt32:
      return int64_t{cursor.Read<int32_t>("value")};
    case GgufValueType::kInt64:
      return cursor.Read<int64_t>("value");
    case GgufValueType::kFloat32:
      return double{cursor.Read<float>("value")};
    case GgufValueType::kFloat64:
      return cursor.Read<double>("value");
    case GgufValueType::kBool:
      return ReadBool(cursor);
    case GgufValueType::kString:
      return std::string(cursor.ReadString("value"));
    case GgufValueType::kArray:
      return ReadArray(cursor);
  }
  cursor.Fail("value type", fmt::format("value type id {} is unknown", type));
}

}  // namespace lockstep
