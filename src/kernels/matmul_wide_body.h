// Products with 14-bit activations, once for all instruction sets. Some rows at a time stay in registers
// while the packed panel passes by, unpacked on the way; for the rows after them it comes from the cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/matmul_codes.h"
#include "kernels/matmul_scratch.h"
#include "kernels/panel_outputs.h"

namespace quire {

// One group of some rows of 14-bit activations, side by side in one tile.
struct WideGroupRows {
  const int16_t* codes;  // [row][32]
  const float* scales;   // [row]
  const WideSums* sums;  // [row]
  size_t stride;         // rows of the tile: from one group to the next

  KERNEL_INLINE WideGroupRows at(const WideRows& x, int row) {
    const GroupPlaces places = x.places(row);
    return {x.codes + places.first * kGroup, x.scales + places.first, x.sums + places.first, places.stride};
  }
  void advance() {
    codes += stride * kGroup;
    scales += stride;
    sums += stride;
  }
};

// The products of one type of weights. W: the words of one ISA (simd_*.h). Stateless; any thread.
template <class W, TensorType type>
class WideProduct {
 public:
  static void run(const PackedMatrix& w, const WideRows& x, int panel_begin, int panel_end, ProductRows y) {
    const int block = row_block(x.rows, static_cast<size_t>(x.in) * sizeof(int16_t), W::kIntRows);
    for (int row = 0; row < x.rows; row += block) {
      const Rows rows{row, x.rows - row < block ? x.rows : row + block};
      for (int panel = panel_begin; panel < panel_end; ++panel) {
        const std::byte* data = w.data + static_cast<size_t>(panel) * w.panel_bytes;
        multiply_panel(data, x, rows, PanelOutputs<W>::of(w, panel, y));
      }
    }
  }

 private:
  using F32 = typename W::F32;
  using I32 = typename W::I32;
  static constexpr PackedLayout kLayout = packed_layout(type);
  static constexpr int kQuads = kGroup / 4;
  static constexpr int kZeroShift = kLayout.zero == 32 ? 5 : kLayout.zero == 4 ? 2 : 0;
  static_assert(!kLayout.has_halves() || kLayout.zero == 0 || kLayout.zero == 1 << kZeroShift);

  struct Rows {
    int begin;
    int end;
  };

  static void multiply_panel(const std::byte* data, const WideRows& x, Rows rows,
                             const PanelOutputs<W>& out) {
    Rows left = multiply_tiles<W::kIntRows>(data, x, rows, out);
    if constexpr (W::kIntRows > 4) left = multiply_tiles<4>(data, x, left, out);
    left = multiply_tiles<2>(data, x, left, out);
    multiply_tiles<1>(data, x, left, out);
  }

  // kRows at a time as long as there are so many; returns the rows that are left.
  template <int kRows>
  KERNEL_INLINE Rows multiply_tiles(const std::byte* data, const WideRows& x, Rows rows,
                                    const PanelOutputs<W>& out) {
    for (; rows.begin + kRows <= rows.end; rows.begin += kRows) multiply<kRows>(data, x, rows.begin, out);
    return rows;
  }

  // All inputs of the panel times kRows rows.
  template <int kRows>
  static void multiply(const std::byte* block, const WideRows& x, int row, const PanelOutputs<W>& out) {
    F32 acc[kRows];
    unrolled<kRows>([&](auto r) __attribute__((always_inline)) { acc[r] = W::zero(); });
    auto rows = WideGroupRows::at(x, row);
    const int blocks = x.in / (kGroup * kLayout.block_groups);
    for (int b = 0; b < blocks; ++b, block += kLayout.block_bytes()) {
      if (row == 0) prefetch_panel<W, kLayout.header_bytes>(block);
      for (int g = 0; g < kLayout.block_groups; ++g, rows.advance()) {
        const std::byte* group = block + kLayout.header_bytes + g * kLayout.group_bytes;
        if (row == 0) prefetch_panel<W, kLayout.group_bytes>(group);
        add_group<kRows>(group, load_scales<W, type>(block, g), rows, acc);
      }
    }
    unrolled<kRows>([&](auto r)
                        __attribute__((always_inline)) { PanelOutputs<W>::store(out, row + r, acc[r]); });
  }

