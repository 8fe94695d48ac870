#include "golden/record/writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

constexpr size_t kTopTokens = 5;

std::string PositionsText(std::span<const int32_t> positions) {
  const bool run = positions.back() - positions.front() + 1 == std::ssize(positions);
  if (positions.size() > 2 && run) {
    return fmt::format("{}..{}", positions.front(), positions.back());
  }
  return fmt::format("{}", fmt::join(positions, ","));
}

// Largest first, the lower id where logits are equal; NaNs are last.
std::string TopText(std::span<const float> logits) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto greater = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)];
    const float y = logits[static_cast<size_t>(b)];
    if (x > y || x < y) return x > y;
    const bool nan_x = std::isnan(x);
    const bool nan_y = std::isnan(y);
    return nan_x != nan_y ? nan_y : a < b;
  };
  const auto top = static_cast<int64_t>(std::min(kTopTokens, ids.size()));
  std::partial_sort(ids.begin(), ids.begin() + top, ids.end(), greater);
  ids.resize(static_cast<size_t>(top));
  return fmt::format("{}", fmt::join(ids, " "));
}

// What a reader wants to see of a step in numbers: the last row that the last layer put into the
// cache, and what came out of it.
bool ShowsElement(const RecordingTrace::Entry& entry, int32_t layers) {
  return entry.layer == layers - 1 &&
         (entry.stage == Stage::kCacheKey || entry.stage == Stage::kCacheValue ||
          entry.stage == Stage::kAttnOut);
}

std::string HashText(const std::function<Digest()>& hash) {
  try {
    return hash().Hex();
  } catch (const std::exception& error) {
    return fmt::format("unreadable: {}", error.what());
  }
}

}  // namespace

void FactWriter::Begin(int32_t op, const std::string& text) {
  op_ = op;
  Add({.op = op, .name = "run", .value = text});
}

void FactWriter::Stages(const RecordedStep& step, Fact fact, int32_t layers) {
  for (const RecordingTrace::Entry& entry : step.entries) {
    // What the engine returned stands for its trace.
    if (entry.stage == Stage::kLogits || entry.rows.empty()) continue;
    fact.layer = entry.layer >= layers ? -1 : entry.layer;
    fact.name = StageName(entry.stage);
    fact.value = DigestOfFloats(entry.rows).Hex();
    Add(fact);
    if (!ShowsElement(entry, layers)) continue;
    const int64_t element = entry.width / 2;
    fact.name += fmt::format("@{}:{}", entry.positions.back(), element);
    fact.value = ElementText(entry.rows[entry.rows.size() - static_cast<size_t>(entry.width) +
                                        static_cast<size_t>(element)]);
    Add(fact);
  }
}

void FactWriter::Step(const RecordedStep& step, int32_t number) {
  Fact fact{.op = op_, .step = number, .sequence = step.sequence};
  const auto first = static_cast<int64_t>(facts_.size());
  fact.name = "input";
  fact.value =
      fmt::format("at={} ids={}", PositionsText(step.positions), fmt::join(step.tokens, ","));
  Add(fact);
  int32_t layers = 0;
  for (const RecordingTrace::Entry& entry : step.entries) {
    if (entry.stage == Stage::kFfnOut) layers = std::max(layers, entry.layer + 1);
  }
  Stages(step, fact, layers);
  if (!step.logits.empty()) {
    fact.layer = -1;
    fact.name = "logits";
    fact.value = DigestOfFloats(step.logits).Hex();
    Add(fact);
    const int32_t best = ArgMax(step.logits);
    fact.name = fmt::format("logits@{}:{}", step.positions.back(), best);
    fact.value = ElementText(step.logits[static_cast<size_t>(best)]);
    Add(fact);
    fact.name = "top5";
    fact.value = TopText(step.logits);
    Add(fact);
  }
  std::vector<Fact> facts(facts_.begin() + first, facts_.end());
  facts_.resize(static_cast<size_t>(first));
  std::ranges::stable_sort(facts, FactBefore);
  // Sums of what stands above them, layer by layer.
  for (size_t i = 0; i < facts.size(); ++i) {
    Add(facts[i]);
    const int32_t layer = facts[i].layer;
    if (layer < 0 || (i + 1 < facts.size() && facts[i + 1].layer == layer)) continue;
    auto begin = facts_.end();
    while (begin != facts_.begin() + first && std::prev(begin)->layer == layer) --begin;
    Fact sum = facts[i];
    sum.name = "sum";
    sum.value = SumOfFacts({begin, facts_.end()});
    Add(sum);
  }
  fact.layer = -1;
  fact.name = "sum";
  fact.value = SumOfFacts(std::span(facts_).subspan(static_cast<size_t>(first)));
  Add(fact);
}

void FactWriter::Outcome(const std::string& outcome) {
  Add({.op = op_, .name = "outcome", .value = outcome});
}

void FactWriter::State(int32_t sequence, const KvCache& cache) {
  Fact fact{.op = op_, .sequence = sequence};
  std::vector<int32_t> lengths;
  for (int32_t layer = 0; layer < cache.geometry().num_layers; ++layer) {
    lengths.push_back(cache.length(layer));
  }
  const bool equal = std::ranges::count(lengths, lengths[0]) == std::ssize(lengths);
  if (equal) lengths.resize(1);
  fact.name = "length";
  fact.value = fmt::format("{}", fmt::join(lengths, ","));
  Add(fact);
  fact.name = "rows";
  fact.value = HashText([&] { return DigestOfCache(cache); });
  Add(fact);
  // F32 rows are stored as they read.
  if (cache.key_type() == RowType::kF32 && cache.value_type() == RowType::kF32) return;
  fact.name = "stored";
  fact.value = HashText([&] { return cache.StorageDigest(); });
  Add(fact);
}

void FactWriter::Gate(int32_t sequence, const std::string& cache, const PathCounts& counts) {
  Add({.op = op_,
       .sequence = sequence,
       .name = fmt::format("gate[{}]", cache),
       .value = fmt::format("granted={} refused={} commits={} updates={}", counts.granted,
                            counts.refused, counts.commits, counts.updates)});
}

std::vector<Fact> FactWriter::Finish() {
  std::ranges::stable_sort(facts_, FactBefore);
  return std::move(facts_);
}

}  // namespace lockstep
