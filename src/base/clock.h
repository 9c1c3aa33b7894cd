// Time as a dependency: the simulator drives a manual clock, programs use the monotonic one.
#pragma once

#include <chrono>
#include <cstdint>

namespace quire {

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
