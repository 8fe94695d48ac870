#include "ci/shard/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "caches/check.h"
#include "caches/error.h"
#include "caches/file_io.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kFormat = "lockstep shard 1";
constexpr int32_t kShardsMax = 100'000;

bool ParseCount(std::string_view text, int32_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && *value >= 1 &&
         *value <= kShardsMax;
}

uint64_t ParseHex(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) throw std::invalid_argument("hex");
  return value;
}

Digest ParseDigest(const std::string& text) {
  if (text.size() != 32) throw std::invalid_argument("digest");
  return {ParseHex(std::string_view(text).substr(0, 16)),
          ParseHex(std::string_view(text).substr(16))};
}

// How many of the campaign's inputs are a shard's.
int64_t InputsOf(const ShardResult& result) {
  const int64_t rest = result.inputs_of_all - (result.shard.index - 1);
  return rest <= 0 ? 0 : (rest + result.shard.count - 1) / result.shard.count;
}

void RequireOneCampaign(const ShardResult& a, const std::string& name_a, const ShardResult& b,
                        const std::string& name_b) {
  const auto refuse = [&](std::string_view what, const std::string& of_a, const std::string& of_b) {
    throw Error({fmt::format("{} and {}", name_a, name_b),
                 fmt::format("are of different {}: '{}' and '{}'", what, of_a, of_b),
                 "give the shards of one campaign of one build"});
  };
  if (a.build != b.build) refuse("builds", a.build, b.build);
  if (a.campaign != b.campaign) refuse("campaigns", a.campaign, b.campaign);
  if (a.shard.count != b.shard.count || a.inputs_of_all != b.inputs_of_all) {
    refuse("cuts", fmt::format("{} shards of {} inputs", a.shard.count, a.inputs_of_all),
           fmt::format("{} shards of {} inputs", b.shard.count, b.inputs_of_all));
  }
}

}  // namespace

std::string Shard::Text() const { return fmt::format("{}/{}", index, count); }

Shard ParseShard(std::string_view text) {
  Shard shard;
  const size_t slash = text.find('/');
  if (slash == text.npos || !ParseCount(text.substr(0, slash), &shard.index) ||
      !ParseCount(text.substr(slash + 1), &shard.count) || shard.index > shard.count) {
    throw Error(
        {"--shard", fmt::format("'{}' is no shard", text), "give i/n, i from 1 to n, such as 2/7"});
  }
  return shard;
}

Digest SumOfDigests(const Digest& a, const Digest& b) {
  Digest sum{a.high + b.high, a.low + b.low};
  if (sum.low < a.low) ++sum.high;
  return sum;
}

void ShardResult::Add(int64_t input, std::string_view gave) {
  DigestBuilder builder;
  builder.AddU64(static_cast<uint64_t>(input));
  builder.AddText(gave);
  sum = SumOfDigests(sum, builder.Finish());
  ++inputs;
}

std::string BuildDigest() { return DigestOfBytes(ReadWholeFile("/proc/self/exe")).Hex(); }

std::string ShardJson(const ShardResult& result) {
  auto findings = ordered_json::array();
  for (const ShardFinding& finding : result.findings) {
    findings.push_back(
        {{"place", finding.place}, {"what", finding.what}, {"input", finding.input}});
  }
  const ordered_json object = {{"format", kFormat},
                               {"build", result.build},
                               {"campaign", result.campaign},
                               {"shard", result.shard.Text()},
                               {"inputs_of_all", result.inputs_of_all},
                               {"inputs", result.inputs},
                               {"sum", result.sum.Hex()},
                               {"counters", result.counters},
                               {"findings", findings}};
  return object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void WriteShardFile(const std::string& path, std::string_view shard, ShardResult result) {
  if (path.empty()) return;
  result.build = BuildDigest();
  result.shard = ParseShard(shard);
  WriteWholeTextFile(path, ShardJson(result));
}

ShardResult ParseShardJson(std::string_view json, std::string_view where) {
  try {
    const ordered_json object = ordered_json::parse(json);
    if (object.at("format").get<std::string>() != kFormat) throw std::invalid_argument("format");
    ShardResult result{.build = object.at("build"),
                       .campaign = object.at("campaign"),
                       .shard = ParseShard(object.at("shard").get<std::string>()),
                       .inputs_of_all = object.at("inputs_of_all"),
                       .inputs = object.at("inputs"),
                       .sum = ParseDigest(object.at("sum")),
                       .counters = object.at("counters").get<std::map<std::string, int64_t>>(),
                       .findings = {}};
    for (const auto& finding : object.at("findings")) {
      result.findings.push_back({finding.at("place"), finding.at("what"), finding.at("input")});
    }
    return result;
  } catch (const std::exception& error) {
    throw Error({std::string(where), fmt::format("is no result of a shard: {}", error.what()),
                 "give files that --shard-file wrote"});
  }
}

MergedShards MergeShards(std::span<const ShardResult> results, std::span<const std::string> names) {
  LS_CHECK(!results.empty() && results.size() == names.size(), "{} results, {} names",
           results.size(), names.size());
  std::map<int32_t, const ShardResult*> first;
  std::set<int32_t> repeated;
  std::set<int32_t> disagree;
  for (size_t i = 0; i < results.size(); ++i) {
    RequireOneCampaign(results[0], names[0], results[i], names[i]);
    const auto [known, is_new] = first.try_emplace(results[i].shard.index, &results[i]);
    if (is_new) continue;
    (*known->second == results[i] ? repeated : disagree).insert(results[i].shard.index);
  }
  MergedShards merged;
  merged.whole = {.build = results[0].build,
                  .campaign = results[0].campaign,
                  .shard = {},
                  .inputs_of_all = results[0].inputs_of_all,
                  .sum = {},
                  .counters = {},
                  .findings = {}};
  std::map<std::string, ShardFinding> findings;  // by place
  for (int32_t index = 1; index <= results[0].shard.count; ++index) {
    const auto found = first.find(index);
    if (found == first.end()) {
      merged.missing.push_back(index);
      continue;
    }
    const ShardResult& shard = *found->second;
    if (shard.inputs < InputsOf(shard)) merged.unfinished.push_back(index);
    merged.whole.inputs += shard.inputs;
    merged.whole.sum = SumOfDigests(merged.whole.sum, shard.sum);
    for (const auto& [name, count] : shard.counters) merged.whole.counters[name] += count;
    for (const ShardFinding& finding : shard.findings) {
      const auto [known, is_new] = findings.try_emplace(finding.place, finding);
      // The shortest of one place, whichever shard had it.
      const auto size = [](const ShardFinding& f) { return std::pair(f.input.size(), f.input); };
      if (!is_new && size(finding) < size(known->second)) known->second = finding;
    }
  }
  for (const auto& [place, finding] : findings) merged.whole.findings.push_back(finding);
  merged.repeated.assign(repeated.begin(), repeated.end());
  merged.disagree.assign(disagree.begin(), disagree.end());
  return merged;
}

}  // namespace lockstep
