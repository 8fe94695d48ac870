#include "reports/results.h"

namespace lockstep {

std::string_view RunSchema() {
  return R"json({
  "$schema": "http://json-schema.org/draft-04/schema#",
  "title": "lockstep benchmark run",
  "type": "object",
  "additionalProperties": false,
  "required": ["format", "version", "machine", "benchmarks"],
  "properties": {
    "format": {"enum": ["lockstep-bench-run"]}, "version": {"enum": [1]},
    "machine": {
      "type": "object",
      "additionalProperties": false,
      "required": ["processor", "processors", "memory_mib", "fingerprint"],
      "properties": {
        "processor": {"type": "string"},
        "processors": {"type": "integer", "minimum": 0},
        "memory_mib": {"type": "integer", "minimum": 0},
        "system": {"type": "string"},
        "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{16}$"}
      }
    },
    "toolchain": {"type": "string"}, "commit": {"type": "string"},
    "build": {"type": "string", "description": "digest of the executable's bytes"},
    "command": {"type": "string"}, "started": {"type": "string"},
    "seed": {"type": "integer"},
    "benchmarks": {
      "type": "array",
      "items": {
        "type": "object",
        "additionalProperties": false,
        "required": ["name", "unit", "better", "samples"],
        "properties": {
          "name": {"type": "string", "minLength": 1},
          "unit": {"type": "string"},
          "better": {"enum": ["lower", "higher"]},
          "counters": {"type": "object", "additionalProperties": {"type": "number"}},
          "digest": {"type": "string"},
          "bound": {"type": "string"}, "limit_of": {"enum": ["one", "all"]},
          "samples": {
            "type": "array",
            "items": {
              "type": "object",
              "additionalProperties": false,
              "required": ["value"],
              "properties": {
                "value": {"type": "number", "minimum": 0, "exclusiveMinimum": true},
                "round": {"type": "integer", "minimum": -1, "maximum": 2147483647},
                "limit": {"type": "number", "minimum": 0, "exclusiveMinimum": true},
                "state": {
                  "type": "object",
                  "additionalProperties": false,
                  "properties": {
                   "read_bandwidth_one": {"type": "number", "minimum": 0, "exclusiveMinimum": true},
                   "read_bandwidth_all": {"type": "number", "minimum": 0, "exclusiveMinimum": true},
                   "barrier_seconds": {"type": "number", "minimum": 0, "exclusiveMinimum": true},
                   "others": {"type": "number", "minimum": 0, "maximum": 1},
                   "steal": {"type": "number", "minimum": 0, "maximum": 1}
                  }
                }
              }
            }
          }
        }
      }
    }
  }
}
)json";
}

}  // namespace lockstep
