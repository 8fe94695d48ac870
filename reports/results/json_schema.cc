#include "reports/results/json_schema.h"

#include <fmt/format.h>

// A header-only library with warnings of its own.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wpedantic"
#include <rapidjson/document.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>
#include <rapidjson/schema.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>
#pragma GCC diagnostic pop

#include "caches/check.h"

namespace lockstep::internal {
namespace {

rapidjson::Document Parsed(std::string_view text) {
  rapidjson::Document document;
  document.Parse(text.data(), text.size());
  LS_CHECK(!document.HasParseError(), "no JSON: {}", text);
  return document;
}

std::string TextOf(const rapidjson::Value& value) {
  rapidjson::StringBuffer buffer;
  rapidjson::Writer<rapidjson::StringBuffer> writer(buffer);
  value.Accept(writer);
  return buffer.GetString();
}

// What the keyword asks for, in the schema's own words.
std::string Demand(const std::string& keyword, const rapidjson::Value& schema) {
  if (keyword == "additionalProperties") return "is not known";
  const auto member = schema.FindMember(keyword.c_str());
  LS_CHECK(member != schema.MemberEnd(), "the schema has no '{}'", keyword);
  const bool exclusive = keyword == "minimum" && schema.HasMember("exclusiveMinimum");
  return fmt::format("does not have the {} {}{}", keyword, TextOf(member->value),
                     exclusive ? ", exclusive" : "");
}

}  // namespace

std::optional<SchemaFinding> CheckSchema(std::string_view json, std::string_view schema_json) {
  const rapidjson::Document schema = Parsed(schema_json);
  const rapidjson::SchemaDocument compiled(schema);
  rapidjson::SchemaValidator validator(compiled);
  // As it is read, and without recursion: nothing is too deep.
  rapidjson::MemoryStream stream(json.data(), json.size());
  rapidjson::Reader().Parse<rapidjson::kParseIterativeFlag>(stream, validator);
  if (validator.IsValid()) return {};
  rapidjson::StringBuffer place;
  validator.GetInvalidDocumentPointer().Stringify(place);
  const rapidjson::Value* rule = validator.GetInvalidSchemaPointer().Get(schema);
  LS_CHECK(rule != nullptr, "the schema has no place for {}", place.GetString());
  const std::string pointer = place.GetString();
  return SchemaFinding{.place = pointer.empty() ? "" : pointer.substr(1),
                       .what = Demand(validator.GetInvalidSchemaKeyword(), *rule)};
}

}  // namespace lockstep::internal
