#include "ci/lockstep/decoding_flags.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "caches/error.h"
#include "ci/lockstep/shell_word.h"

namespace lockstep::cli {
namespace {

std::optional<float> ParseFloat(std::string_view text) {
  float value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (text.empty() || result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

float RequireFloat(const char* flag, const std::string& text) {
  if (const auto value = ParseFloat(text)) return *value;
  throw Error({flag, fmt::format("'{}' is no number", text), "give one in decimal"});
}

// "TOKEN=BIAS".
std::pair<int32_t, float> ParseBias(const std::string& text) {
  const size_t equals = text.find('=');
  int32_t token = 0;
  const char* end = text.data() + std::min(equals, text.size());
  const auto result = std::from_chars(text.data(), end, token);
  const auto bias =
      equals == text.npos ? std::nullopt : ParseFloat(std::string_view(text).substr(equals + 1));
  if (!bias || result.ec != std::errc() || result.ptr != end) {
    throw Error({"--logit-bias", fmt::format("'{}' is no token and its bias", text),
                 "give TOKEN=NUMBER, or TOKEN=-inf to forbid it"});
  }
  return {token, *bias};
}

}  // namespace

std::vector<Flag> DecodingFlags::Flags() {
  return {
      {"--temperature", "T", "logits are divided by it; 0: the likeliest token", &temperature_},
      {"--top-k", "K", "draw from the K likeliest tokens; 0: from all", IntTarget{&top_k_, 0}},
      {"--top-p", "P", "draw from the likeliest tokens of this share", &top_p_},
      {"--min-p", "P", "draw from tokens with this share of the likeliest one's", &min_p_},
      {"--repetition-penalty", "R", "of tokens that were there: logits are divided by it",
       &repetition_},
      {"--presence-penalty", "X", "subtracted from the logits of tokens that were there",
       &presence_},
      {"--frequency-penalty", "X", "subtracted as often as a token was there", &frequency_},
      {"--penalty-tokens", "N", "penalties look at the last N tokens; -1: at all",
       IntTarget{&penalty_tokens_, -1}},
      {"--logit-bias", "TOKEN=X", "added to a token's logit, -inf forbids it; several times",
       &biases_},
      {"--sample-seed", "N", "seed of the draws", &seed},
      {"--stop", "TEXT", "the text ends before it; several times", &stops},
      {"--logprobs", "N", "log-probabilities of each token and of the N likeliest ones",
       IntTarget{&log_probabilities, -1, 1000}},
  };
}

SamplerOptions DecodingFlags::Sampler(int32_t vocab_size) const {
  SamplerOptions options;
  for (const std::string& bias : biases_) options.logit_bias.push_back(ParseBias(bias));
  options.penalty_tokens = penalty_tokens_;
  options.repetition_penalty = RequireFloat("--repetition-penalty", repetition_);
  options.presence_penalty = RequireFloat("--presence-penalty", presence_);
  options.frequency_penalty = RequireFloat("--frequency-penalty", frequency_);
  options.temperature = RequireFloat("--temperature", temperature_);
  options.top_k = top_k_;
  options.top_p = RequireFloat("--top-p", top_p_);
  options.min_p = RequireFloat("--min-p", min_p_);
  CheckSamplerOptions(options, vocab_size);
  return options;
}

std::string DecodingFlags::CommandLine() const {
  const DecodingFlags plain;
  std::string line;
  const auto add = [&](const char* flag, const std::string& value, const std::string& otherwise) {
    if (value != otherwise) line += fmt::format(" {} {}", flag, ShellWord(value));
  };
  add("--temperature", temperature_, plain.temperature_);
  add("--top-k", std::to_string(top_k_), std::to_string(plain.top_k_));
  add("--top-p", top_p_, plain.top_p_);
  add("--min-p", min_p_, plain.min_p_);
  add("--repetition-penalty", repetition_, plain.repetition_);
  add("--presence-penalty", presence_, plain.presence_);
  add("--frequency-penalty", frequency_, plain.frequency_);
  add("--penalty-tokens", std::to_string(penalty_tokens_), std::to_string(plain.penalty_tokens_));
  for (const std::string& bias : biases_) line += " --logit-bias " + ShellWord(bias);
  if (temperature_ != plain.temperature_) line += fmt::format(" --sample-seed {}", seed);
  for (const std::string& stop : stops) line += " --stop " + ShellWord(stop);
  add("--logprobs", std::to_string(log_probabilities), std::to_string(plain.log_probabilities));
  return line;
}

void PrintLogProbabilities(const GenerateResult& result) {
  for (size_t i = 0; i < result.log_probabilities.size(); ++i) {
    const TokenLogProbability& token = result.log_probabilities[i];
    fmt::print(stderr, "token {} {:.6f}", result.tokens[i], token.chosen);
    for (const auto& [other, value] : token.top) fmt::print(stderr, " | {} {:.6f}", other, value);
    fmt::print(stderr, "\n");
  }
}

Flag AdapterFlags::AsFlag() {
  return {"--lora", "FILE[=SCALE]", "a LoRA adapter as GGUF; several times", &files};
}

std::vector<AppliedAdapter> AdapterFlags::Load(const ModelConfig& config) const {
  std::vector<AppliedAdapter> adapters;
  for (const std::string& text : files) {
    AppliedAdapter applied;
    std::string path = text;
    // A path may hold '=' too: what follows the last one is a scale if it is a number.
    const size_t equals = text.rfind('=');
    const auto scale =
        equals == text.npos ? std::nullopt : ParseFloat(std::string_view(text).substr(equals + 1));
    if (scale) {
      path = text.substr(0, equals);
      applied.scale = *scale;
    }
    if (!std::isfinite(applied.scale)) {
      throw Error(
          {"--lora", fmt::format("the scale {} is not finite", applied.scale), "give FILE=NUMBER"});
    }
    applied.adapter = LoraAdapter::Load(*GgufFile::Open(path), config);
    adapters.push_back(std::move(applied));
  }
  return adapters;
}

std::string AdapterFlags::CommandLine() const {
  std::string line;
  for (const std::string& file : files) line += " --lora " + ShellWord(file);
  return line;
}

}  // namespace lockstep::cli
