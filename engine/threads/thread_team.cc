#include "engine/thread_team.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "caches/check.h"
#include "caches/error.h"

namespace lockstep {
namespace {

// A pause takes 10 to 50 ns on the processors of the last ten years: some 10 to 40 microseconds.
constexpr int32_t kSpins = 800;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // yield is over at once on most cores
#endif
}

// Returns when `word` is no longer `old`.
void AwaitChange(const std::atomic<uint32_t>& word, uint32_t old, int32_t spins) {
  for (int32_t i = 0; i < spins; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  word.wait(old, std::memory_order_acquire);
}

}  // namespace

int32_t UsableCpus() {
  // A mask of 1024 CPUs is too short on a larger machine, where the call says so.
  for (int cpus = CPU_SETSIZE; cpus <= 64 * CPU_SETSIZE; cpus *= 4) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
        CPU_ALLOC(static_cast<size_t>(cpus)), [](cpu_set_t* mask) { CPU_FREE(mask); });
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(cpus));
    if (set != nullptr && sched_getaffinity(0, bytes, set.get()) == 0) {
      return std::max(1, CPU_COUNT_S(bytes, set.get()));
    }
  }
  return std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency()));
}

int32_t DefaultThreads() { return std::min(UsableCpus(), 8); }

PartRange PartOf(int64_t total, int32_t part, int32_t parts, int64_t grain) {
  LS_CHECK(total >= 0 && grain >= 1, "{} elements in grains of {}", total, grain);
  LS_CHECK(part >= 0 && part < parts, "part {} of {}", part, parts);
  const int64_t grains = total / grain + (total % grain != 0 ? 1 : 0);
  // The first `rest` parts take one grain more; a product of grains and parts could overflow.
  const int64_t each = grains / parts;
  const int64_t rest = grains % parts;
  const auto begin_of = [&](int64_t p) {
    return std::min(total, (p * each + std::min(p, rest)) * grain);
  };
  return {begin_of(part), begin_of(part + int64_t{1})};
}

// The threads besides the caller, and how they meet: the caller publishes a job by raising epoch_,
// whoever ends a part lowers pending_, and whoever lowers it to 0 wakes the caller.
//
// A part is claimed before it is run, by its own thread or, when that has not begun by the time the
// caller has nothing else to do, by the caller. So a thread that the system keeps waiting for a
// core delays nothing. Which thread runs a part changes nothing that the part computes.
class ThreadTeam::Crew {
 public:
  explicit Crew(int32_t size)
      : claims_(static_cast<size_t>(size)),
        errors_(static_cast<size_t>(size)),
        spins_(size <= UsableCpus() ? kSpins : 0) {
    threads_.reserve(static_cast<size_t>(size) - 1);
    try {
      for (int32_t part = 1; part < size; ++part) {
        threads_.emplace_back([this, part] { Work(part); });
      }
    } catch (const std::system_error& error) {
      const size_t started = threads_.size();
      Dismiss();
      throw Error({fmt::format("a team of {} threads", size),
                   fmt::format("the system gave {} and then said: {}", started + 1, error.what()),
                   "ask for fewer threads"});
    }
  }

  ~Crew() { Dismiss(); }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void Run(JobRef job) {
    LS_CHECK(!running_.exchange(true, std::memory_order_acquire), "a job inside or beside a job");
    job_ = job;
    pending_.store(static_cast<uint32_t>(threads_.size()), std::memory_order_relaxed);
    const uint32_t epoch = epoch_.fetch_add(1) + 1;
    epoch_.notify_all();
    Do(0);
    for (int32_t part = 1; part < std::ssize(claims_); ++part) {
      if (!Claim(part, epoch)) continue;
      Do(part);
      pending_.fetch_sub(1);
    }
    uint32_t left = pending_.load(std::memory_order_acquire);
    while (left != 0) {
      AwaitChange(pending_, left, spins_);
      left = pending_.load(std::memory_order_acquire);
    }
    running_.store(false, std::memory_order_release);
    if (failed_.load(std::memory_order_relaxed)) Rethrow();
  }

 private:
  // The last epoch in which somebody took the part.
  struct alignas(64) PartClaim {
    std::atomic<uint32_t> epoch{0};
  };

  void Work(int32_t part) {
    uint32_t epoch = 0;
    while (true) {
      AwaitChange(epoch_, epoch, spins_);
      // In this order: an epoch that is no job but the dismissal is seen together with it.
      epoch = epoch_.load(std::memory_order_acquire);
      if (dismissed_.load(std::memory_order_acquire)) return;
      // Without the claim the job may be over, and nothing of it may be touched.
      if (!Claim(part, epoch)) continue;
      Do(part);
      if (pending_.fetch_sub(1) == 1) pending_.notify_one();
    }
  }

  // Every part is claimed once in every epoch.
  bool Claim(int32_t part, uint32_t epoch) {
    uint32_t before = epoch - 1;
    return claims_[static_cast<size_t>(part)].epoch.compare_exchange_strong(
        before, epoch, std::memory_order_acq_rel);
  }

  void Do(int32_t part) {
    try {
      job_.call(job_.object, part);
    } catch (...) {
      errors_[static_cast<size_t>(part)] = std::current_exception();
      failed_.store(true, std::memory_order_relaxed);
    }
  }

  [[noreturn]] void Rethrow() {
    std::exception_ptr first;
    for (std::exception_ptr& error : errors_) {
      if (error != nullptr && first == nullptr) first = error;
      error = nullptr;
    }
    failed_.store(false, std::memory_order_relaxed);
    std::rethrow_exception(first);
  }

  void Dismiss() {
    dismissed_.store(true, std::memory_order_release);
    epoch_.fetch_add(1);
    epoch_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // Each on a cache line of its own: the one is read by all while the other is written by all.
  alignas(64) std::atomic<uint32_t> epoch_{0};
  alignas(64) std::atomic<uint32_t> pending_{0};
  // Written between jobs by the caller alone; epoch_ publishes it.
  alignas(64) JobRef job_;
  std::atomic<bool> dismissed_{false};
  std::atomic<bool> running_{false};
  std::atomic<bool> failed_{false};
  std::vector<PartClaim> claims_;           // one a part
  std::vector<std::exception_ptr> errors_;  // one a part
  const int32_t spins_;
  std::vector<std::thread> threads_;
};

ThreadTeam::ThreadTeam(int32_t size) : size_(size) {
  if (size < 1 || size > kMaxSize) {
    throw std::invalid_argument(
        fmt::format("a team of {} threads; from 1 to {} are possible", size, kMaxSize));
  }
  if (size > 1) crew_ = std::make_unique<Crew>(size);
}

ThreadTeam::~ThreadTeam() = default;

void ThreadTeam::RunParts(JobRef job) { crew_->Run(job); }

}  // namespace lockstep
