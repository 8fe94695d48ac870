#include <nlohmann/json.hpp>

#include "reports/compare_report.h"
#include "reports/results.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kAroundTheRuns = R"json({
  "$schema": "http://json-schema.org/draft-04/schema#",
  "title": "lockstep benchmark comparison",
  "type": "object",
  "additionalProperties": false,
  "required": ["format", "version", "outcome", "sentence", "command", "identical", "interleaved",
               "alpha", "seed", "benchmarks", "baseline", "subject"],
  "definitions": {
    "share": {"type": "number", "minimum": 0, "maximum": 1},
    "amount": {"type": "number", "minimum": 0},
    "count": {"type": "integer", "minimum": 0, "maximum": 2147483647},
    "alone": {
      "type": "array",
      "items": {
        "type": "object",
        "additionalProperties": false,
        "required": ["name", "benchmark", "text"],
        "properties": {
          "name": {"type": "string", "minLength": 1,
                   "description": "as --new and --gone take it: BENCHMARK or BENCHMARK#PART"},
          "benchmark": {"type": "string", "minLength": 1},
          "part": {"type": "string", "minLength": 1,
                   "description": "a counter's name, or digest; absent: the whole benchmark"},
          "text": {"type": "string", "description": "what it is there, for people"}
        }
      }
    }
  },
  "properties": {
    "format": {"enum": ["lockstep-bench-comparison"]}, "version": {"enum": [1]},
    "outcome": {"enum": ["holds", "regression", "inconclusive"]},
    "sentence": {"type": "string", "minLength": 1},
    "command": {"type": "string"},
    "identical": {"type": "boolean", "description": "both executables are equal byte for byte"},
    "interleaved": {"type": "boolean", "description": "every benchmark was measured in rounds"},
    "alpha": {"$ref": "#/definitions/share",
              "description": "how often equal builds may be told apart"},
    "seed": {"type": "integer"},
    "benchmarks": {
      "type": "array",
      "items": {
        "type": "object",
        "additionalProperties": false,
        "required": ["name", "verdict", "text", "regressed", "unit", "baseline", "subject",
                     "by_limit", "ratio", "low", "high", "p_value", "within", "detectable",
                     "noise", "rounds", "rounds_left_out", "bits_changed", "counters"],
        "properties": {
          "name": {"type": "string", "minLength": 1},
          "verdict": {"enum": ["faster", "slower", "same", "inconclusive"]},
          "text": {"type": "string", "minLength": 1},
          "regressed": {"type": "boolean",
                        "description": "slower, or a counter grew, or the bits changed"},
          "unit": {"type": "string"},
          "baseline": {"$ref": "#/definitions/amount", "description": "median, in the unit"},
          "subject": {"$ref": "#/definitions/amount", "description": "median, in the unit"},
          "by_limit": {"type": "boolean",
                       "description": "fractions of the machine's limit were compared"},
          "ratio": {"$ref": "#/definitions/amount",
                    "description": "cost of the subject over the baseline's, median over rounds"},
          "low": {"$ref": "#/definitions/amount", "description": "of the ratio's interval"},
          "high": {"$ref": "#/definitions/amount", "description": "of the ratio's interval"},
          "p_value": {"$ref": "#/definitions/share", "description": "adjusted (Holm)"},
          "within": {"$ref": "#/definitions/amount", "description": "what counts as the same"},
          "floor": {"$ref": "#/definitions/amount",
                    "description": "slower or faster is more than this"},
          "detectable": {"$ref": "#/definitions/amount",
                         "description": "least excess cost found 4 times in 5"},
          "noise": {"$ref": "#/definitions/amount"},
          "rounds": {"$ref": "#/definitions/count"},
          "rounds_left_out": {"$ref": "#/definitions/count",
                              "description": "the machine changed within them"},
          "rounds_needed": {"$ref": "#/definitions/count"},
          "bits_changed": {"type": "boolean"},
          "counters": {
            "type": "array",
            "description": "those that differ",
            "items": {
              "type": "object",
              "additionalProperties": false,
              "required": ["name", "baseline", "subject", "worse"],
              "properties": {
                "name": {"type": "string", "minLength": 1},
                "baseline": {"type": "number"}, "subject": {"type": "number"},
                "worse": {"type": "boolean"}
              }
            }
          }
        }
      }
    },
    "new": {"$ref": "#/definitions/alone", "description": "of the subject alone"},
    "gone": {"$ref": "#/definitions/alone",
             "description": "of the baseline alone, and listed with --gone"},
    "baseline": {"$ref": "#/definitions/run"}, "subject": {"$ref": "#/definitions/run"}
  }
}
)json";

}  // namespace

std::string ComparisonSchema() {
  ordered_json schema = ordered_json::parse(kAroundTheRuns);
  ordered_json run = ordered_json::parse(RunSchema());
  run.erase("$schema");
  // References are to the whole document: what a run's schema refers to moves there.
  ordered_json& definitions = schema["definitions"];
  for (const auto& definition : run["definitions"].items()) {
    definitions[definition.key()] = definition.value();
  }
  run.erase("definitions");
  definitions["run"] = std::move(run);
  return schema.dump(2) + "\n";
}

}  // namespace lockstep
