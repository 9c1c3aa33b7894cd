#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

#include "base/check.h"

namespace quire {
namespace {

// About 50 us of pauses on the machines measured; a wake-up through the futex costs 5 to 16 us.
constexpr int kSpinPauses = 1500;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void pin_to(pthread_t thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(thread, sizeof(set), &set);  // refused inside some sandboxes: then unpinned
}

// CPUs granted by cgroup v2's cpu.max ("quota period" or "max period"); 0 when there is no limit.
int cgroup_cpu_limit() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  long period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  return static_cast<int>((std::atol(quota.c_str()) + period - 1) / period);
}

}  // namespace

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  }
  int limit = cgroup_cpu_limit();
  if (limit > 0 && static_cast<size_t>(limit) < cpus.size()) cpus.resize(limit);
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

ThreadPool::ThreadPool(int thread_count) : thread_count_(thread_count), cpus_(usable_cpus()) {
  CHECK(thread_count >= 1);
  if (static_cast<size_t>(thread_count) <= cpus_.size()) spin_limit_ = kSpinPauses;
  for (int index = 1; index < thread_count; ++index) workers_.emplace_back([this, index] { work(index); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::pin_caller() {
  if (spin_limit_ > 0) pin_to(pthread_self(), cpus_[0]);
}

void ThreadPool::wait_for_change(std::atomic<uint32_t>& word, uint32_t seen) const {
  for (int i = 0; i < spin_limit_; ++i) {
    if (word.load(std::memory_order_acquire) != seen) return;
    pause_cpu();
  }
  while (word.load(std::memory_order_acquire) == seen) word.wait(seen, std::memory_order_acquire);
}

void ThreadPool::work(int index) {
  if (spin_limit_ > 0) pin_to(pthread_self(), cpus_[index]);
  uint32_t seen = 0;
  while (true) {
    wait_for_change(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    (*task_)(index);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      finished_.fetch_add(1, std::memory_order_release);
      finished_.notify_one();
    }
  }
}

void ThreadPool::run(FunctionRef<void(int)> member) {
  if (thread_count_ == 1) {
    member(0);
    return;
  }
  uint32_t finished_before = finished_.load(std::memory_order_relaxed);
  task_ = &member;
  running_.store(thread_count_, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  member(0);
  if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    finished_.fetch_add(1, std::memory_order_release);
    return;
  }
  wait_for_change(finished_, finished_before);
}

void ThreadPool::barrier() {
  if (thread_count_ == 1) return;
  uint32_t seen = barrier_generation_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == thread_count_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    barrier_generation_.fetch_add(1, std::memory_order_release);
    barrier_generation_.notify_all();
    return;
  }
  wait_for_change(barrier_generation_, seen);
}

}  // namespace quire
