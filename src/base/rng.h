// Counter-based random numbers: the value depends on (seed, counter) alone, so a sampled token never
// depends on batch neighbours or on how often a sequence was preempted.
#pragma once

#include <array>
#include <cstdint>

namespace quire {

// Philox4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// key = seed, counter = (low, high); returns four independent 32-bit words.
[[nodiscard]] std::array<uint32_t, 4> philox4x32(uint64_t seed, uint64_t counter_low, uint64_t counter_high);

// A uniform double in [0, 1) with 53 random bits, keyed by (seed, position, stream).
[[nodiscard]] double uniform_at(uint64_t seed, uint64_t position, uint64_t stream = 0);

}  // namespace quire
