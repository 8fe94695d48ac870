#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "caches/error.h"
#include "properties/script.h"
#include "properties/script_fields.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

constexpr std::array<std::string_view, 5> kHeadFields = {"layers", "heads", "dim", "max", "blocks"};
constexpr std::array<std::string_view, 2> kWindowFields = {"window", "full_interval"};  // if not 0
constexpr std::array<std::string_view, 4> kOpFields = {"layer", "to", "extra_keys", "extra_values"};

class JsonReader {
 public:
  explicit JsonReader(std::string_view where) : where_(where) {}

  CacheScript Read(std::string_view text) const {
    const ordered_json json = ordered_json::parse(text, nullptr, false);
    if (!json.is_object()) Fail("the document", "is no JSON object");
    CacheScript script;
    for (const auto& [key, value] : json.items()) {
      if (key == "cache" && value.is_string()) {
        script.cache = value.get<std::string>();
      } else if (key == "ops" && value.is_array()) {
        for (const ordered_json& op : value) script.ops.push_back(ReadOp(op));
      } else if (int32_t* field = HeadField(&script, key)) {
        *field = Number(key, value);
      } else {
        Fail(key, "is unknown or of the wrong kind");
      }
    }
    return script;
  }

 private:
  [[noreturn]] void Fail(std::string_view key, const std::string& what) const {
    throw Error({fmt::format("{}: '{}'", where_, key), what,
                 "the fields are those of the text form, see properties/script.h"});
  }

  int32_t Number(std::string_view key, const ordered_json& value) const {
    if (!value.is_number_integer()) Fail(key, "is no integer");
    const auto number = value.get<int64_t>();
    if (number < INT32_MIN || number > INT32_MAX) Fail(key, "does not fit 32 bits");
    return static_cast<int32_t>(number);
  }

  ScriptOp ReadOp(const ordered_json& json) const {
    if (!json.is_object()) Fail("ops", "has an entry that is no object");
    ScriptOp op;
    bool named = false;
    for (const auto& [key, value] : json.items()) {
      if (key == "op" && value.is_string()) {
        const auto kind = ScriptOpOf(value.get<std::string>());
        if (!kind) Fail(key, "is unknown");
        op.kind = *kind;
        named = true;
      } else if (key == "at" && value.is_array()) {
        for (const ordered_json& p : value) op.positions.push_back(Number(key, p));
      } else if (key == "rows") {
        op.rows = static_cast<uint32_t>(Number(key, value));
      } else if (int32_t* field = OpField(&op, key)) {
        *field = Number(key, value);
      } else {
        Fail(key, "is unknown or of the wrong kind");
      }
    }
    if (!named) Fail("op", "is missing");
    return op;
  }

  std::string_view where_;
};

}  // namespace

std::string ScriptJson(const CacheScript& script) {
  CacheScript copy = script;
  ordered_json json = {{"cache", script.cache}};
  for (std::string_view key : kHeadFields) json[std::string(key)] = *HeadField(&copy, key);
  for (std::string_view key : kWindowFields) {
    if (const int32_t value = *HeadField(&copy, key); value != 0) json[std::string(key)] = value;
  }
  json["ops"] = ordered_json::array();
  for (ScriptOp op : script.ops) {
    ordered_json item = {{"op", ScriptOpName(op.kind)}};
    if (HasPositions(op.kind)) item["at"] = op.positions;
    if (op.rows != 0) item["rows"] = static_cast<int32_t>(op.rows);
    for (std::string_view key : kOpFields) {
      if (const int32_t value = *OpField(&op, key); value != 0) item[std::string(key)] = value;
    }
    json["ops"].push_back(std::move(item));
  }
  return json.dump(1);
}

CacheScript ParseScriptJson(std::string_view json, std::string_view where) {
  return JsonReader(where).Read(json);
}

}  // namespace lockstep
