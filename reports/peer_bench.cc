#include "reports/peer_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "caches/error.h"
#include "engine/kernels.h"
#include "reports/peer/process.h"

namespace lockstep {
namespace {

// Their logits are looked at every kStride positions, which their library makes slow.
constexpr int32_t kStride = 7;
constexpr int32_t kOnceSamples = 6;  // prompts of ours that are computed in one step
constexpr int kAnswerSeconds = 300;

class PeerBench {
 public:
  PeerBench(std::shared_ptr<const Model> model, const PeerBenchOptions& options)
      : options_(options),
        limits_(options.limits),
        meter_(std::move(model), {.max_positions = Positions(options),
                                  .decode_tokens = options.decode_tokens,
                                  .seed = options.seed}),
        driver_(Command(options), kAnswerSeconds) {
    if (options_.isa.empty()) options_.isa = SelectKernels().name;
    SelectKernels(options_.isa);
    meter_.CheckCache(options_.cache);
    result_.seed = options_.seed;
    const nlohmann::json hello = Parse(driver_.ReadLine());
    for (const char* field : {"library", "llama", "system"}) {
      if (!hello.contains(field)) continue;
      result_.peer += (result_.peer.empty() ? "" : ", ") + hello[field].get<std::string>();
    }
  }

  PeerBenchResult Run() {
    MakePoints();
    const auto total = static_cast<int32_t>(result_.points.size()) * options_.rounds;
    int32_t done = 0;
    for (int32_t round = 0; round < options_.rounds; ++round) {
      std::vector<LimitSample> limits;
      for (int32_t threads : options_.threads) {
        limits.push_back(MeasureLimits(&limits_, {&options_.isa, 1}, threads).front());
      }
      const auto barrier = limits_.BarrierLatency();
      for (PeerPoint& point : result_.points) {
        PeerRound sample = Measure(point.point);
        const auto limit = std::ranges::find(limits, point.point.threads, &LimitSample::threads);
        sample.limit = SecondsAtBest(point.point.phase, meter_.WorkOf(point.point), *limit);
        sample.barrier_seconds = barrier;
        point.rounds.push_back(sample);
        if (options_.on_sample) options_.on_sample(++done, total);
      }
    }
    if (options_.bits_tokens > 0) CompareBits();
    return std::move(result_);
  }

 private:
  static int32_t Positions(const PeerBenchOptions& options) {
    int32_t positions = std::max(options.bits_tokens, 1);
    for (int32_t tokens : options.prefills) positions = std::max(positions, tokens);
    for (int32_t depth : options.depths) {
      positions = std::max(positions, depth + options.decode_tokens);
    }
    return positions;
  }

  static std::vector<std::string> Command(const PeerBenchOptions& options) {
    std::vector<std::string> command = options.command;
    command.push_back(options.model_path);
    // llama.cpp wants a multiple of 256.
    command.push_back(std::to_string((Positions(options) + 255) / 256 * 256));
    return command;
  }

  nlohmann::json Parse(const std::string& line) const {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || json.contains("error")) {
      throw Error({"peer", fmt::format("answered {}", line), "run its driver by hand"});
    }
    return json;
  }

  nlohmann::json Ask(const std::string& request) { return Parse(driver_.Ask(request)); }

  void MakePoints() {
    for (int32_t threads : options_.threads) {
      for (int32_t tokens : options_.prefills) {
        Add({Phase::kPrefill, tokens, options_.cache, options_.isa, threads});
      }
      for (int32_t depth : options_.depths) {
        Add({Phase::kDecode, depth, options_.cache, options_.isa, threads});
      }
    }
  }

  void Add(const EnginePoint& point) {
    result_.points.push_back({.point = point, .tokens = meter_.TokensOf(point)});
  }

  double Theirs(const EnginePoint& point) {
    const std::string request =
        point.phase == Phase::kPrefill
            ? fmt::format("prefill {} {}", point.tokens, point.threads)
            : fmt::format("decode {} {} {}", options_.decode_tokens, point.tokens, point.threads);
    return Ask(request).at("seconds").get<double>();
  }

  PeerRound Measure(const EnginePoint& point) {
    PeerRound round;
    const Timing first = meter_.Measure(point);
    round.load = first.load;
    round.ours = first.seconds;
    round.theirs = Theirs(point);
    round.theirs += Theirs(point);
    round.ours += meter_.Measure(point).seconds;
    round.ours /= 2;
    round.theirs /= 2;
    return round;
  }

  std::vector<std::string> TheirDigests(int32_t batch, int32_t threads) {
    const auto request =
        fmt::format("bits {} {} {} {}", options_.bits_tokens, batch, threads, kStride);
    return Ask(request).at("digests").get<std::vector<std::string>>();
  }

  template <typename Digests>
  static int32_t Changed(const Digests& a, const Digests& b) {
    if (a.size() != b.size()) throw Error({"peer", "gave another number of digests", "look there"});
    int32_t changed = 0;
    for (size_t i = 0; i < a.size(); ++i) changed += a[i] == b[i] ? 0 : 1;
    return changed;
  }

  void CompareBits() {
    const int32_t count = options_.bits_tokens;
    const EnginePoint one = {Phase::kPrefill, count, options_.cache, options_.isa, 1};
    EnginePoint two = one;
    two.threads = 2;
    const auto ours = meter_.LogitsInSteps(one, count, 1, kStride);
    const auto theirs = TheirDigests(1, 1);
    const auto add = [&](const std::string& how, const std::vector<Digest>& our_digests,
                         const std::vector<std::string>& their_digests) {
      result_.bits.push_back({how, Changed(ours, our_digests), static_cast<int32_t>(ours.size()),
                              Changed(theirs, their_digests), static_cast<int32_t>(theirs.size())});
    };
    add(fmt::format("steps of {} tokens, 1 thread", kStride),
        meter_.LogitsInSteps(one, count, kStride, kStride), TheirDigests(kStride, 1));
    add("steps of 1 token, 2 threads", meter_.LogitsInSteps(two, count, 1, kStride),
        TheirDigests(1, 2));
    // Ours gives the logits of a step's last token: a prompt for each position that is looked at.
    ChangedBits once = {fmt::format("one step of {} tokens, 1 thread", count), 0, 0, 0, 0};
    const auto samples = std::min<int32_t>(kOnceSamples, static_cast<int32_t>(ours.size()));
    for (int32_t i = 1; i <= samples; ++i) {
      const auto index = static_cast<int32_t>(ours.size()) * i / samples - 1;
      const Digest digest = meter_.LogitsAtOnce(one, (index + 1) * kStride);
      once.ours_changed += digest == ours[static_cast<size_t>(index)] ? 0 : 1;
      ++once.ours_compared;
    }
    once.theirs_changed = Changed(theirs, TheirDigests(count, 1));
    once.theirs_compared = static_cast<int32_t>(theirs.size());
    result_.bits.push_back(once);
  }

  PeerBenchOptions options_;
  MachineLimits limits_;
  EngineMeter meter_;
  internal::LineProcess driver_;
  PeerBenchResult result_;
};

}  // namespace

bool PeerBenchResult::ours_is_invariant() const {
  return std::ranges::all_of(bits, [](const ChangedBits& b) { return b.ours_changed == 0; });
}

PeerBenchResult RunPeerBench(std::shared_ptr<const Model> model, const PeerBenchOptions& options) {
  return PeerBench(std::move(model), options).Run();
}

}  // namespace lockstep
