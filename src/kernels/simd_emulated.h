// Words of register shapes that this machine may lack, in plain C++, for tests: every body runs on them
// everywhere.
#pragma once

#include "base/check.h"
#include "kernels/simd_scalar.h"

namespace quire {

// AVX2's shape: a dot keeps two 16-bit sums a lane. Where the processor would saturate or wrap, this stops.
struct EmulatedPairWords : ScalarWords {
  static constexpr int kIntRows = 3;

  static constexpr int dot_steps(int code_max) {
    int steps = 8;
    while (steps * 2 * code_max * 127 > INT16_MAX) steps /= 2;
    return steps;
  }
  static constexpr int dot_planes(int code_max) { return 2 * code_max * 127 > INT16_MAX ? 2 : 1; }

  SCALAR_WORD Dot dot_start(Bytes codes, Bytes activations) {
    Dot sum;
    for (int i = 0; i < kLanes; ++i) {
      int32_t products[4];
      for (int k = 0; k < 4; ++k) {
        const auto shift = static_cast<uint32_t>(8 * k);
        const auto code = static_cast<uint8_t>(static_cast<uint32_t>(codes.lane[i]) >> shift);
        const auto activation = static_cast<int8_t>(static_cast<uint32_t>(activations.lane[i]) >> shift);
        products[k] = code * activation;
      }
      sum.lane[i] = checked_pair(products[0] + products[1], products[2] + products[3]);
    }
    return sum;
  }
  SCALAR_WORD Dot dot(Dot sum, Bytes codes, Bytes activations) {
    const Dot product = dot_start(codes, activations);
    for (int i = 0; i < kLanes; ++i) {
      sum.lane[i] =
          checked_pair(even(sum.lane[i]) + even(product.lane[i]), odd(sum.lane[i]) + odd(product.lane[i]));
    }
    return sum;
  }
  SCALAR_WORD I32 dot_sum(Dot a) { return pair_dot(a, set1_i32(0x10001)); }
  SCALAR_WORD I32 dot_scaled(Dot a, I32 scale) { return pair_dot(a, scale); }
  SCALAR_WORD I32 scale_low(I32 pairs) {
    for (int32_t& lane : pairs.lane) lane = checked_pair(even(lane), even(lane));
    return pairs;
  }
  SCALAR_WORD I32 scale_high(I32 pairs) {
    for (int32_t& lane : pairs.lane) lane = checked_pair(odd(lane), odd(lane));
    return pairs;
  }

 private:
  static int32_t even(int32_t lane) { return static_cast<int16_t>(lane); }
  static int32_t odd(int32_t lane) { return lane >> 16; }
  static int32_t checked_pair(int32_t even, int32_t odd) {
    CHECK(INT16_MIN <= even && even <= INT16_MAX && INT16_MIN <= odd && odd <= INT16_MAX);
    return static_cast<int32_t>((static_cast<uint32_t>(even) & 0xffffu) | static_cast<uint32_t>(odd) << 16);
  }
};

// AVX-512's shape: 4 products a lane straight to 32 bits, and more rows at a time.
struct EmulatedQuadWords : ScalarWords {
  static constexpr int kIntRows = 8;
  static constexpr int kFloatRows = 12;
};

// AMX's shape, which stops when it is not configured.
struct EmulatedTiles {
  static constexpr int kRows = 16;

  struct Use {
    Use() { ++uses; }
    ~Use() { --uses; }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
  };

  static void dots(const int8_t* activations, const std::byte* codes, int32_t* out) {
    CHECK(uses == 1);
    for (int row = 0; row < kRows; ++row) {
      for (int lane = 0; lane < 16; ++lane) {
        int32_t sum = 0;
        for (int k = 0; k < 32; ++k)
          sum += activations[row * 32 + k] * static_cast<uint8_t>(codes[k / 4 * 64 + lane * 4 + k % 4]);
        out[row * 16 + lane] = sum;
      }
    }
  }

 private:
  static inline thread_local int uses = 0;
};

}  // namespace quire
