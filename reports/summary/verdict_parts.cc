// Parts whose file says what was compared and what was equal.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "caches/error.h"
#include "reports/summary/parts.h"

namespace lockstep::internal {
namespace {

using nlohmann::json;

std::string Text(const json& object, const char* member) {
  return object.at(member).get<std::string>();
}

std::string Number(const json& object, const char* member) {
  return fmt::format("{}", object.at(member).get<int64_t>());
}

// Words of commands, whatever their case, to verdicts; others are no verdict.
ReportVerdict VerdictOf(std::string word) {
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  static const std::map<std::string, ReportVerdict> verdicts = {
      {"holds", ReportVerdict::kHolds},       {"equal", ReportVerdict::kHolds},
      {"differs", ReportVerdict::kFails},     {"failed", ReportVerdict::kFails},
      {"inconclusive", ReportVerdict::kOpen}, {"unproved", ReportVerdict::kOpen},
      {"interrupted", ReportVerdict::kOpen}};
  const auto found = verdicts.find(word);
  if (found == verdicts.end()) {
    throw Error({fmt::format("verdict '{}'", word), "is none that this version knows",
                 "write the file again, by the version that reads it"});
  }
  return found->second;
}

}  // namespace

ReportPart VerifyPart(const json& verify) {
  ReportPart part{.title = "Caches and write paths",
                  .verdict = VerdictOf(Text(verify, "outcome")),
                  .sentence = Text(verify, "verdict"),
                  .command = Text(verify, "command")};
  part.table.header = {"cache",   "write path", "slots granted", "slots refused",
                       "commits", "updates",    "verdict"};
  for (const json& cell : verify.at("cells")) {
    const std::string cache = Text(cell, "cache"), path = Text(cell, "write_path");
    if (cell.contains("reason")) {
      part.table.rows.push_back({cache, path, "", "", "", "", Text(cell, "reason")});
      continue;
    }
    const json& counts = cell.at("counts");
    part.table.rows.push_back({cache, path, Number(counts, "reserves_granted"),
                               Number(counts, "reserves_refused"), Number(counts, "commits"),
                               Number(counts, "updates"), Text(cell, "verdict")});
    if (!cell.contains("difference")) continue;
    part.complaints.push_back(fmt::format("{}, {}, against {}: {}", cache, path,
                                          Text(cell, "against"),
                                          Text(cell.at("difference"), "sentence")));
  }
  return part;
}

ReportPart MatrixPart(const json& matrix) {
  ReportPart part{.title = "Determinism matrix",
                  .verdict = VerdictOf(Text(matrix, "outcome")),
                  .sentence = Text(matrix, "verdict"),
                  .command = Text(matrix, "command")};
  part.table.header = {"axis", "value", "verdict", "digests compared", "control"};
  for (const json& axis : matrix.at("axes")) {
    const std::string name = Text(axis, "axis");
    const std::string control = Text(axis, "control");
    const bool caught = axis.at("control_caught").get<bool>();
    for (const json& cell : axis.at("cells")) {
      const std::string value = Text(cell, "value"), verdict = Text(cell, "verdict");
      part.table.rows.push_back(
          {name, value, verdict, Number(cell, "comparisons"),
           control.empty() ? "none" : control + (caught ? " caught" : " MISSED")});
      if (verdict == "equal" || verdict.starts_with("not available")) continue;
      part.complaints.push_back(
          fmt::format("{} {}: {}: {}", name, value, verdict, cell.value("detail", std::string())));
    }
  }
  return part;
}

ReportPart TypesPart(const json& types) {
  ReportPart part{.title = "Families in every weight type",
                  .verdict = VerdictOf(Text(types, "outcome")),
                  .sentence = Text(types, "verdict"),
                  .command = Text(types, "command")};
  part.table.header = {"family", "weights", "combinations", "digests compared", "verdict"};
  for (const json& row : types.at("rows")) {
    const std::string family = Text(row, "family"), weights = Text(row, "weights");
    const std::string verdict = Text(row, "verdict");
    part.table.rows.push_back(
        {family, weights, Number(row, "combinations"), Number(row, "comparisons"), verdict});
    if (verdict == "equal") continue;
    part.complaints.push_back(fmt::format("{} in {}: {}: {}", family, weights, verdict,
                                          row.value("detail", std::string())));
  }
  return part;
}

ReportPart GatePart(const json& gate) {
  ReportPart part{.title = "Gate, tier " + Text(gate, "tier"),
                  .verdict = VerdictOf(Text(gate, "verdict")),
                  .command = Text(gate, "repeat")};
  part.sentence =
      fmt::format("{}: {} parts in {:.0f} s, {}", Text(gate, "verdict"), gate.at("parts").size(),
                  gate.at("seconds").get<double>(), Text(gate, "scope"));
  part.table.header = {"part", "verdict", "what", "seconds"};
  for (const json& each : gate.at("parts")) {
    const std::string name = Text(each, "name"), verdict = Text(each, "verdict");
    part.table.rows.push_back({name, verdict, Text(each, "what"),
                               fmt::format("{:.1f}", each.at("seconds").get<double>())});
    if (verdict == "holds" || verdict == "unaffected") continue;
    part.complaints.push_back(fmt::format("{}: {}: {}", name, verdict, Text(each, "what")));
  }
  return part;
}

ReportPart ConformPart(const json& conform) {
  ReportPart part{
      .title = "Contract of the plug-in " + Text(conform, "plugin"),
      .verdict = conform.at("conforms").get<bool>() ? ReportVerdict::kHolds : ReportVerdict::kFails,
      .sentence = Text(conform, "verdict"),
      .command = Text(conform, "command")};
  part.table.header = {"clause", "level", "verdict", "what it promises"};
  for (const json& clause : conform.at("clauses")) {
    const std::string verdict = Text(clause, "verdict");
    part.table.rows.push_back(
        {Text(clause, "clause"), Number(clause, "level"), verdict, Text(clause, "summary")});
    if (verdict != "FAIL" && verdict != "fail") continue;
    part.complaints.push_back(
        fmt::format("[{}] {}", Text(clause, "clause"), Text(clause, "summary")));
  }
  return part;
}

ReportPart FaultsPart(const json& faults) {
  struct Count {
    int64_t faults = 0, caught = 0, by_reference = 0;
  };
  ReportPart part{.title = "What the suite catches"};
  std::map<std::string, Count> classes;
  Count all;
  for (const json& fault : faults) {
    const bool caught = Text(fault, "verdict") == "caught";
    const bool by_reference = fault.at("reference_catches").get<bool>();
    for (Count* count : {&classes[Text(fault, "class")], &all}) {
      ++count->faults;
      count->caught += caught ? 1 : 0;
      count->by_reference += by_reference ? 1 : 0;
    }
    if (caught) continue;
    part.complaints.push_back(fmt::format("{} ({}): {}", Text(fault, "name"), Text(fault, "class"),
                                          Text(fault, "verdict")));
  }
  part.verdict = part.complaints.empty() ? ReportVerdict::kHolds : ReportVerdict::kFails;
  part.sentence = fmt::format("{} of {} planted faults are caught; {} by the reference's suite",
                              all.caught, all.faults, all.by_reference);
  part.table.header = {"class", "faults", "caught", "by the reference's suite"};
  for (const auto& [name, count] : classes) {
    part.table.rows.push_back({name, fmt::format("{}", count.faults),
                               fmt::format("{}", count.caught),
                               fmt::format("{}", count.by_reference)});
  }
  part.command = "ci/faults plant";
  return part;
}

}  // namespace lockstep::internal
