#include <algorithm>
#include <atomic>
#include <thread>

#include "caches/check.h"
#include "engine/stopwatch.h"
#include "engine/thread_team.h"
#include "reports/limits.h"
#include "reports/limits/gang.h"
#include "reports/limits/huge_buffer.h"
#include "reports/limits/isa_list.h"

namespace lockstep {
namespace {

using internal::IsaLimits;
using internal::PeakLoop;

constexpr size_t kReadUnit = 4096;  // what IsaLimits::read asks for
constexpr size_t kLine = 64;

// What loops compute ends here, so that no loop is left out.
std::atomic<uint64_t> sink = 0;

// Multiply-adds a second of all threads; 0 for a loop that there is not.
double Peak(const PeakLoop& loop, int32_t threads, const LimitOptions& options) {
  if (loop.run == nullptr) return 0;
  int64_t iterations = 1024;
  double best = 0;
  for (int attempt = 0; attempt < options.attempts;) {
    const double taken =
        internal::SecondsOfAll(threads, [&](int32_t) { sink.fetch_xor(loop.run(iterations)); });
    if (taken < options.seconds) {
      iterations *= 2;
      continue;
    }
    best = std::max(best, threads * loop.multiply_adds * static_cast<double>(iterations) / taken);
    ++attempt;
  }
  return best;
}

// Bytes a second, the best over numbers of streams. REQUIRES: bytes 64-byte aligned.
double Bandwidth(std::span<const std::byte> bytes, int32_t threads, int attempts) {
  const IsaLimits& isa = *internal::AvailableIsaLimits().back();
  const size_t part = bytes.size() / static_cast<size_t>(threads) / kReadUnit * kReadUnit;
  double best = 0;
  for (int streams : {1, 2, 4}) {
    for (int attempt = 0; attempt < attempts; ++attempt) {
      const double taken = internal::SecondsOfAll(threads, [&](int32_t thread) {
        const auto own = bytes.subspan(static_cast<size_t>(thread) * part, part);
        sink.fetch_xor(isa.read(own.data(), own.size(), streams));
      });
      best = std::max(best, static_cast<double>(part) * threads / taken);
    }
  }
  return best;
}

// One thread writes odd numbers, the other the even ones that follow; each waits for its turn.
double SecondsOfExchange(int32_t turns) {
  struct alignas(128) Line {
    std::atomic<int32_t> turn = 0;
  } line;
  const auto play = [&](int32_t player) {
    for (int32_t turn = player; turn < turns; turn += 2) {
      // Where the two share a processor after all, waiting must not keep it.
      for (int spins = 0; line.turn.load(std::memory_order_acquire) != turn; ++spins) {
        if (spins > 1000) std::this_thread::yield();
      }
      line.turn.store(turn + 1, std::memory_order_release);
    }
  };
  return internal::SecondsOfAll(2, play);
}

}  // namespace

struct MachineLimits::Impl {
  explicit Impl(const LimitOptions& limit_options)
      : options(limit_options), memory(static_cast<size_t>(limit_options.read_bytes)) {}

  LimitOptions options;
  internal::HugeBuffer memory;
};

MachineLimits::MachineLimits(const LimitOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}

MachineLimits::~MachineLimits() = default;

std::vector<std::string_view> MachineLimits::instruction_sets() const {
  std::vector<std::string_view> names;
  for (const IsaLimits* isa : internal::AvailableIsaLimits()) names.push_back(isa->name);
  return names;
}

double MachineLimits::ReadBandwidth(int32_t threads) {
  LS_CHECK(threads > 0, "{} threads", threads);
  return Bandwidth(impl_->memory.bytes(), threads, impl_->options.attempts);
}

double MachineLimits::ReadBandwidthOf(std::span<const std::byte> memory) {
  LS_CHECK(memory.size() >= kOwnMemoryMin, "{} bytes", memory.size());
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return Bandwidth(memory.subspan((kLine - address % kLine) % kLine), 1, impl_->options.attempts);
}

std::optional<double> MachineLimits::FmaPeak(std::string_view isa_name, int32_t threads) {
  const IsaLimits* isa = internal::FindIsaLimits(isa_name);
  if (isa == nullptr) return {};
  return Peak(isa->fma, threads, impl_->options);
}

std::optional<double> MachineLimits::DotPeak(std::string_view isa_name, int32_t threads) {
  const IsaLimits* isa = internal::FindIsaLimits(isa_name);
  if (isa == nullptr) return {};
  double best = 0;
  for (const PeakLoop& loop : isa->dots) {
    best = std::max(best, Peak(loop, threads, impl_->options));
  }
  return best;
}

std::optional<double> MachineLimits::BarrierLatency() {
  if (UsableCpus() < 2) return {};
  // Short attempts: one in which the system took a processor away says nothing.
  constexpr int32_t kTurns = 200;
  constexpr double kSeconds = 0.01;
  const Stopwatch stopwatch;
  double best = SecondsOfExchange(kTurns);
  while (stopwatch.seconds() < kSeconds) best = std::min(best, SecondsOfExchange(kTurns));
  return best / kTurns;
}

std::string_view InstructionSetOf(std::string_view kernels,
                                  const std::vector<std::string_view>& instruction_sets) {
  LS_CHECK(!instruction_sets.empty(), "no instruction set for {}", kernels);
  std::string_view best;
  for (std::string_view name : instruction_sets) {
    if (kernels.starts_with(name) && name.size() > best.size()) best = name;
  }
  return best.empty() ? instruction_sets.back() : best;
}

}  // namespace lockstep
