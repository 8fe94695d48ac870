// What reads each kind of file. Each throws Error or nlohmann's exceptions for members that are not
// there; reports/summary/read.cc names the file.
#ifndef LOCKSTEP_REPORTS_SUMMARY_PARTS_H_
#define LOCKSTEP_REPORTS_SUMMARY_PARTS_H_

#include <nlohmann/json.hpp>
#include <string>

#include "reports/summary.h"

namespace lockstep::internal {

ReportPart VerifyPart(const nlohmann::json& json);
ReportPart MatrixPart(const nlohmann::json& json);
ReportPart TypesPart(const nlohmann::json& json);
ReportPart GatePart(const nlohmann::json& json);
ReportPart ConformPart(const nlohmann::json& json);
ReportPart ExplainPart(const nlohmann::json& json);
ReportPart BenchPart(const nlohmann::json& json);
ReportPart FaultsPart(const nlohmann::json& json);
ReportPart HistoryPart(const std::string& path);
ReportPart ScriptPart(const std::string& text, const std::string& path);

}  // namespace lockstep::internal

#endif  // LOCKSTEP_REPORTS_SUMMARY_PARTS_H_
