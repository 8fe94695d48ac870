#include "golden/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <tuple>

#include "engine/trace.h"

namespace lockstep {
namespace {

// In the order in which they stand in a step or behind an operation; stages in that of trace.h.
constexpr std::array<std::string_view, 2> kBeforeStages = {"run", "input"};
constexpr std::array<std::string_view, 7> kAfterStages = {"top5", "sum",    "outcome", "length",
                                                          "rows", "stored", "gate"};
constexpr int kStages = static_cast<int>(Stage::kLogits) + 1;

// -1: no name of a fact.
int NameRank(std::string_view base) {
  const auto before = std::ranges::find(kBeforeStages, base);
  if (before != kBeforeStages.end()) return static_cast<int>(before - kBeforeStages.begin());
  constexpr int kFirstStage = static_cast<int>(kBeforeStages.size());
  for (int stage = 0; stage < kStages; ++stage) {
    if (StageName(static_cast<Stage>(stage)) == base) return kFirstStage + stage;
  }
  const auto after = std::ranges::find(kAfterStages, base);
  if (after == kAfterStages.end()) return -1;
  return kFirstStage + kStages + static_cast<int>(after - kAfterStages.begin());
}

std::string_view BaseName(std::string_view name) {
  return name.substr(0, name.find_first_of("@["));
}

auto OrderKey(const Fact& fact) {
  const int rank = NameRank(fact.base_name());
  // What an operation left comes after its steps, and what belongs to no layer before or after all.
  const int phase = fact.step >= 0 ? 1 : fact.name == "run" ? 0 : 2;
  const bool first =
      fact.base_name() == "input" || fact.base_name() == StageName(Stage::kEmbedding);
  const int32_t layer = fact.layer >= 0 || first ? fact.layer : std::numeric_limits<int32_t>::max();
  return std::make_tuple(fact.op, phase, fact.step, fact.sequence, layer, rank,
                         std::string_view(fact.name));
}

// The header's lines as facts of operation -1.
std::vector<Fact> HeaderFacts(const GoldenHeader& header) {
  return {{.op = -1, .name = "scenario", .value = header.scenario.Hex()},
          {.op = -1, .name = "model", .value = header.model.Hex()},
          {.op = -1, .name = "rows", .value = header.rows},
          {.op = -1, .name = "arithmetic", .value = fmt::format("{}", header.arithmetic)}};
}

Digest DigestOfFacts(std::span<const Fact> facts) {
  DigestBuilder digest;
  for (const Fact& fact : facts) {
    digest.AddText(fact.Place());
    digest.AddText(fact.value);
  }
  return digest.Finish();
}

}  // namespace

std::string_view Fact::base_name() const { return BaseName(name); }

std::string Fact::Place() const {
  if (op < 0) return name;
  std::string text = fmt::format("op{} ", op);
  if (step >= 0) text += fmt::format("step{} ", step);
  if (sequence >= 0) text += fmt::format("seq{} ", sequence);
  if (layer >= 0) text += fmt::format("layer{} ", layer);
  return text + name;
}

bool FactBefore(const Fact& a, const Fact& b) { return OrderKey(a) < OrderKey(b); }

bool IsFactName(std::string_view name) { return NameRank(BaseName(name)) >= 0; }

std::string GoldenFile::Text() const {
  std::string text = fmt::format("golden {}\n", kGoldenFormat);
  for (const Fact& line : HeaderFacts(header))
    text += fmt::format("{} {}\n", line.name, line.value);
  text += fmt::format("recorded-by {}\n\n", header.recorded_by);
  for (const Fact& fact : facts) text += fmt::format("{} {}\n", fact.Place(), fact.value);
  return text + fmt::format("end {} {}\n", facts.size(), DigestOfFacts(facts).Hex());
}

Digest GoldenFile::Identity() const {
  DigestBuilder digest;
  for (const Fact& line : HeaderFacts(header)) digest.AddText(line.value);
  const Digest rest = DigestOfFacts(facts);
  digest.AddU64(rest.high);
  digest.AddU64(rest.low);
  return digest.Finish();
}

GoldenFile FactsOfCache(const GoldenFile& golden, std::string_view cache) {
  GoldenFile result{golden.header, {}};
  const std::string own = fmt::format("gate[{}]", cache);
  for (const Fact& fact : golden.facts) {
    if (fact.base_name() != "gate" || fact.name == own) result.facts.push_back(fact);
  }
  return result;
}

std::string FactChange::Sentence() const {
  switch (kind) {
    case Kind::kChanged:
      return fmt::format("{}: {} instead of {}", place.Place(), new_value, old_value);
    case Kind::kMissing:
      return fmt::format("{}: is gone, it was {}", place.Place(), old_value);
    case Kind::kAdded:
      return fmt::format("{}: is new: {}", place.Place(), new_value);
  }
  return {};
}

std::vector<FactChange> CompareGoldens(const GoldenFile& before, const GoldenFile& after) {
  std::vector<FactChange> changes;
  const auto old_header = HeaderFacts(before.header);
  const auto new_header = HeaderFacts(after.header);
  for (size_t i = 0; i < old_header.size(); ++i) {
    if (old_header[i].value == new_header[i].value) continue;
    changes.push_back({.place = old_header[i],
                       .old_value = old_header[i].value,
                       .new_value = new_header[i].value});
  }
  auto a = before.facts.begin();
  auto b = after.facts.begin();
  while (a != before.facts.end() || b != after.facts.end()) {
    const bool only_old = b == after.facts.end() || (a != before.facts.end() && FactBefore(*a, *b));
    const bool only_new = !only_old && (a == before.facts.end() || FactBefore(*b, *a));
    FactChange change{.place = only_new ? *b : *a};
    change.kind = only_old   ? FactChange::Kind::kMissing
                  : only_new ? FactChange::Kind::kAdded
                             : FactChange::Kind::kChanged;
    if (!only_new) change.old_value = (a++)->value;
    if (!only_old) change.new_value = (b++)->value;
    if (change.old_value != change.new_value && change.place.name != "sum") {
      changes.push_back(std::move(change));
    }
  }
  return changes;
}

std::string ElementText(float value) {
  const uint32_t bits = CanonicalBits(value);
  return fmt::format("0x{:08x} {}", bits, std::bit_cast<float>(bits));
}

std::string SumOfFacts(std::span<const Fact> facts) { return DigestOfFacts(facts).Hex(); }

}  // namespace lockstep
