// Host threads that share the blocks of a launch. They live as long as the team and sleep between
// launches.
#ifndef LOCKSTEP_CACHES_DEVICE_BLOCK_TEAM_H_
#define LOCKSTEP_CACHES_DEVICE_BLOCK_TEAM_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep {

class BlockTeam {
 public:
  // run(job, member, block) of [0, blocks); members are numbered from 0, the calling thread.
  using RunBlock = void (*)(void* job, int32_t member, int64_t block);

  explicit BlockTeam(int32_t threads);  // threads >= 1, the calling thread included
  ~BlockTeam();
  BlockTeam(const BlockTeam&) = delete;
  BlockTeam& operator=(const BlockTeam&) = delete;

  int32_t size() const { return static_cast<int32_t>(threads_.size()) + 1; }

  // Returns when all blocks are done. After an exception no further block begins; one of those that
  // were thrown comes out. Allocates nothing.
  void Run(int64_t blocks, RunBlock run, void* job);

 private:
  void Serve(int32_t member);
  void TakeBlocks(int32_t member);

  std::mutex mutex_;
  std::condition_variable begin_;
  std::condition_variable end_;
  uint64_t launch_ = 0;  // guarded by mutex_, as are the next three
  int32_t working_ = 0;  // own threads that have not finished the launch
  bool stop_ = false;
  std::exception_ptr error_;
  RunBlock run_ = nullptr;  // of the launch: written before it begins
  void* job_ = nullptr;
  int64_t blocks_ = 0;
  std::atomic<int64_t> next_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_DEVICE_BLOCK_TEAM_H_
