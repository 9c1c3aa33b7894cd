// Prompts that no cache has seen.
#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"

namespace quire {

// Tokens drawn one after another, all ids of the vocabulary alike; the same seed gives the same tokens.
class RandomTokens {
 public:
  RandomTokens(uint64_t seed, int vocab_size) : seed_(seed), vocab_size_(vocab_size) {}

  [[nodiscard]] std::vector<int32_t> next(int count) {
    std::vector<int32_t> ids(static_cast<size_t>(count));
    for (int32_t& id : ids) id = static_cast<int32_t>(uniform_at(seed_, drawn_++) * vocab_size_);
    return ids;
  }

 private:
  const uint64_t seed_;
  const int vocab_size_;
  uint64_t drawn_ = 0;
};

}  // namespace quire
