#include "caches/device/block_team.h"

#include <utility>

#include "caches/check.h"

namespace lockstep {

BlockTeam::BlockTeam(int32_t threads) {
  LS_CHECK(threads >= 1, "{} threads", threads);
  for (int32_t member = 1; member < threads; ++member) {
    threads_.emplace_back([this, member] { Serve(member); });
  }
}

BlockTeam::~BlockTeam() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  begin_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void BlockTeam::Run(int64_t blocks, RunBlock run, void* job) {
  if (blocks <= 1 || threads_.empty()) {
    for (int64_t block = 0; block < blocks; ++block) run(job, 0, block);
    return;
  }
  run_ = run;
  job_ = job;
  blocks_ = blocks;
  next_ = 0;
  {
    const std::lock_guard lock(mutex_);
    ++launch_;
    working_ = static_cast<int32_t>(threads_.size());
  }
  begin_.notify_all();
  TakeBlocks(0);
  std::unique_lock lock(mutex_);
  end_.wait(lock, [this] { return working_ == 0; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void BlockTeam::Serve(int32_t member) {
  uint64_t served = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    begin_.wait(lock, [&] { return stop_ || launch_ != served; });
    if (stop_) return;
    served = launch_;
    lock.unlock();
    TakeBlocks(member);
    lock.lock();
    if (--working_ == 0) end_.notify_one();
  }
}

void BlockTeam::TakeBlocks(int32_t member) {
  try {
    for (int64_t block = next_++; block < blocks_; block = next_++) run_(job_, member, block);
  } catch (...) {
    next_ = blocks_;
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

}  // namespace lockstep
