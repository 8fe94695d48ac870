#include "reports/engine_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/results.h"
#include "reports/statistics.h"

namespace lockstep {
namespace {

// Between two cores that share a level of cache and two that do not, on the machines seen so far.
constexpr double kSlowBarrierSeconds = 80e-9;

constexpr double kGiga = 1e-9;

std::string Percent(double fraction) { return fmt::format("{:.1f} %", 100 * fraction); }

std::string MedianAndQuartiles(const Summary& summary) {
  return fmt::format("{:.1f} [{:.1f}, {:.1f}]", summary.median, summary.low, summary.high);
}

std::vector<std::string> PointRow(const PointResult& result) {
  const Summary speed =
      Summarize(Series(result, [&](const PointSample& s) { return result.tokens / s.seconds; }));
  const Summary limit = Summarize(
      Series(result, [&](const PointSample& s) { return result.tokens / s.limit_seconds; }));
  const Summary fraction =
      Summarize(Series(result, [](const PointSample& s) { return 100 * s.fraction(); }));
  const double per_second = speed.median / result.tokens;
  const double multiply_adds = result.work.dot_multiply_adds + result.work.fma_multiply_adds;
  return {result.point.name(),
          result.point.cache,
          result.point.isa,
          std::to_string(result.point.threads),
          MedianAndQuartiles(speed),
          fmt::format("{:.1f}", result.work.bytes * per_second * kGiga),
          fmt::format("{:.1f}", multiply_adds * per_second * kGiga),
          fmt::format("{:.1f}", limit.median),
          fmt::format("{:.1f} % [{:.1f}, {:.1f}]", fraction.median, fraction.low, fraction.high),
          result.samples.front().digest.Hex().substr(0, 16)};
}

template <typename Value>
std::string MedianOver(const EngineBenchResult& result, size_t sample, Value value) {
  std::vector<double> values;
  for (const RoundLimits& round : result.rounds) {
    values.push_back(value(round.samples[sample]) * kGiga);
  }
  return MedianAndQuartiles(Summarize(values));
}

std::string BarrierText(const EngineBenchResult& result) {
  std::vector<double> values;
  for (const RoundLimits& round : result.rounds) {
    if (round.barrier_seconds) values.push_back(*round.barrier_seconds * 1e9);
  }
  if (values.empty()) return "not available here";
  return MedianAndQuartiles(Summarize(values)) + " ns";
}

nlohmann::ordered_json LoadJson(const std::optional<ForeignLoad>& load) {
  if (!load) return nullptr;
  return {{"others", load->others}, {"steal", load->steal}};
}

nlohmann::ordered_json PointJson(const PointResult& result) {
  nlohmann::ordered_json samples = nlohmann::ordered_json::array();
  for (const PointSample& sample : result.samples) {
    samples.push_back({{"round", sample.round},
                       {"seconds", sample.seconds},
                       {"limit_seconds", sample.limit_seconds},
                       {"digest", sample.digest.Hex()},
                       {"foreign_load", LoadJson(sample.load)}});
  }
  return {{"point", result.point.name()},
          {"cache", result.point.cache},
          {"isa", result.point.isa},
          {"threads", result.point.threads},
          {"tokens", result.tokens},
          {"bytes", result.work.bytes},
          {"dot_multiply_adds", result.work.dot_multiply_adds},
          {"fma_multiply_adds", result.work.fma_multiply_adds},
          {"samples", std::move(samples)}};
}

nlohmann::ordered_json RoundJson(const RoundLimits& round) {
  nlohmann::ordered_json limits = nlohmann::ordered_json::array();
  for (const LimitSample& sample : round.samples) {
    limits.push_back({{"threads", sample.threads},
                      {"isa", sample.isa},
                      {"read_bytes_per_second", sample.read_bandwidth},
                      {"dot_multiply_adds_per_second", sample.dot_peak},
                      {"fma_multiply_adds_per_second", sample.fma_peak}});
  }
  nlohmann::ordered_json json = {{"limits", std::move(limits)},
                                 {"barrier_seconds", nullptr},
                                 {"foreign_load", LoadJson(round.load)}};
  if (round.barrier_seconds) json["barrier_seconds"] = *round.barrier_seconds;
  return json;
}

}  // namespace

std::string MachineLine() {
  const BenchMachine machine = ThisMachine();
  return fmt::format("{}, {} processors, {}", machine.processor, machine.processors,
                     ThisToolchain());
}

Table EngineTable(const EngineBenchResult& result) {
  Table table{.header = {"point", "cache", "kernels", "threads", "tokens/s", "GB/s", "Gmadd/s",
                         "limit tokens/s", "of the limit", "logits"}};
  for (const PointResult& point : result.points) table.rows.push_back(PointRow(point));
  return table;
}

Table LimitTable(const EngineBenchResult& result) {
  Table table{.header = {"threads", "instruction set", "read GB/s", "8-bit dot product Gmadd/s",
                         "F32 fma Gmadd/s", "barrier"}};
  if (result.rounds.empty()) return table;
  for (size_t i = 0; i < result.rounds.front().samples.size(); ++i) {
    const LimitSample& sample = result.rounds.front().samples[i];
    const auto median = [&](auto value) { return MedianOver(result, i, value); };
    table.rows.push_back({std::to_string(sample.threads), sample.isa,
                          median([](const LimitSample& s) { return s.read_bandwidth; }),
                          median([](const LimitSample& s) { return s.dot_peak; }),
                          median([](const LimitSample& s) { return s.fma_peak; }),
                          sample.threads > 1 ? BarrierText(result) : "-"});
  }
  return table;
}

Table RegimeTable(const EngineBenchResult& result) {
  Table table{.header = {"point", "cache", "kernels", "threads", "barrier", "rounds", "tokens/s",
                         "of the limit"}};
  const auto is_slow = [&](const PointSample& sample) {
    const auto& barrier = result.rounds[static_cast<size_t>(sample.round)].barrier_seconds;
    return barrier.value_or(0) > kSlowBarrierSeconds;
  };
  bool any[2] = {};
  for (const PointResult& point : result.points) {
    for (const PointSample& sample : point.samples) any[is_slow(sample) ? 1 : 0] = true;
  }
  if (!any[0] || !any[1]) return table;
  for (const PointResult& point : result.points) {
    if (point.point.threads == 1) continue;
    for (bool slow : {false, true}) {
      std::vector<double> speeds, fractions;
      for (const PointSample& sample : point.samples) {
        if (is_slow(sample) != slow) continue;
        speeds.push_back(point.tokens / sample.seconds);
        fractions.push_back(sample.fraction());
      }
      table.rows.push_back(
          {point.point.name(), point.point.cache, point.point.isa,
           std::to_string(point.point.threads),
           fmt::format("{} {:.0f} ns", slow ? "above" : "up to", kSlowBarrierSeconds * 1e9),
           std::to_string(speeds.size()), MedianAndQuartiles(Summarize(speeds)),
           Percent(Summarize(fractions).median)});
    }
  }
  return table;
}

std::string LoadLine(const EngineBenchResult& result) {
  std::vector<double> others, steal;
  const auto add = [&](const std::optional<ForeignLoad>& load) {
    if (!load) return;
    others.push_back(load->others);
    steal.push_back(load->steal);
  };
  for (const RoundLimits& round : result.rounds) add(round.load);
  for (const PointResult& point : result.points) {
    for (const PointSample& sample : point.samples) add(sample.load);
  }
  if (others.empty()) return "other load: not available here";
  return fmt::format(
      "other load, as a share of all processors' time: others {} in the median, {} at most; stolen "
      "{}, {} at most",
      Percent(Quantile(others, 0.5)), Percent(Quantile(others, 1)), Percent(Quantile(steal, 0.5)),
      Percent(Quantile(steal, 1)));
}

std::string EngineMarkdown(const EngineBenchResult& result, const std::string& command,
                           const std::string& model) {
  std::string text = fmt::format(
      "## The engine against the machine's limits\n\n"
      "`{}`: {}; {}. Medians over {} rounds with quartiles in brackets; every round measures the "
      "limits and then each point.\n\n",
      command, model, MachineLine(), result.rounds.size());
  text += TableMarkdown(EngineTable(result));
  text +=
      "\nThe limit of decode is the time to read the weights, as the file stores them, and the K "
      "and V rows once; that of prefill is the time of its 8-bit multiply-adds at the dot-product "
      "peak and of attention's F32 multiply-adds at the fma peak. GB/s counts the same bytes, "
      "Gmadd/s the multiply-adds (two operations each). The fraction compares with the limit of "
      "the same round.\n\n"
      "Limits, measured in the same rounds:\n\n";
  text += TableMarkdown(LimitTable(result));
  const Table regimes = RegimeTable(result);
  if (!regimes.rows.empty()) {
    text += "\nSeveral threads, by the barrier latency of the round:\n\n" + TableMarkdown(regimes);
  }
  text += fmt::format("\n{}. Seed {}, digest of all logits {}; {}.\n", LoadLine(result),
                      result.seed, DigestOfPoints(result.points).Hex(),
                      DigestMismatches(result.points).empty()
                          ? "equal for every kernel table, number of threads and round"
                          : "NOT EQUAL between kernel tables, numbers of threads or rounds");
  return text;
}

std::string EngineJson(const EngineBenchResult& result, const std::string& command,
                       const std::string& model) {
  nlohmann::ordered_json json = {{"command", command},
                                 {"model", model},
                                 {"machine", MachineLine()},
                                 {"seed", result.seed},
                                 {"digest", DigestOfPoints(result.points).Hex()},
                                 {"mismatches", DigestMismatches(result.points)}};
  for (const PointResult& point : result.points) json["points"].push_back(PointJson(point));
  for (const RoundLimits& round : result.rounds) json["rounds"].push_back(RoundJson(round));
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace lockstep
