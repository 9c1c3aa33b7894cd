// Time as a dependency: the simulator drives a manual clock, programs use the monotonic one.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <limits>

namespace quire {

// Of a file's times, which may lie anywhere: as far as 64 bits reach.
[[nodiscard]] inline int64_t nanoseconds_of(const timespec& time) {
  int64_t ns = 0;
  if (__builtin_mul_overflow(int64_t{time.tv_sec}, int64_t{1'000'000'000}, &ns) ||
      __builtin_add_overflow(ns, int64_t{time.tv_nsec}, &ns)) {
    return time.tv_sec < 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
  }
  return ns;
}

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since an arbitrary start; never goes back. Any thread.
  [[nodiscard]] virtual int64_t now_ns() const = 0;
};

class MonotonicClock final : public Clock {
 public:
  [[nodiscard]] int64_t now_ns() const override {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }
};

}  // namespace quire
