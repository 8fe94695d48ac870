#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/engine_report.h"
#include "reports/peer_check.h"

namespace lockstep {
namespace {

std::string_view NameOf(PeerCheckRow::Verdict verdict) {
  switch (verdict) {
    case PeerCheckRow::Verdict::kHolds:
      return "holds";
    case PeerCheckRow::Verdict::kDiffers:
      return "DIFFERS";
    case PeerCheckRow::Verdict::kKnown:
      return "known";
  }
  return "";
}

std::string Of(int32_t part, int32_t whole) {
  return whole == 0 ? "" : fmt::format("{}/{}", part, whole);
}

nlohmann::ordered_json DistanceJson(const PeerDistance& distance) {
  return {{"positions", distance.positions}, {"tokens", distance.tokens},
          {"left_out", distance.left_out},   {"log_max", distance.log_max},
          {"log_mean", distance.log_mean},   {"kl_max", distance.kl_max},
          {"kl_mean", distance.kl_mean},     {"likeliest_equal", distance.likeliest_equal}};
}

}  // namespace

Table PeerCheckTable(const PeerCheckResult& result) {
  Table table{.header = {"model", "architecture", "weights", "verdict", "twin, largest",
                         "twin, likeliest", "stored, mean", "stored, largest", "stored, KL",
                         "stored, likeliest", "our rounding", "theirs", "greedy", "texts"}};
  for (const PeerCheckRow& row : result.rows) {
    const auto number = [](const PeerDistance& distance, double value) {
      return distance.positions > 0 ? fmt::format("{:.2g}", value) : "";
    };
    const PeerDistance& twin = row.twin;
    const PeerDistance& stored = row.stored;
    table.rows.push_back({row.model, row.architecture, row.weights,
                          std::string(NameOf(row.verdict)), number(twin, twin.log_max),
                          Of(twin.likeliest_equal, twin.positions), number(stored, stored.log_mean),
                          number(stored, stored.log_max), number(stored, stored.kl_mean),
                          Of(stored.likeliest_equal, stored.positions),
                          number(row.our_rounding, row.our_rounding.log_mean),
                          number(row.their_rounding, row.their_rounding.log_mean),
                          Of(row.greedy_equal, row.greedy_tokens), Of(row.texts_equal, row.texts)});
  }
  return table;
}

Table PeerBoundTable() {
  Table table{.header = {"weights", "ours of theirs", "what rounds"}};
  for (const PeerBound& bound : PeerBounds()) {
    table.rows.push_back({std::string(TraitsOf(bound.type)->name),
                          fmt::format("{:g}", bound.rounding), std::string(bound.why)});
  }
  return table;
}

std::string PeerCheckVerdict(const PeerCheckResult& result) {
  int32_t held = 0, known = 0;
  int64_t tokens = 0;
  std::string differing;
  for (const PeerCheckRow& row : result.rows) {
    held += row.verdict == PeerCheckRow::Verdict::kHolds ? 1 : 0;
    known += row.verdict == PeerCheckRow::Verdict::kKnown ? 1 : 0;
    tokens += row.twin.tokens;
    if (row.verdict == PeerCheckRow::Verdict::kDiffers) {
      differing += (differing.empty() ? "" : ", ") + row.model;
    }
  }
  const std::string counts = fmt::format(
      "{} of {} models agree with the peer, {} differ as is known, {} probabilities compared", held,
      result.rows.size(), known, tokens);
  if (!differing.empty()) return fmt::format("DIFFERS: {}: {}", differing, counts);
  return fmt::format("{}: {}", result.compared() ? "HOLDS" : "INCONCLUSIVE", counts);
}

std::string PeerCheckMarkdown(const PeerCheckResult& result, const std::string& command) {
  std::string text =
      fmt::format("`{}`, seed {}: lockstep beside {}. {}.\n\n{}\n\n", command, result.seed,
                  result.engine, MachineLine(), PeerCheckVerdict(result));
  text += TableMarkdown(PeerCheckTable(result));
  for (const PeerCheckRow& row : result.rows) {
    if (!row.detail.empty()) text += fmt::format("\n- {}: {}", row.model, row.detail);
  }
  return text + "\n";
}

std::string PeerCheckJson(const PeerCheckResult& result, const std::string& command) {
  nlohmann::ordered_json json = {{"command", command},
                                 {"machine", MachineLine()},
                                 {"engine", result.engine},
                                 {"seed", result.seed},
                                 {"verdict", PeerCheckVerdict(result)}};
  for (const PeerCheckRow& row : result.rows) {
    nlohmann::ordered_json entry = {{"model", row.model},
                                    {"architecture", row.architecture},
                                    {"weights", row.weights},
                                    {"verdict", NameOf(row.verdict)},
                                    {"detail", row.detail},
                                    {"twin", DistanceJson(row.twin)},
                                    {"stored", DistanceJson(row.stored)},
                                    {"our_rounding", DistanceJson(row.our_rounding)},
                                    {"their_rounding", DistanceJson(row.their_rounding)},
                                    {"greedy_equal", row.greedy_equal},
                                    {"greedy_tokens", row.greedy_tokens},
                                    {"greedy_gap", row.greedy_gap},
                                    {"texts_equal", row.texts_equal},
                                    {"texts_known", row.texts_known},
                                    {"texts", row.texts}};
    if (row.bound != nullptr) {
      entry["bound"] = {{"twin_log_max", row.twin_bound}, {"rounding", row.bound->rounding}};
    }
    json["models"].push_back(std::move(entry));
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace lockstep
