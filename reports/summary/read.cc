#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "caches/error.h"
#include "caches/file_io.h"
#include "reports/summary.h"
#include "reports/summary/parts.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr const char* kRemedy = "give a file of those that `lockstep report --help` lists";

struct Kind {
  bool (*is)(const json&);
  ReportPart (*read)(const json&);
};

bool Has(const json& object, std::initializer_list<const char*> members) {
  if (!object.is_object()) return false;
  for (const char* member : members) {
    if (!object.contains(member)) return false;
  }
  return true;
}

constexpr Kind kKinds[] = {
    {[](const json& j) {
       return Has(j, {"cells", "kernels", "outcome"});
     },
     internal::VerifyPart},
    {[](const json& j) {
       return Has(j, {"axes", "comparisons"});
     },
     internal::MatrixPart},
    {[](const json& j) {
       return Has(j, {"rows", "combinations"});
     },
     internal::TypesPart},
    {[](const json& j) {
       return Has(j, {"parts", "tier"});
     },
     internal::GatePart},
    {[](const json& j) {
       return Has(j, {"clauses", "plugin"});
     },
     internal::ConformPart},
    {[](const json& j) {
       return Has(j, {"explanations", "holds"});
     },
     internal::ExplainPart},
    {[](const json& j) {
       return j.is_object() && j.value("format", json()) == "lockstep-bench-comparison";
     },
     internal::BenchPart},
    {[](const json& j) {
       return j.is_array() && !j.empty() && Has(j[0], {"stands_for", "expected_catcher"});
     },
     internal::FaultsPart},
};

// A cache script begins with its cache, behind comments and empty lines.
bool IsScript(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1);
    std::string_view line = text.substr(0, end + 1);
    text.remove_prefix(end + 1);
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r\n"), line.size()));
    if (!line.empty() && line[0] != '#') return line.starts_with("cache ");
  }
  return false;
}

ReportPart Read(const std::string& text, const std::string& path) {
  if (text.starts_with("SQLite format 3")) return internal::HistoryPart(path);
  if (IsScript(text)) return internal::ScriptPart(text, path);
  const json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  for (const Kind& kind : kKinds) {
    if (kind.is(parsed)) return kind.read(parsed);
  }
  throw Error({path, "is nothing that a report is made of", kRemedy});
}

}  // namespace

ReportPart ReadReportPart(const std::string& path) {
  try {
    ReportPart part = Read(ReadWholeTextFile(path), path);
    part.source = path;
    return part;
  } catch (const json::exception& error) {
    throw Error({path, fmt::format("lacks what such a file has: {}", error.what()),
                 "write it again, by the version that reads it"});
  }
}

}  // namespace lockstep
