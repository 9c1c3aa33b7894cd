// The pinned workers that execute a model step.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace quire {

// CPUs that this process may really use: its affinity mask, bounded by the cgroup's CPU quota. At least 1.
[[nodiscard]] std::vector<int> usable_cpus();

// A fixed team that runs one function together. The thread that calls run() is member 0.
//
// Owned by the engine; run() is called by one thread at a time. Invariants: (1) run() returns after every
// member has returned; (2) barrier() may be called inside run() only, by all members equally often.
// Cost: members spin for some 50 us after a step and then sleep on a futex, so an idle pool uses no CPU;
// a barrier between awake members costs well under a microsecond. When there are more members than usable
// CPUs nobody spins.
class ThreadPool {
 public:
  // thread_count >= 1. Members are pinned to distinct usable CPUs when there are enough of them.
  explicit ThreadPool(int thread_count);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int size() const { return thread_count_; }

  // Calls member(0) … member(size() - 1), each on its own thread.
  void run(FunctionRef<void(int)> member);

  // Waits inside run() until all members have arrived.
  void barrier();

  // Pins the calling thread as member 0 (its own CPU). Called once by the thread that will call run().
  void pin_caller();

 private:
  void work(int index);
  void wait_for_change(std::atomic<uint32_t>& word, uint32_t seen) const;

  const int thread_count_;
  int spin_limit_ = 0;
  std::vector<int> cpus_;
  FunctionRef<void(int)>* task_ = nullptr;
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int> running_{0};
  alignas(64) std::atomic<uint32_t> finished_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> barrier_generation_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

// The part [begin, end) of `count` items that member `index` of `members` owns; parts differ by at most one
// item.
struct Share {
  int64_t begin;
  int64_t end;
};
[[nodiscard]] constexpr Share share_of(int64_t count, int index, int members) {
  return {count * index / members, count * (index + 1) / members};
}

}  // namespace quire
