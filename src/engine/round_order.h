// The order in which a round of measurements visits its variants.
#pragma once

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace quire {

// A random permutation of 0 … count - 1 that depends on (seed, round) alone, so that no variant always runs
// after the same other one or at the same time of a round. All permutations are equally likely.
[[nodiscard]] inline std::vector<int> round_order(uint64_t seed, int round, int count) {
  std::vector<int> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (int i = count - 1; i > 0; --i) {
    const double draw = uniform_at(seed, static_cast<uint64_t>(round), static_cast<uint64_t>(i));
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(draw * (i + 1))]);
  }
  return order;
}

}  // namespace quire
