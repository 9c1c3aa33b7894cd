// Parts of a job that members of a team take piece by piece, so that nobody waits for a slow neighbour.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"

namespace quire {

// How far the parts of a job are taken. Each member has a part of its own, [0, count); a member that is done
// takes from the parts of others. Processors of a virtual machine, or of two kinds, differ in speed, and from
// one moment to the next.
//
// take() by any member at any time; reset() while nobody takes from that part. Invariant: every item of a
// part is taken at most once between resets. Cost: one atomic addition, uncontended until others are done.
class WorkClaims {
 public:
  explicit WorkClaims(int members) : parts_(static_cast<size_t>(members)) {}

  void reset(int member) { taken(member).store(0, std::memory_order_relaxed); }

  // The next at most `most` items of `member`'s part, which has `count`; empty when all are taken. Always
  // called with the same count between resets.
  Share take(int member, int64_t count, int64_t most) {
    std::atomic<int64_t>& next = taken(member);
    if (next.load(std::memory_order_relaxed) >= count) return {count, count};
    const int64_t begin = std::min(count, next.fetch_add(most, std::memory_order_relaxed));
    return {begin, std::min(count, begin + most)};
  }

 private:
  struct alignas(64) Part {
    std::atomic<int64_t> taken{0};
  };
  std::atomic<int64_t>& taken(int member) { return parts_[static_cast<size_t>(member)].taken; }

  std::vector<Part> parts_;
};

}  // namespace quire
