// A fixed team of threads that does one job at a time, cut into one part a thread.
//
// The cut is static and over outputs: which part computes an element is known before the job
// starts, no element is computed by two parts, and nothing is ever added up across parts. So the
// number of threads changes no bit.
//
// A decode step hands out some 150 short jobs a token. A thread that waits therefore spins for a
// few tens of microseconds before it sleeps, but not at all in a team that is larger than the
// number of CPUs that the process may use: there it would keep a core from the one it waits for.
#ifndef LOCKSTEP_ENGINE_THREAD_TEAM_H_
#define LOCKSTEP_ENGINE_THREAD_TEAM_H_

#include <cstdint>
#include <memory>
#include <type_traits>

namespace lockstep {

// CPUs that this process may run on (its affinity mask), at least 1.
int32_t UsableCpus();

// How many threads a program uses when nobody says: UsableCpus(), 8 at most.
int32_t DefaultThreads();

// Elements [begin, end).
struct PartRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
  friend bool operator==(const PartRange&, const PartRange&) = default;
};

// Part `part` of `parts` of [0, total): the parts in order cover every element once, begin at
// multiples of `grain`, and differ by at most one grain. With fewer grains than parts some are
// empty. REQUIRES: total >= 0, 0 <= part < parts, grain >= 1.
PartRange PartOf(int64_t total, int32_t part, int32_t parts, int64_t grain = 1);

class ThreadTeam {
 public:
  static constexpr int32_t kMaxSize = 1024;

  // Starts size - 1 threads; the caller of Run is the last member. Throws std::invalid_argument
  // unless 1 <= size <= kMaxSize, Error when the system refuses a thread.
  explicit ThreadTeam(int32_t size);
  ~ThreadTeam();  // joins
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int32_t size() const { return size_; }

  // Calls job(part) once for each part in [0, size()), at the same time where there are cores for
  // it, and returns when all have returned. Part 0 runs on the caller's thread, and so does every
  // part whose thread has not begun by then: parts may not wait for each other. What the caller
  // wrote before is visible to the job, what the job wrote to the caller after. When parts throw,
  // the lowest one's exception is rethrown after all ended. Allocates nothing. With a team of one
  // this is a direct call. REQUIRES: no other Run of this team is in progress, neither around this
  // one nor beside it.
  template <typename Job>
  void Run(Job&& job) {
    if (size_ == 1) {
      job(0);
      return;
    }
    using Function = std::remove_reference_t<Job>;
    RunParts({[](void* object, int32_t part) { (*static_cast<Function*>(object))(part); },
              const_cast<void*>(static_cast<const void*>(&job))});
  }

 private:
  struct JobRef {
    void (*call)(void* object, int32_t part) = nullptr;
    void* object = nullptr;
  };
  class Crew;

  void RunParts(JobRef job);

  int32_t size_;
  std::unique_ptr<Crew> crew_;  // none in a team of one
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_THREAD_TEAM_H_