  // acc += one group: the definition in kernel_table.h.
  template <int kRows>
  KERNEL_INLINE void add_group(const std::byte* group, const GroupScales<W>& s, const WideGroupRows& x,
                               F32* acc) {
    I32 total[kRows];
    if constexpr (kLayout.has_halves()) {
      I32 high[kRows];
      dots<kRows, 0, kQuads / 2>(group, x, total);
      dots<kRows, kQuads / 2, kQuads>(group, x, high);
      const I32 low_scale = low_of(s.pairs);
      const I32 high_scale = high_of(s.pairs);
      unrolled<kRows>([&](auto r) __attribute__((always_inline)) {
        total[r] = W::add_i32(W::mul_i32(total[r], low_scale), W::mul_i32(high[r], high_scale));
      });
    } else {
      dots<kRows, 0, kQuads>(group, x, total);
    }
    unrolled<kRows>([&](auto r) __attribute__((always_inline)) {
      const float scale = x.scales[r];
      const WideSums& sums = x.sums[r];
      const I32 dot = kLayout.zero == 0 ? total[r] : W::sub_i32(total[r], zero_part(s, sums));
      acc[r] = W::fma(W::to_f32(dot), W::mul(s.scale, W::set1(scale)), acc[r]);
      if constexpr (kLayout.has_min() && kLayout.has_halves()) {
        acc[r] = W::fma(W::to_f32(scaled_sums(s.min_pairs, sums)), W::mul(s.min, W::set1(scale)), acc[r]);
      } else if constexpr (kLayout.has_min()) {
        acc[r] = W::fma(s.min, W::set1(scale * static_cast<float>(sums.low + sums.high)), acc[r]);
      }
    });
  }

  // What the zero point has added to a group's dot.
  KERNEL_INLINE I32 zero_part(const GroupScales<W>& s, const WideSums& sums) {
    if constexpr (kLayout.has_halves()) return W::shl_i32(scaled_sums(s.pairs, sums), kZeroShift);
    return W::set1_i32(kLayout.zero * (sums.low + sums.high));
  }
  KERNEL_INLINE I32 scaled_sums(I32 pairs, const WideSums& sums) {
    return W::add_i32(W::mul_i32(low_of(pairs), W::set1_i32(sums.low)),
                      W::mul_i32(high_of(pairs), W::set1_i32(sums.high)));
  }
  KERNEL_INLINE I32 low_of(I32 pairs) { return W::pair_dot(pairs, W::set1_i32(1)); }
  KERNEL_INLINE I32 high_of(I32 pairs) { return W::pair_dot(pairs, W::set1_i32(0x10000)); }

  // Dots of quads [begin, end).
  template <int kRows, int begin, int end>
  KERNEL_INLINE void dots(const std::byte* group, const WideGroupRows& x, I32* total) {
    unrolled<end - begin>([&](auto step) __attribute__((always_inline)) {
      constexpr int kQuad = begin + step;
      const auto codes = load_quad<W, type, kQuad>(group);
      const I32 even = W::and_i32(codes, W::set1_i32(0x00ff00ff));
      const I32 odd = W::high_bytes(codes);
      unrolled<kRows>([&](auto r) __attribute__((always_inline)) {
        const int16_t* quad = x.codes + kGroup * r + 4 * kQuad;
        if constexpr (step == 0) {
          total[r] = W::pair_dot(even, W::broadcast4(quad));
        } else {
          total[r] = W::pair_dot_add(total[r], even, W::broadcast4(quad));
        }
        total[r] = W::pair_dot_add(total[r], odd, W::broadcast4(quad + 2));
      });
    });
  }
};

}  // namespace quire
