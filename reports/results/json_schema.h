// Checks JSON against a JSON Schema. Apart because the library behind it is slow to compile.
#ifndef LOCKSTEP_REPORTS_RESULTS_JSON_SCHEMA_H_
#define LOCKSTEP_REPORTS_RESULTS_JSON_SCHEMA_H_

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::internal {

// The place of the first value that does not follow the schema (draft 7), "benchmarks/0/unit", and
// what is wrong with it; nothing when all do.
struct SchemaFinding {
  std::string place;
  std::string what;
};
std::optional<SchemaFinding> CheckSchema(const nlohmann::json& value, std::string_view schema);

}  // namespace lockstep::internal

#endif  // LOCKSTEP_REPORTS_RESULTS_JSON_SCHEMA_H_
