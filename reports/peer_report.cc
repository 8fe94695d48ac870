#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "reports/engine_report.h"
#include "reports/peer_bench.h"
#include "reports/statistics.h"

namespace lockstep {
namespace {

std::vector<double> Values(const PeerPoint& point,
                           const std::function<double(const PeerRound&)>& value) {
  std::vector<double> values;
  for (const PeerRound& round : point.rounds) values.push_back(value(round));
  return values;
}

std::string Speed(const PeerPoint& point, double PeerRound::*seconds) {
  const Summary speed = Summarize(
      Values(point, [&](const PeerRound& round) { return point.tokens / (round.*seconds); }));
  return fmt::format("{:.1f} [{:.1f}, {:.1f}]", speed.median, speed.low, speed.high);
}

std::string Fraction(const PeerPoint& point, double PeerRound::*seconds) {
  return fmt::format("{:.1f} %", Summarize(Values(point, [&](const PeerRound& round) {
                                   return 100 * round.limit / (round.*seconds);
                                 })).median);
}

RatioEstimate RatioOf(const PeerBenchResult& result, size_t index) {
  const PeerPoint& point = result.points[index];
  return EstimateRatio(Values(point, [](const PeerRound& round) { return round.theirs; }),
                       Values(point, [](const PeerRound& round) { return round.ours; }),
                       Random(result.seed).Split(index));
}

}  // namespace

Table PeerTable(const PeerBenchResult& result) {
  Table table{.header = {"point", "threads", "lockstep tokens/s", "llama.cpp tokens/s",
                         "times as fast", "95 % interval", "limit tokens/s",
                         "lockstep, of the limit", "llama.cpp, of the limit"}};
  for (size_t i = 0; i < result.points.size(); ++i) {
    const PeerPoint& point = result.points[i];
    const RatioEstimate ratio = RatioOf(result, i);
    table.rows.push_back(
        {point.point.name(), std::to_string(point.point.threads), Speed(point, &PeerRound::ours),
         Speed(point, &PeerRound::theirs), fmt::format("{:.2f}", ratio.median),
         fmt::format("{:.2f} to {:.2f}", ratio.low, ratio.high), Speed(point, &PeerRound::limit),
         Fraction(point, &PeerRound::ours), Fraction(point, &PeerRound::theirs)});
  }
  return table;
}

Table ChangedBitsTable(const PeerBenchResult& result) {
  Table table{.header = {"computed in", "lockstep: changed", "llama.cpp: changed"}};
  for (const ChangedBits& bits : result.bits) {
    table.rows.push_back({bits.how, fmt::format("{} of {}", bits.ours_changed, bits.ours_compared),
                          fmt::format("{} of {}", bits.theirs_changed, bits.theirs_compared)});
  }
  return table;
}

std::string PeerLoadLine(const PeerBenchResult& result) {
  std::vector<double> barriers, others;
  for (const PeerPoint& point : result.points) {
    for (const PeerRound& round : point.rounds) {
      if (round.barrier_seconds) barriers.push_back(*round.barrier_seconds * 1e9);
      if (round.load) others.push_back(100 * (round.load->others + round.load->steal));
    }
  }
  // The driver does nothing while ours runs, so what is left is foreign.
  return fmt::format(
      "Barrier {}; other load while ours ran {}",
      barriers.empty() ? "not available here"
                       : fmt::format("{:.0f} ns in the median, {:.0f} at most",
                                     Quantile(barriers, 0.5), Quantile(barriers, 1)),
      others.empty() ? "not available here"
                     : fmt::format("{:.1f} % of the processors' time in the median, {:.1f} at most",
                                   Quantile(others, 0.5), Quantile(others, 1)));
}

std::string PeerMarkdown(const PeerBenchResult& result, const std::string& command,
                         const std::string& model) {
  const PeerPoint& first = result.points.front();
  std::string text = fmt::format(
      "## Beside llama.cpp\n\n"
      "`{}`: {} on both; lockstep with kernels {} and cache {}; {}. {}. Medians over {} rounds "
      "with "
      "quartiles in brackets. A round measures ours, theirs, theirs, ours; \"times as fast\" is "
      "the "
      "median of their seconds over ours with a bootstrap interval. The limit is that of the "
      "round, "
      "as above.\n\n",
      command, model, first.point.isa, first.point.cache, result.peer, MachineLine(),
      first.rounds.size());
  text += TableMarkdown(PeerTable(result));
  if (!result.bits.empty()) {
    text +=
        "\nPositions of one prompt whose logits change, against steps of one token on one thread. "
        "llama.cpp's are looked at through its probabilities.\n\n";
    text += TableMarkdown(ChangedBitsTable(result));
  }
  return text + fmt::format("\n{}.\n", PeerLoadLine(result));
}

std::string PeerJson(const PeerBenchResult& result, const std::string& command,
                     const std::string& model) {
  nlohmann::ordered_json json = {{"command", command},
                                 {"model", model},
                                 {"machine", MachineLine()},
                                 {"peer", result.peer},
                                 {"seed", result.seed}};
  for (size_t i = 0; i < result.points.size(); ++i) {
    const PeerPoint& point = result.points[i];
    const RatioEstimate ratio = RatioOf(result, i);
    nlohmann::ordered_json rounds = nlohmann::ordered_json::array();
    for (const PeerRound& round : point.rounds) {
      rounds.push_back({{"ours_seconds", round.ours},
                        {"theirs_seconds", round.theirs},
                        {"limit_seconds", round.limit},
                        {"barrier_seconds", nullptr},
                        {"others", nullptr},
                        {"steal", nullptr}});
      if (round.barrier_seconds) rounds.back()["barrier_seconds"] = *round.barrier_seconds;
      if (!round.load) continue;
      rounds.back()["others"] = round.load->others;
      rounds.back()["steal"] = round.load->steal;
    }
    json["points"].push_back({{"point", point.point.name()},
                              {"threads", point.point.threads},
                              {"isa", point.point.isa},
                              {"cache", point.point.cache},
                              {"tokens", point.tokens},
                              {"ratio", {ratio.median, ratio.low, ratio.high}},
                              {"rounds", std::move(rounds)}});
  }
  for (const ChangedBits& bits : result.bits) {
    json["changed_bits"].push_back({{"how", bits.how},
                                    {"ours", {bits.ours_changed, bits.ours_compared}},
                                    {"theirs", {bits.theirs_changed, bits.theirs_compared}}});
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace lockstep
