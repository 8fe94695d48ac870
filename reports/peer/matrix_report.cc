#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/engine_report.h"
#include "reports/peer_matrix.h"

namespace lockstep {
namespace {

std::string_view NameOf(EngineCell::Verdict verdict) {
  switch (verdict) {
    case EngineCell::Verdict::kEqual:
      return "equal";
    case EngineCell::Verdict::kDiffers:
      return "DIFFERS";
    case EngineCell::Verdict::kFailed:
      return "FAILED";
    case EngineCell::Verdict::kUnsupported:
      return "not supported";
  }
  return "";
}

std::string ModelNames(const EngineMatrix& matrix) {
  std::string names;
  for (const std::string& name : matrix.models) names += (names.empty() ? "" : ", ") + name;
  return names;
}

}  // namespace

Table EngineMatrixTable(const EngineMatrix& matrix) {
  Table table{.header = {"axis", "value", "verdict", "compared", "changed", "ulp, largest",
                         "KL, largest", "likeliest changed"}};
  std::string_view last;
  for (const EngineCell& cell : matrix.cells) {
    const bool differs = cell.changed > 0;
    table.rows.push_back({std::string(cell.axis == last ? "" : cell.axis), cell.value,
                          std::string(NameOf(cell.verdict)), std::to_string(cell.compared),
                          std::to_string(cell.changed), differs ? std::to_string(cell.ulp_max) : "",
                          differs ? fmt::format("{:.2g}", cell.kl_max) : "",
                          differs ? std::to_string(cell.likeliest_changed) : ""});
    last = cell.axis;
  }
  return table;
}

std::string EngineMatrixVerdict(const EngineMatrix& matrix) {
  int64_t equal = 0, compared = 0;
  std::string bad, unsupported;
  for (const EngineCell& cell : matrix.cells) {
    equal += cell.verdict == EngineCell::Verdict::kEqual ? 1 : 0;
    compared += cell.compared;
    const bool wrong = cell.verdict == EngineCell::Verdict::kDiffers ||
                       cell.verdict == EngineCell::Verdict::kFailed;
    std::string* list = wrong                                               ? &bad
                        : cell.verdict == EngineCell::Verdict::kUnsupported ? &unsupported
                                                                            : nullptr;
    const std::string axis(cell.axis);
    if (list == nullptr || list->find(axis) != list->npos) continue;
    *list += (list->empty() ? "" : ", ") + axis;
  }
  const std::string counts = fmt::format(
      "{} of {} cells equal bit for bit, {} positions compared{}", equal, matrix.cells.size(),
      compared, unsupported.empty() ? "" : "; not supported: " + unsupported);
  if (!bad.empty()) return fmt::format("DIFFERS: {}: {}", bad, counts);
  return fmt::format("{}: {}", matrix.compared() ? "EQUAL" : "INCONCLUSIVE", counts);
}

std::string EngineMatrixMarkdown(const EngineMatrix& matrix, const std::string& command) {
  std::string text =
      fmt::format("`{}`, seed {}: {}. {}; models {}; {} compared. {}.\n\n", command, matrix.seed,
                  matrix.engine, MachineLine(), ModelNames(matrix),
                  matrix.probabilities ? "probabilities" : "logits", EngineMatrixVerdict(matrix));
  text += TableMarkdown(EngineMatrixTable(matrix));
  for (const EngineCell& cell : matrix.cells) {
    if (cell.verdict != EngineCell::Verdict::kFailed) continue;
    text += fmt::format("\n- {} {}: {}", cell.axis, cell.value, cell.detail);
  }
  return text + "\n";
}

std::string EngineMatrixJson(const EngineMatrix& matrix, const std::string& command) {
  nlohmann::ordered_json json = {{"command", command},
                                 {"machine", MachineLine()},
                                 {"engine", matrix.engine},
                                 {"values", matrix.probabilities ? "probabilities" : "logits"},
                                 {"seed", matrix.seed},
                                 {"models", matrix.models},
                                 {"verdict", EngineMatrixVerdict(matrix)}};
  for (const EngineCell& cell : matrix.cells) {
    json["cells"].push_back({{"axis", cell.axis},
                             {"value", cell.value},
                             {"verdict", NameOf(cell.verdict)},
                             {"compared", cell.compared},
                             {"changed", cell.changed},
                             {"ulp_max", cell.ulp_max},
                             {"kl_max", cell.kl_max},
                             {"likeliest_changed", cell.likeliest_changed},
                             {"detail", cell.detail}});
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace lockstep
