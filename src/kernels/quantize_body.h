// Activations to int8 codes, once for all instruction sets; kernel_table.h has the definition.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"

namespace quire {

template <class W>
struct QuantizeBody {
  static void quantize_row(const float* x, int row, const QuantizedRows& q) {
    const GroupPlaces places = q.places(row);
    for (int g = 0; g < q.in / kGroup; ++g) {
      const size_t at = places[g];
      q.sums[at] = quantize_group(x + kGroup * g, q.codes + kGroup * at, &q.scales[at]);
    }
  }

  static void quantize_row_wide(const float* x, int row, const WideRows& q) {
    const GroupPlaces places = q.places(row);
    for (int g = 0; g < q.in / kGroup; ++g) {
      const size_t at = places[g];
      q.sums[at] = quantize_wide_group(x + kGroup * g, q.codes + kGroup * at, &q.scales[at]);
    }
  }

 private:
  // kWideCodeMax / it is still finite.
  static constexpr float kSmallestWide = 1e-34f;
  static constexpr float kSmallest = 1e-35f;
  static constexpr int32_t kInfinityBits = 0x7f800000;
  static constexpr int kOrder[4] = {0, 2, 1, 3};  // of 14-bit codes

  // The bits of the largest magnitude; they order as integers do, with NaN on top.
  static int32_t most_bits_of(typename W::F32 low, typename W::F32 high) {
    const auto magnitude = W::set1_i32(INT32_MAX);
    return W::reduce_max_i32(
        W::max_i32(W::and_i32(W::as_i32(low), magnitude), W::and_i32(W::as_i32(high), magnitude)));
  }

  static GroupSums quantize_group(const float* x, int8_t* codes, float* scale) {
    const auto low = W::load(x);
    const auto high = W::load(x + 16);
    const int32_t most_bits = most_bits_of(low, high);
    const float most = std::bit_cast<float>(most_bits);
    const bool is_finite = most_bits < kInfinityBits;
    if (!is_finite || most < kSmallest) {
      for (int i = 0; i < kGroup; ++i) codes[i] = 0;
      *scale = is_finite ? 0.0f : most;
      return {0, 0, *scale * 0.0f};
    }
    *scale = most / 127.0f;
    const auto inverse = W::set1(127.0f / most);
    const auto low_codes = W::to_i32(W::mul(low, inverse));
    const auto high_codes = W::to_i32(W::mul(high, inverse));
    W::store_i8(codes, low_codes);
    W::store_i8(codes + 16, high_codes);
    const int32_t low_sum = W::reduce_add_i32(low_codes);
    const int32_t high_sum = W::reduce_add_i32(high_codes);
    return {static_cast<int16_t>(low_sum), static_cast<int16_t>(high_sum),
            *scale * static_cast<float>(low_sum + high_sum)};
  }

  static WideSums quantize_wide_group(const float* x, int16_t* codes, float* scale) {
    const auto low = W::load(x);
    const auto high = W::load(x + 16);
    const int32_t most_bits = most_bits_of(low, high);
    const float most = std::bit_cast<float>(most_bits);
    const bool is_finite = most_bits < kInfinityBits;
    if (!is_finite || most < kSmallestWide) {
      for (int i = 0; i < kGroup; ++i) codes[i] = 0;
      *scale = is_finite ? 0.0f : most;
      return {};
    }
    *scale = most / static_cast<float>(kWideCodeMax);
    const auto inverse = W::set1(static_cast<float>(kWideCodeMax) / most);
    const auto low_codes = W::to_i32(W::mul(low, inverse));
    const auto high_codes = W::to_i32(W::mul(high, inverse));
    alignas(64) int32_t wide[kGroup];
    W::store_i32(wide, low_codes);
    W::store_i32(wide + 16, high_codes);
    for (int i = 0; i < kGroup; ++i) codes[i] = static_cast<int16_t>(wide[(i & ~3) + kOrder[i & 3]]);
    return {W::reduce_add_i32(low_codes), W::reduce_add_i32(high_codes)};
  }
};

}  // namespace quire
