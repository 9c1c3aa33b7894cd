// A queue between threads that refuses rather than grows.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "base/check.h"

namespace quire {

// Any number of producers and consumers. Invariants: (1) size() <= capacity(); (2) items leave in the order
// in which they came; (3) after close() pushes fail, pops drain what is left and then fail.
template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) { CHECK(capacity > 0); }

  // False, and `item` untouched, when full or closed.
  [[nodiscard]] bool try_push(T&& item) {
    std::lock_guard lock(mutex_);
    if (closed_ || items_.size() >= capacity_) return false;
    items_.push_back(std::move(item));
    arrived_.notify_one();
    return true;
  }

  [[nodiscard]] std::optional<T> try_pop() {
    std::lock_guard lock(mutex_);
    return pop_locked();
  }

  // Sleeps until there is an item (then that) or the queue is closed and empty (then nullopt).
  [[nodiscard]] std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return closed_ || !items_.empty(); });
    return pop_locked();
  }

  void close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    arrived_.notify_all();
  }

  [[nodiscard]] size_t size() const {
    std::lock_guard lock(mutex_);
    return items_.size();
  }
  [[nodiscard]] size_t capacity() const { return capacity_; }

 private:
  std::optional<T> pop_locked() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace quire
