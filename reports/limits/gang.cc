#include "reports/limits/gang.h"

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "caches/check.h"
#include "engine/stopwatch.h"

namespace lockstep::internal {

double SecondsOfAll(int32_t threads, const std::function<void(int32_t)>& work) {
  LS_CHECK(threads > 0, "{} threads", threads);
  std::atomic<int32_t> ready = 0;
  std::atomic<bool> go = false;
  std::vector<std::jthread> others;
  for (int32_t i = 1; i < threads; ++i) {
    others.emplace_back([&, i] {
      ready.fetch_add(1);
      while (!go.load()) std::this_thread::yield();
      work(i);
    });
  }
  while (ready.load() < threads - 1) std::this_thread::yield();
  const Stopwatch stopwatch;
  go.store(true);
  work(0);
  others.clear();  // joins them
  return stopwatch.seconds();
}

}  // namespace lockstep::internal
