// Checks JSON against a JSON Schema. Apart because the library behind it is slow to compile.
#ifndef LOCKSTEP_REPORTS_RESULTS_JSON_SCHEMA_H_
#define LOCKSTEP_REPORTS_RESULTS_JSON_SCHEMA_H_

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::internal {

// The place of the first value that does not follow the schema (draft 4), "benchmarks/0/unit", and
// what is wrong with it; nothing when all do. REQUIRES of both: JSON.
struct SchemaFinding {
  std::string place;
  std::string what;
};
std::optional<SchemaFinding> CheckSchema(std::string_view json, std::string_view schema);

}  // namespace lockstep::internal

#endif  // LOCKSTEP_REPORTS_RESULTS_JSON_SCHEMA_H_
