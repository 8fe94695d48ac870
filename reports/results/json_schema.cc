#include "reports/results/json_schema.h"

#include <nlohmann/json.hpp>

// A header-only library with warnings of its own.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"
#pragma GCC diagnostic ignored "-Woverloaded-virtual"
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>
#pragma GCC diagnostic pop

namespace lockstep::internal {

std::optional<SchemaFinding> CheckSchema(const nlohmann::json& value, std::string_view text) {
  const nlohmann::json parsed = nlohmann::json::parse(text);
  valijson::Schema schema;
  valijson::SchemaParser(valijson::SchemaParser::kDraft7)
      .populateSchema(valijson::adapters::NlohmannJsonAdapter(parsed), schema);
  valijson::Validator validator(valijson::Validator::kStrongTypes);
  valijson::ValidationResults results;
  if (validator.validate(schema, valijson::adapters::NlohmannJsonAdapter(value), &results)) {
    return {};
  }
  // The deepest place says most; of equals the first.
  SchemaFinding deepest;
  size_t depth = 0;
  for (valijson::ValidationResults::Error error; results.popError(error);) {
    if (error.context.size() <= depth) continue;
    depth = error.context.size();
    std::string place;
    for (std::string part : error.context) {
      if (part == "<root>") continue;
      if (part.size() > 2 && part.front() == '[' && part.back() == ']') {
        part = part.substr(1, part.size() - 2);
      }
      place += (place.empty() ? "" : "/") + part;
    }
    deepest = {.place = place, .what = error.description};
  }
  return deepest;
}

}  // namespace lockstep::internal
