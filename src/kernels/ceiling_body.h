// The probes of ceilings.h over the words of an instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/ceilings.h"
#include "kernels/matmul_scratch.h"
#include "kernels/simd_inline.h"

namespace quire {

// W: the words, and hide(vector): the compiler must take the vector for a new value, at no cost. Without it
// an operation whose operands stay the same would be computed once.
template <class W>
struct CeilingBody {
  using F32 = typename W::F32;
  using I32 = typename W::I32;

  static constexpr int kChains = W::kFloatRows;         // independent, enough to hide the latency
  static constexpr int kShortChains = kChains * 2 / 3;  // where only the addition is chained
  static constexpr int kRepeats = 8;                    // of all chains in a turn
  static constexpr int kLine = 64;

  static uint32_t read_memory(std::span<const std::byte> data) {
    constexpr size_t kStreams = 8;
    const size_t stream_bytes = data.size() / (kStreams * kLine) * kLine;
    I32 sums[4] = {W::set1_i32(0), W::set1_i32(0), W::set1_i32(0), W::set1_i32(0)};
    for (size_t at = 0; at < stream_bytes; at += kLine) {
#pragma GCC unroll 8
      for (size_t stream = 0; stream < kStreams; ++stream) {
        const std::byte* line = data.data() + stream * stream_bytes + at;
        W::prefetch(line + kPrefetchBytes);
        sums[stream % 4] = W::add_i32(sums[stream % 4], W::load_i32(line));
      }
    }
    return sum_of(sums) + read_cache(data.subspan(kStreams * stream_bytes));
  }

  static uint32_t read_cache(std::span<const std::byte> data) {
    I32 sums[4] = {W::set1_i32(0), W::set1_i32(0), W::set1_i32(0), W::set1_i32(0)};
    const std::byte* line = data.data();
    const std::byte* const end = line + data.size();
    for (; end - line >= 4 * kLine; line += 4 * kLine) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) sums[i] = W::add_i32(sums[i], W::load_i32(line + i * kLine));
    }
    for (; line != end; line += kLine) sums[0] = W::add_i32(sums[0], W::load_i32(line));
    return sum_of(sums);
  }

  static int64_t float_fma(int64_t turns) {
    F32 factor = W::set1(0.75f);
    const F32 summand = W::set1(0.5f);
    F32 chains[kChains];
    for (F32& chain : chains) chain = factor;
    repeat(turns, chains, [&](F32& chain) __attribute__((always_inline)) {
      W::hide(factor);
      chain = W::fma(chain, factor, summand);
    });
    return turns * kRepeats * kChains * W::kLanes * 2;
  }

  static int64_t int8_dot(int64_t turns) {
    int_chains<kChains>(turns, [](I32& sum, const I32& a, const I32& b)
                                   __attribute__((always_inline)) { sum = W::dot(sum, a, b); });
    return turns * kRepeats * kChains * W::kLanes * 4 * 2;
  }

  static int64_t int8_dot_sum32(int64_t turns) {
    int_chains<kShortChains>(turns, [](I32& sum, const I32& a, const I32& b) __attribute__((always_inline)) {
      sum = W::add_i32(sum, W::dot_sum(W::dot_start(a, b)));
    });
    return turns * kRepeats * kShortChains * W::kLanes * 4 * 2;
  }

  static int64_t int16_dot(int64_t turns) {
    int_chains<kChains>(turns, [](I32& sum, const I32& a, const I32& b)
                                   __attribute__((always_inline)) { sum = W::pair_dot_add(sum, a, b); });
    return turns * kRepeats * kChains * W::kLanes * 2 * 2;
  }

 private:
  static uint32_t sum_of(const I32* sums) {
    const I32 all = W::add_i32(W::add_i32(sums[0], sums[1]), W::add_i32(sums[2], sums[3]));
    return static_cast<uint32_t>(W::reduce_add_i32(all));
  }

  template <int count, class Step>
  KERNEL_INLINE void int_chains(int64_t turns, Step step) {
    I32 a = W::set1_i32(0x12345678);
    const I32 b = W::set1_i32(0x1f2e3d4c);
    I32 chains[count];
    for (I32& chain : chains) chain = W::set1_i32(1);
    repeat(turns, chains, [&](I32& chain) __attribute__((always_inline)) {
      W::hide(a);
      step(chain, a, b);
    });
  }

  template <class Vector, int count, class Step>
  KERNEL_INLINE void repeat(int64_t turns, Vector (&chains)[count], Step step) {
    for (Vector& chain : chains) W::hide(chain);  // not all the same
    for (int64_t turn = 0; turn < turns; ++turn) {
#pragma GCC unroll 8
      for (int i = 0; i < kRepeats; ++i) {
#pragma GCC unroll 16
        for (int c = 0; c < count; ++c) step(chains[c]);
      }
    }
    for (Vector& chain : chains) W::hide(chain);  // all are wanted
  }
};

template <class W>
[[nodiscard]] constexpr CeilingTable ceilings_of(std::string_view name) {
  using Body = CeilingBody<W>;
  return {.name = name,
          .read_memory = Body::read_memory,
          .read_cache = Body::read_cache,
          .float_fma = Body::float_fma,
          .int8_dot = Body::int8_dot,
          .int8_dot_sum32 = Body::int8_dot_sum32,
          .int16_dot = Body::int16_dot};
}

}  // namespace quire
